"""Clients of other projects before the proxy: MCP Inspector's command line (both eras) and mcporter.

The list is empty but for the two tools of ours, so every tool of the upstream must be found, and called while hidden.
Inspector itself refuses to call what it has not listed, and takes `call_tool`; mcporter calls by name.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from listening import over_http
from node import environment, package
from requirements import requirement
from served import write_config

ECHO = {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "support" / "echo_upstream.py")]}
PATIENCE_S = 120
TOOL = "echo__weather"

pytestmark = [pytest.mark.clients, pytest.mark.real, pytest.mark.timeout(900)]

Json = dict[str, Any]
Run = Callable[..., Json]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(
        tmp_path, {"echo": ECHO}, list_tokens=0, list_whole=True, list_fill=True, insecure_loopback=True
    )


@pytest.fixture(params=["stdio", "http"])
def entry(request: pytest.FixtureRequest, config: Path) -> Iterator[Json]:
    """The proxy as clients write it into their config."""
    if request.param == "stdio":
        yield {"command": sys.executable, "args": ["-m", "foretool", "serve", "--config", str(config)]}
        return
    with over_http(config) as url:
        yield {"type": "streamable-http", "url": url}


def printed(command: list[str], home: Path) -> Json:
    """What a program prints, as JSON; `home` is where it may write."""
    chosen = environment() | {"HOME": str(home), "MCP_INSPECTOR_SECRET_STORE": "memory", "XDG_CONFIG_HOME": str(home)}
    done = subprocess.run(command, env=chosen, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result: Json = json.loads(done.stdout)
    return result


@pytest.fixture
def inspector(tmp_path: Path, entry: Json, era: str) -> Run:
    """One command of MCP Inspector."""
    path = tmp_path / "inspector.json"
    path.write_text(json.dumps({"mcpServers": {"proxy": {**entry, "protocolEra": era}}}))
    program = package("@modelcontextprotocol/inspector", "2.12.0", "mcp-inspector")
    base = [program, "--cli", "--config", str(path), "--server", "proxy", "--format", "json", "--method"]

    def run(method: str, *options: str) -> Json:
        result: Json = printed([*base, method, *options], tmp_path)["result"]
        return result

    return run


@pytest.fixture
def mcporter(tmp_path: Path, entry: Json) -> Run:
    path = tmp_path / "mcporter.json"
    url = {"baseUrl": entry["url"]} if "url" in entry else entry
    path.write_text(json.dumps({"mcpServers": {"proxy": url}, "imports": []}))
    program = package("mcporter", "0.12.3", "mcporter")
    return lambda *options: printed([program, "--config", str(path), *options], tmp_path)


def rows(config: Path, question: str) -> list[Any]:
    """What the store answers."""
    with closing(sqlite3.connect(config.with_name("store.sqlite3"))) as store:
        return [row[0] for row in store.execute(question)]


def call(tool: str, /, **arguments: Any) -> list[str]:
    pairs = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in arguments.items()]
    return ["tools/call", "--tool-name", tool, *(part for pair in pairs for part in ("--tool-arg", pair))]


@requirement("clients:inspector")
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_inspector_lists_discovers_and_calls_what_it_found(inspector: Run, config: Path, era: str) -> None:
    listed = [tool["name"] for tool in inspector("tools/list")["tools"]]
    assert listed == ["call_tool", "call_tool_write", "discover_tools"]
    found = inspector(*call("discover_tools", task="forecast of the weather", structured="true"))["structuredContent"]
    assert found["matches"][0]["name"] == TOOL
    answer = inspector(*call("call_tool_write", name=TOOL, arguments={"text": "Oslo"}))
    assert json.loads(answer["content"][0]["text"]) == {"text": "Oslo"}
    assert set(rows(config, "select era from sessions")) == {era}
    assert rows(config, "select tool from misses where noticed in ('bridge', 'discovery')") == [TOOL]


@requirement("clients:mcporter")
def test_mcporter_lists_discovers_and_calls_hidden_tools_by_name_and_through_the_bridge(
    mcporter: Run, config: Path
) -> None:
    listed = mcporter("list", "proxy", "--json")
    assert [tool["name"] for tool in listed["tools"]] == ["call_tool", "call_tool_write", "discover_tools"]
    found = mcporter("call", "proxy.discover_tools", "task=forecast of the weather", "structured=true")
    assert found["matches"][0]["name"] == TOOL
    assert mcporter("call", f"proxy.{TOOL}", "text=Oslo") == {"text": "Oslo"}
    bridged = {"name": "echo__echo", "arguments": {"text": "Rome"}}
    assert mcporter("call", "proxy.call_tool_write", "--args", json.dumps(bridged)) == {"text": "Rome"}
    assert sorted(rows(config, "select tool from misses")) == ["echo__echo", TOOL]
