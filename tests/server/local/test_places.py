"""Where sockets are, and which of them serves what a caller wants."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from requirements import requirement

from foretool.server.local import places
from foretool.server.local.places import (
    ProxyIdentity,
    choose_sockets,
    find_folder,
    is_of_this_machine,
    name_socket,
    serves,
)

WORK = ProxyIdentity("/home/me/mcp.json", "", "/home/me/work")


def test_the_folder_depends_on_the_home_folder_alone() -> None:
    more = {"XDG_STATE_HOME": "/elsewhere", "XDG_RUNTIME_DIR": "/run/user/1"}
    assert find_folder({"HOME": "/home/me", **more}) == "/home/me/.local/state/foretool/run"
    assert find_folder({"HOME": "me"}) is None
    assert find_folder({}) is None
    assert find_folder({"HOME": "/home/me", "FORETOOL_SOCKETS": "/private"}) == "/private"
    assert find_folder({"HOME": "/home/me", "FORETOOL_SOCKETS": "off"}) is None
    # A relative folder would be one of the working folder, which may be a cloned repository.
    assert find_folder({"HOME": "/home/me", "FORETOOL_SOCKETS": "run"}) == "/home/me/.local/state/foretool/run"


@requirement("local:discovery")
def test_the_proxy_of_the_same_folder_comes_first_and_other_configs_and_profiles_do_not_come() -> None:
    here = name_socket(WORK, "1")
    here_for_all = name_socket(WORK._replace(profile=None), "2")
    elsewhere = name_socket(WORK._replace(folder="/home/me/other"), "0")
    above = name_socket(WORK._replace(folder="/home/me"), "3")
    others = [
        name_socket(WORK._replace(config="/home/me/other.json"), "4"),
        name_socket(WORK._replace(profile="docs"), "5"),
        "notes.txt",
        f"{here}.new",
        "ffffffff" + here[8:],  # of another machine that shares the home folder
    ]
    assert choose_sockets([*others, elsewhere, above, here_for_all, here], WORK) == [
        here,
        here_for_all,
        above,
        elsewhere,
    ]
    assert all(map(is_of_this_machine, (here, elsewhere)))


@requirement("local:discovery")
def test_a_project_that_the_users_own_file_lets_in_is_found_from_its_folder_alone(tmp_path: Path) -> None:
    project = ProxyIdentity(str(tmp_path / "mcp.json"), "", str(tmp_path), is_project=True)
    name = name_socket(project, "1")
    assert choose_sockets([name], WORK._replace(folder=str(tmp_path))) == [name]
    assert choose_sockets([name], WORK) == []
    # A proxy that was told to serve the file of that folder has another user file.
    assert (
        choose_sockets([name_socket(project._replace(is_project=False), "1")], WORK._replace(folder=str(tmp_path)))
        == []
    )
    assert serves(project, WORK.config, "", str(tmp_path)) == ""
    assert serves(project, WORK.config, "", "/home/me/work") == f"this proxy serves the config {project.config}"


def test_a_proxy_serves_its_own_config_and_profile() -> None:
    assert serves(WORK, WORK.config, "", "/anywhere") == ""
    assert serves(WORK, "/home/me/other.json", "", "") == "this proxy serves the config /home/me/mcp.json"
    assert serves(WORK, WORK.config, "docs", "") == "this proxy serves the profile ''"
    assert serves(WORK._replace(profile=None), WORK.config, "docs", "") == ""


def test_a_working_folder_that_is_gone_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(places.os, "getcwd", gone)
    (tmp_path / "link.json").symlink_to(tmp_path / "mcp.json")
    found = ProxyIdentity.own(tmp_path / "link.json", "", is_project=False)
    assert found == ProxyIdentity(os.path.realpath(tmp_path / "mcp.json"), "", "")
