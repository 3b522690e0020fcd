"""What commands say of the next list is what the next window gets."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from served import Served, wait_until, write_config

from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.server.upstreams.memory import find_running
from foretool.storage.opening import open_store

ECHO = str(Path(__file__).parents[1] / "support" / "echo_upstream.py")
USED = [f"first__tool_{number}" for number in (33, 34, 35)]


def use(path: Path, *tools: str) -> list[str]:
    """Open a window, call tools and close it; return what it listed first."""
    with open_store(load(path).storage) as store:
        window = Served(path, env={**os.environ, "FORETOOL_SOCKETS": str(path.parent / "run")})
        window.initialize()
        listed = window.list_tools()
        assert wait_until(lambda: store.statistics().tools == 40)
        for tool in tools:
            window.call("call_tool_write", {"name": tool, "arguments": {"text": "a"}})
        window.leave()
        assert wait_until(lambda: not find_running(store.serving.states()))
    return listed


def ask(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    capsys.readouterr()
    run([*command, "--json"])
    return json.loads(capsys.readouterr().out)


def test_what_was_used_is_in_the_next_list_and_every_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"command": sys.executable, "args": [ECHO, "--tools", "40"]}
    path = write_config(tmp_path, {"first": entry}, linger_s=0, list_tokens=1200)
    config = ("--config", str(path))
    use(path)
    use(path, *USED)
    told = ask(capsys, "tools", *config)
    assert [row["name"] for row in told["tools"] if row["listed"]] == USED
    assert [ask(capsys, "misses", str(number), *config)["listed_now"] for number in (1, 2, 3)] == [True] * 3
    assert run(["search", "echo", "--tool", USED[0], *config]) == 0
    assert "the next list has it" in " ".join(capsys.readouterr().out.split())
    listed = use(path)
    assert [name for name in listed if name.startswith("first__")] == USED
    assert len(listed) == told["lists"][0]["tools"]
