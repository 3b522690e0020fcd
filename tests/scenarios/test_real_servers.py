"""Servers from the registries behind a real `foretool serve`: installed once, each in an environment of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from requirements import requirement
from served import Served, write_config

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.timeout(600)]

DEMO = Path(__file__).parents[2] / "demo" / "servers.py"


def demo_servers() -> ModuleType:
    """The module that installs the servers of the demo; tests use the same ones."""
    spec = importlib.util.spec_from_file_location("demo_servers", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def installed() -> dict[str, dict[str, Any]]:
    """Entries of `mcpServers` by name; a server that cannot be had is left out, with the reason under `why`."""
    module = demo_servers()
    entries: dict[str, dict[str, Any]] = {}
    for outcome in module.install_all():
        if isinstance(outcome, module.Installed):
            command, *arguments = (*outcome.command, *outcome.server.arguments)
            entries[outcome.server.name] = {"command": command, "args": arguments}
        else:
            entries[outcome.server.name] = {"why": outcome.reason}
    return entries


@pytest.fixture
def served(tmp_path: Path, installed: dict[str, dict[str, Any]], request: pytest.FixtureRequest) -> Iterator[Served]:
    """A proxy over the servers named in the test's parameter."""
    for name in request.param:
        if "why" in installed[name]:
            pytest.skip(f"{name}: {installed[name]['why']}")
    config = write_config(tmp_path, {name: installed[name] for name in request.param}, cold_list_s=60)
    serving = Served(config)
    serving.initialize()
    yield serving
    assert serving.leave() == 0


def structured(served: Served, task: str, **more: int) -> list[str]:
    arguments = {"task": task, "structured": True, **more}
    result = served.ask("tools/call", {"name": "discover_tools", "arguments": arguments})
    return [match["name"] for match in result["structuredContent"]["matches"]]


@requirement("real:python")
@pytest.mark.parametrize("served", [("time", "git", "calculator")], indirect=True)
def test_three_servers_from_pypi_are_searched_and_called(served: Served) -> None:
    assert served.list_tools() == ["call_tool", "call_tool_write", "discover_tools"]
    assert "time__get_current_time" in structured(served, "what time is it in Tokyo")
    now = json.loads(served.call("time__get_current_time", {"timezone": "Asia/Tokyo"}))
    assert now["timezone"] == "Asia/Tokyo"
    assert structured(served, "evaluate 3 * 7")[0] == "calculator__calculate"
    assert served.call("call_tool_write", {"name": "calculator__calculate", "arguments": {"expression": "3*7"}}) == "21"
    # Until the tools are embedded, words alone may say that nothing fits; who names a limit sees the nearest tools.
    assert "git__git_log" in structured(served, "show the history of commits", limit=5)[:3]
    assert "two commits" in served.call("git__git_show", {"repo_path": _repository(), "revision": "HEAD"})


@requirement("real:node")
@pytest.mark.parametrize("served", [("everything", "files")], indirect=True)
def test_two_servers_from_npm_are_searched_and_called(served: Served) -> None:
    assert served.list_tools() == ["call_tool", "call_tool_write", "discover_tools"]
    assert served.call("everything__echo", {"message": "hello"}) == "Echo: hello"
    assert "files__read_text_file" in structured(served, "read a text file")[:3]
    assert "repository" in served.call("files__read_text_file", {"path": f"{_repository()}/README.md"})
    assert served.ask("resources/list")["resources"]
    assert any(prompt["name"].startswith("everything__") for prompt in served.ask("prompts/list")["prompts"])


@requirement("result:structured")
def test_a_large_file_of_the_filesystem_server_is_read_in_parts(
    tmp_path: Path, installed: dict[str, dict[str, Any]]
) -> None:
    if "why" in installed["files"]:
        pytest.skip(f"files: {installed['files']['why']}")
    entry = {**installed["files"], "args": [*installed["files"]["args"][:-1], str(tmp_path)], "result_tokens": 3000}
    large = "".join(f"Line {number}: order {number * 7} has arrived.\n" for number in range(5_000))
    (tmp_path / "large.txt").write_text(large, encoding="utf-8")
    serving = Served(write_config(tmp_path, {"files": entry}, cold_list_s=60))
    serving.initialize()
    serving.list_tools()
    call = {"name": "files__read_text_file", "arguments": {"path": str(tmp_path / "large.txt")}}
    result = serving.ask("tools/call", {"name": "call_tool", "arguments": call})
    head, line, link = result["content"]
    assert result["structuredContent"] == {"content": f"{head['text']}\n\n{line['text']}"}
    assert head["text"] + serving.ask("resources/read", {"uri": link["uri"]})["contents"][0]["text"] == large
    text, said, parts = head["text"], line["text"], 1
    while "Next part" in said:
        more = json.loads(said[said.index("{") : said.rindex("]")])
        part, below = serving.ask("tools/call", {"name": "call_tool", "arguments": more})["content"]
        text, said, parts = text + part["text"], below["text"], parts + 1
    assert text == large
    assert parts > 10
    assert serving.leave() == 0


def _repository() -> str:
    return str(demo_servers().REPOSITORY)


@requirement("start:download")
@pytest.mark.skipif(shutil.which("npx") is None, reason="npx is not installed")
def test_npx_finishes_its_first_download_although_a_start_may_take_a_second(tmp_path: Path) -> None:
    package = "@modelcontextprotocol/server-memory"
    # What a machine may need to reach the registry at all.
    network = ["NODE_EXTRA_CA_CERTS", "SSL_CERT_*", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "npm_config_*"]
    config = write_config(tmp_path, {"memory": {"command": "npx", "args": ["-y", package], "inherit": network}})
    environ = {**os.environ, "HOME": str(tmp_path)}
    examined = [sys.executable, "-m", "foretool", "doctor", "--timeout", "1", "--config", str(config), "--json"]
    found = subprocess.run(examined, env=environ, stdout=subprocess.PIPE, check=False)
    assert [each["is_well"] for each in json.loads(found.stdout)["upstreams"]] == [True], found.stdout
    by_hand = subprocess.run(["npx", "-y", package], env=environ, stdin=subprocess.DEVNULL, check=False)
    assert by_hand.returncode == 0
