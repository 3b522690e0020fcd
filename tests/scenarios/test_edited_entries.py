"""What is known of a server, and what was saved, stay when its entry is edited."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from requirements import requirement
from served import Served, wait_until, write_config

from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.server.upstreams.memory import find_running
from foretool.storage.opening import open_store

ECHO = str(Path(__file__).parents[1] / "support" / "echo_upstream.py")


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """The config of somebody who has called a tool, and whose windows are closed."""
    entry = {"command": sys.executable, "args": [ECHO]}
    path = write_config(tmp_path, {"first": entry, "second": entry}, linger_s=0, policy="full")
    window = open_window(path)
    assert wait_until(lambda: any(name.startswith("first__") for name in window.list_tools()))
    with open_store(load(path).storage) as store:
        assert wait_until(lambda: store.costs.first_size() is not None)
    window.call("first__echo", {"text": "a"})
    close(path, window)
    return path


def open_window(path: Path) -> Served:
    window = Served(path, env={**os.environ, "FORETOOL_SOCKETS": str(path.parent / "run")})
    window.initialize()
    return window


def close(path: Path, window: Served) -> None:
    """Close a window, and wait until its proxy has ended."""
    window.leave()
    with open_store(load(path).storage) as store:
        assert wait_until(lambda: not find_running(store.serving.states()))


def link_program(folder: Path) -> Path:
    """Another path to the program of both servers."""
    other = folder / "bin" / Path(sys.executable).name
    other.parent.mkdir()
    other.symlink_to(sys.executable)
    return other


def read_saving(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, int]:
    """What was read, and what would have been read of all tools."""
    total = ask(capsys, "status", "--stats", "--config", str(path))["total"]
    return total["read_tokens"], total["full_tokens"]


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    told = json.loads(path.read_text())
    change(told["mcpServers"]["first"])
    path.write_text(json.dumps(told))


def ask(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    capsys.readouterr()
    run([*command, "--json"])
    return json.loads(capsys.readouterr().out)


def test_tools_stay_known_where_only_the_way_to_the_program_changes(
    used: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = ask(capsys, "list", "--config", str(used))
    saved = read_saving(used, capsys)
    records = ask(capsys, "status", "--config", str(used))["contents"]["tools"]
    assert saved[1] > 0 and {each["condition"] for each in before} == {"idle"}
    other = link_program(used.parent)
    for command in (str(other), other.name):
        edit(used, lambda entry, command=command: entry.update(command=command, env={"LEVEL": "1"}))
        after = ask(capsys, "list", "--config", str(used))
        assert [(each["condition"], each["tools"]) for each in after] == [
            (each["condition"], each["tools"]) for each in before
        ]
        assert read_saving(used, capsys) == saved
    edit(used, lambda entry: entry.update(command=str(other)))
    window = open_window(used)
    assert any(name.startswith("first__") for name in window.list_tools()), "the first list has them"
    window.call("first__echo", {"text": "b"})
    close(used, window)
    assert ask(capsys, "status", "--config", str(used))["contents"]["tools"] == records, "each tool counts once"


@requirement("trust:approve:new", "trust:pin:launch")
def test_where_the_first_sight_is_reviewed_nothing_of_another_program_of_that_name_is_served(
    used: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(used, lambda entry: entry.update(trust="review"))
    window = open_window(used)
    assert wait_until(lambda: any(name.startswith("second__") for name in window.list_tools()))
    assert any(name.startswith("first__") for name in window.list_tools()), "it was approved before"
    close(used, window)
    other = link_program(used.parent)
    edit(used, lambda entry: entry.update(command=str(other)))
    window = open_window(used)
    assert wait_until(lambda: any(name.startswith("second__") for name in window.list_tools()))
    assert not any(name.startswith("first__") for name in window.list_tools())
    assert "error" in window.reply(window.post("tools/call", {"name": "first__echo", "arguments": {"text": "b"}}))
    close(used, window)
    assert "first" not in {each["name"] for each in ask(capsys, "list", "--config", str(used)) if each["tools"]}


def test_an_entry_that_runs_something_else_was_edited_and_not_never_started(
    used: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = read_saving(used, capsys)
    edit(used, lambda entry: entry.update(args=[ECHO, "--other"]))
    first, second = ask(capsys, "list", "--config", str(used))
    assert (first["condition"], first["tools"], second["condition"]) == ("edited", 0, "idle")
    assert read_saving(used, capsys) == saved


def test_what_was_saved_stays_when_a_server_is_switched_off(used: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = read_saving(used, capsys)
    assert run(["disable", "second", "--config", str(used)]) == 0
    assert read_saving(used, capsys) == saved
