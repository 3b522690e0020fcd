"""Which windows may join a proxy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from requirements import requirement

from foretool.server.config.loader import LiveConfig, load
from foretool.server.local.frames import write_hello
from foretool.server.local.places import ProxyIdentity
from foretool.server.local.sharing import Sharing

FOLDER = "/home/me/work"


def sharing(tmp_path: Path, environ: dict[str, str], bound: tuple[str, ...] = (), **entry: Any) -> Sharing:
    path = tmp_path / "mcp.json"
    share = entry.pop("share", True)
    document = {"mcpServers": {"one": {"command": "run", **entry}}, "foretool": {"share": share, "storage": "x"}}
    path.write_text(json.dumps(document))
    return Sharing(LiveConfig(load(path, environ)), FOLDER, lambda: list(bound), environ)


def hello(folder: str = FOLDER, **environ: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(write_hello(ProxyIdentity("/mcp.json", "", folder), environ, ""))
    return said


BASE = {"HOME": "/home/me", "PATH": "/bin"}


def test_a_window_like_us_may_join(tmp_path: Path) -> None:
    assert sharing(tmp_path, BASE).refuse(hello(**BASE, OTHER="x", TERM="dumb")) == ""
    assert sharing(tmp_path, BASE).refuse(hello("/elsewhere", **BASE)) == ""


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ({"inherit": ["TOKEN"]}, "TOKEN"),
        ({"inherit": ["TOK*"]}, "TOKEN"),
        ({"inherit": ["*"]}, "TOKEN"),
        ({"env": {"X": "${TOKEN:-none}"}}, "TOKEN"),
        ({"args": ["${env:TOKEN:-none}"]}, "TOKEN"),
    ],
)
@requirement("trust:windows:environment")
def test_a_variable_that_a_server_gets_must_be_the_same(tmp_path: Path, entry: dict[str, Any], name: str) -> None:
    refuse = sharing(tmp_path, {**BASE, name: "one"}, **entry).refuse
    assert refuse(hello(**BASE, TOKEN="one")) == ""
    for other in ({}, {"TOKEN": "two"}, {"TOKEN": ""}):
        assert refuse(hello(**BASE, **other)) == f"the variable {name} has another value there"


@pytest.mark.parametrize("name", ["HOME", "FORETOOL_STORAGE", "HTTPS_PROXY", "XDG_STATE_HOME"])
@requirement("trust:windows:environment")
def test_a_variable_that_foretool_reads_must_be_the_same(tmp_path: Path, name: str) -> None:
    refuse = sharing(tmp_path, {**BASE, name: "/one"}).refuse
    assert refuse(hello(**{**BASE, name: "/two"})) == f"the variable {name} has another value there"


@requirement("trust:windows:folder")
def test_a_window_of_another_folder_shares_no_server_that_works_in_ours(tmp_path: Path) -> None:
    by_config = sharing(tmp_path, BASE, cwd="${workspaceFolder}")
    assert by_config.refuse(hello(**BASE)) == ""
    assert by_config.refuse(hello("/other", **BASE)) == f"its config uses the working folder, which is {FOLDER}"
    by_roots = sharing(tmp_path, BASE, bound=("files",))
    assert by_roots.refuse(hello(**BASE)) == ""
    assert by_roots.refuse(hello("/other", **BASE)).startswith("server files works in the folders that its client")


def program(folder: Path, text: str = "#!/bin/sh\n") -> str:
    folder.mkdir(exist_ok=True)
    (folder / "run").write_text(text)
    (folder / "run").chmod(0o755)
    return str(folder)


@requirement("trust:windows:environment")
def test_two_paths_that_lead_to_the_same_programs_are_alike(tmp_path: Path) -> None:
    one, two, none = program(tmp_path / "one"), program(tmp_path / "two"), str(tmp_path / "none")
    refuse = sharing(tmp_path, {**BASE, "PATH": one}).refuse
    assert refuse(hello(**{**BASE, "PATH": f"{none}:{one}:{two}"})) == ""
    assert refuse(hello(**{**BASE, "PATH": f"{two}:{one}"})) == "run is another program on PATH there"
    assert refuse(hello(**{**BASE, "PATH": none})) == "run is another program on PATH there"


@requirement("trust:windows:environment")
def test_the_interpreter_of_a_script_must_be_the_same(tmp_path: Path) -> None:
    script = program(tmp_path / "one", "#!/usr/bin/env -S node --x\n")
    for name in ("old", "new"):
        program(tmp_path / name)
        (tmp_path / name / "run").rename(tmp_path / name / "node")
    refuse = sharing(tmp_path, {**BASE, "PATH": f"{script}:{tmp_path}/old"}).refuse
    other = hello(**{**BASE, "PATH": f"{script}:{tmp_path}/new"})
    assert refuse(other) == "node, which runs run, is another program on PATH there"


def test_another_installation_and_a_config_that_shares_nothing_refuse(tmp_path: Path) -> None:
    assert "another installation" in sharing(tmp_path, BASE).refuse({**hello(**BASE), "version": "0.0.1"})
    assert "another installation" in sharing(tmp_path, BASE).refuse({**hello(**BASE), "installation": "/x 3.1"})
    assert sharing(tmp_path, BASE, share=False).refuse(hello(**BASE)) == "share is false in the config"


@pytest.mark.parametrize("change", [{"salt": "x"}, {"salt": ""}, {"salt": "00" * 65}, {"environment": []}])
def test_a_greeting_without_an_environment_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    said = sharing(tmp_path, BASE).refuse({**hello(**BASE), **change})
    assert said == "the greeting does not say what the environment is"


@requirement("trust:windows:environment")
def test_the_variables_are_those_of_the_file_as_it_was_read(tmp_path: Path) -> None:
    refuse = sharing(tmp_path, {**BASE, "TOKEN": "one"}, env={"X": "${TOKEN:-none}"}).refuse
    (tmp_path / "mcp.json").unlink()  # an editor saves
    assert refuse(hello(**BASE, TOKEN="two")) == "the variable TOKEN has another value there"
