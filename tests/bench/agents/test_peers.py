"""A peer as an arm, with a fake one: its config, its list as it changes, and its calls as those of the inner tool."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from bench.agents.decisions import Decision, Turn
from bench.agents.peers import PEERS, Peer, as_json, as_kdl, start_peer
from bench.agents.tasks import TASKS
from bench.agents.work import SEARCHES, judge
from bench.agents.world import World

pytestmark = pytest.mark.anyio
FILES = {"command": "node", "args": ["files.js", "/a folder"]}
MEMORY = {"command": "memory", "args": [], "env": {"MEMORY_FILE_PATH": "/m.jsonl"}}
FAKE = """
import json, os, sys
servers = json.load(open("mcp.json"))["mcpServers"]
found = []
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    params, result = asked["params"], {}
    if asked["method"] == "initialize":
        result = {"instructions": "Search first."}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": name} for name in ["search_tools", *found]]}
    elif params["name"] == "search_tools":
        found = [f"{name}_tool" for name in servers]
        say(method="notifications/tools/list_changed")
        result = {"content": [{"type": "text", "text": "found"}]}
    else:
        text = f"{params['name']} ran at home {os.environ['HOME'] == os.getcwd()}"
        result = {"content": [{"type": "text", "text": text}]}
    say(id=asked["id"], result=result)
"""


async def test_a_model_sees_what_a_peer_lists_and_what_a_search_adds(tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"files": FILES}, "foretool": {"storage": "x"}}), "utf-8")
    fake = Peer("fake", (sys.executable, "-c", FAKE), "mcp.json", as_json)
    async with start_peer(fake, tmp_path, config) as arm:
        assert arm.instructions == "Search first."
        assert [tool["name"] for tool in await arm.tools()] == ["search_tools"]
        assert await arm.call("search_tools", {"query": "write"}) == "found"
        assert [tool["name"] for tool in await arm.tools()] == ["search_tools", "files_tool"]
        assert await arm.call("files_tool", {}) == "files_tool ran at home True"
    assert json.loads((tmp_path / "home-fake" / "mcp.json").read_text("utf-8")) == {"mcpServers": {"files": FILES}}


def test_a_config_of_slop_mcp_names_command_arguments_and_variables() -> None:
    assert as_kdl({"files": FILES, "memory": MEMORY}) == (
        'mcp "files" {\n    type "stdio"\n    command "node"\n    args "files.js" "/a folder"\n}\n'
        'mcp "memory" {\n    type "stdio"\n    command "memory"\n'
        '    env {\n        MEMORY_FILE_PATH "/m.jsonl"\n    }\n}\n'
    )


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not on PATH")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write_file", {}),
        ("call_tool", {"name": "files_write_file"}),
        ("call_backend_tool", {"tool_name": "write_file"}),
        ("execute_tool", {"mcp_name": "files", "tool_name": "write_file"}),
    ],
)
def test_a_call_through_a_peer_counts_as_one_of_the_tool_that_it_runs(
    tmp_path: Path, tool: str, arguments: dict[str, str]
) -> None:
    task = next(task for task in TASKS if task.name == "write-file")
    world = World(tmp_path)
    world.reset()
    look = Turn(Decision("get_tool_schema", {"tool_name": "write_file"}), "{}")
    assert judge(task, world, None, [look, Turn(Decision(tool, arguments), "done")], None) == (False, 1.0, 0)
    unknown = Turn(Decision(tool, arguments), "Error calling tool 'call_tool': Unknown tool: 'write_file'")
    assert judge(task, world, None, [unknown], None) == (False, 0.0, 1)
    other = Turn(Decision("execute_tool", {"mcp_name": "github", "tool_name": "write_file"}), "done")
    assert judge(task, world, None, [other], None) == (False, 0.0, 1)


def test_every_peer_has_a_config_and_a_search() -> None:
    assert "search_tools" in SEARCHES
    for name, peer in PEERS.items():
        assert peer.name == name
        assert "files.js" in peer.write({"files": FILES})
