"""Which config file is read, and what says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretool.server.config.errors import ConfigError
from foretool.server.config.files import ConfigPlace, find_place, is_own_file, own_file
from foretool.server.config.variables import home_folder

HOME = {"HOME": "/home/me"}
OWN = Path("/home/me/.config/foretool/mcp.json")


def test_a_relative_option_becomes_a_full_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_place(Path("mcp.json"), HOME) == ConfigPlace(tmp_path / "mcp.json", "--config")


def test_a_relative_variable_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"FORETOOL_CONFIG: expected a full path, found 'mcp\.json'"):
        find_place(None, {**HOME, "FORETOOL_CONFIG": "mcp.json"})


def test_the_file_of_the_working_folder_is_named_where_it_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_place(None, HOME).notice == ""
    (tmp_path / "mcp.json").write_text("{}")
    place = find_place(None, HOME)
    assert place.ignored == tmp_path / "mcp.json"
    assert place.notice.startswith(f"{tmp_path}/mcp.json is not read (foretool uses {OWN}); ")
    assert find_place(Path("/c.json"), HOME).notice == ""
    assert find_place(None, {**HOME, "FORETOOL_CONFIG": "/c.json"}).notice == ""


def test_the_users_own_file_is_no_file_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    own = own_file(environ)
    own.parent.mkdir()
    own.write_text("{}")
    monkeypatch.chdir(own.parent)
    assert find_place(None, environ) == ConfigPlace(own, "your own file")
    link = tmp_path / "link.json"
    link.symlink_to(own)
    assert is_own_file(link, environ) and not is_own_file(tmp_path / "other.json", environ)


def test_a_home_that_is_no_full_path_is_not_taken() -> None:
    assert home_folder({"HOME": "/home/me"}) == "/home/me"
    for environ in ({}, {"HOME": ""}, {"HOME": "."}):
        assert home_folder(environ).startswith("/")


def test_a_working_folder_that_is_gone_stops_only_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_place(None, HOME).path == OWN
    with pytest.raises(ConfigError, match="the folder that it starts in is gone"):
        find_place(Path("mcp.json"), HOME)
    monkeypatch.chdir("/")
