"""Attacks that want the loop: what one server defines or answers must not keep the others from answering."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from requirements import requirement
from served import Served, write_config

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[1] / "support"
ECHO = {"command": sys.executable, "args": [str(SUPPORT / "echo_upstream.py")]}


def attacking(*options: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SUPPORT / "attacking_upstream.py"), *options]}


def serve(tmp_path: Path, servings: list[Served], *options: str, **settings: Any) -> Served:
    """A proxy in front of `good`, which echoes, and `evil`, which attacks."""
    served = Served(write_config(tmp_path, {"good": ECHO, "evil": attacking(*options)}, **settings))
    servings.append(served)
    served.initialize()
    served.list_tools()
    return served


def bridged(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": "call_tool_write", "arguments": {"name": name, "arguments": arguments}}


@requirement("trust:limits:validation")
def test_a_schema_that_takes_minutes_holds_up_neither_another_server_nor_its_own_call(
    tmp_path: Path, servings: list[Served]
) -> None:
    served = serve(tmp_path, servings, "schema-bomb", "--size", "30", cold_list_s=30, bridges="one")
    bombs = [served.post("tools/call", bridged(f"evil__bomb_{number}", a="x")) for number in range(6)]
    calls = [served.post("tools/call", bridged("good__echo", text=str(number))) for number in range(20)]
    for call in calls:
        assert served.reply(call)["result"]["content"][0]["text"].startswith('{"text": ')
    for bomb in bombs:
        assert served.reply(bomb)["result"]["content"][0]["text"] == "done"
