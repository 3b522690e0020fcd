"""`foretool list`: each server of the config with its state, in 80 columns."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
from command_fakes import definition, echo, fill, write_config
from requirements import requirement

from foretool.server.commands.group import run
from foretool.server.commands.list import show_overview
from foretool.server.config.loader import load
from foretool.server.config.servers import fingerprint
from foretool.storage.opening import open_store
from foretool.storage.records import Tool, ToolId, UpstreamRecord, UpstreamState
from foretool.storage.steps import finish


@pytest.fixture
def config(tmp_path: Path) -> Path:
    servers = {
        "calc": {"command": "calc", "args": ["--token", "t0p"]},
        "sky": {"command": "sky"},
        "new": {"url": "https://h/mcp?key=s3"},
        "off": {"command": "x", "disabled": True},
        "bad": {"command": 7},
    }
    path = write_config(tmp_path, servers)
    store = fill(path)
    state = UpstreamState(
        os.getpid(), time.time(), "sky", "retrying", time.time(), None, 0, 2, 0, "exited with 1", ()
    )  # fmt: skip
    store.serving.save_state(state)
    store.close()
    return path


@requirement("manage:list")
def test_every_server_has_its_state(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "--json", "--config", str(config)]) == 1
    told = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert {name: each["condition"] for name, each in told.items()} == {
        "calc": "idle", "sky": "failing", "new": "new", "off": "disabled", "bad": "wrong",
    }  # fmt: skip
    assert (told["calc"]["tools"], told["calc"]["tokens"], told["calc"]["runs"]) == (1, 40, "calc --token [token]")
    assert told["sky"]["error"] == "exited with 1" and told["new"]["runs"] == "https://h/mcp?key=[key]"
    assert "expected a string" in told["bad"]["error"]


def test_a_server_that_lists_no_tools_is_not_said_to_be_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write_config(tmp_path, {"jira": echo("--tools", "0")}))
    assert run(["doctor", "--config", path]) == 0
    advice = 'its documentation may say what it needs first, such as a key in "env" of its entry'
    assert f"  jira: it works and lists no tools [FT324]\n    -> {advice}\n" in capsys.readouterr().out
    assert run(["list", "--config", path]) == 0
    out = capsys.readouterr().out
    assert re.search(r"jira +empty", out) and f"jira lists no tools: {advice}\n" in out and "not known yet" not in out


def test_fewer_tools_in_a_running_proxy_than_doctor_has_seen_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write_config(tmp_path, {"asks": echo("--tools", "3")}))
    run(["doctor", "--config", path])
    state = UpstreamState(os.getpid(), time.time(), "asks", "ready", time.time(), "legacy", 2, 0, 0, "", ())
    with open_store(load(Path(path)).storage) as store:
        store.serving.save_state(state)
    capsys.readouterr()
    run(["list", "--config", path])
    said = "asks: clients that run now get 2 of its 3 tools; the others depend on what a client can do, or came with"
    assert said in " ".join(capsys.readouterr().out.split())


def test_an_estimate_is_marked_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    config = load(path)
    with open_store(config.storage) as store:
        record = UpstreamRecord("calc", fingerprint(config.servers["calc"]), "legacy", "", "", '{"tools": {}}', 1.0)
        new = Tool(ToolId("calc__add"), "calc", "add", definition("add", "Adds."), "hash")
        finish(store.catalog.save_upstream(record, [new]))
    run(["list", "--config", str(path)])
    explained = "~: an estimate; a running proxy and foretool doctor count the tokens."
    out = capsys.readouterr().out
    assert re.search(r"calc +idle +1 +~\d+ ", out) and explained in out
    run(["tools", "--config", str(path)])
    assert explained in capsys.readouterr().out
    assert show_overview(path) == 0
    assert re.search(r"Their definitions take ~\d+ tokens; a client's first list takes ~\d+\.", capsys.readouterr().out)


def test_what_is_wrong_is_said_below(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "--config", str(config)]) == 1
    out = capsys.readouterr().out
    assert "sky: exited with 1" in out and "To see why sky fails: foretool doctor" in out
    assert "Tools not known yet: new" in out and "t0p" not in out and "s3" not in out


def test_an_empty_config_says_how_to_add(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, {})
    assert run(["list", "--config", str(path)]) == 0
    assert "foretool add NAME -- COMMAND" in capsys.readouterr().out
