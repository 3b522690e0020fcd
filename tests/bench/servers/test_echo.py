"""The stand-in upstream."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.clients import messages
from bench.servers import echo


def test_echo_answers_with_the_arguments_it_was_given(tmp_path: Path) -> None:
    tools = [{"name": "fetch", "inputSchema": {"type": "object"}}]
    (tmp_path / "tools.json").write_text(json.dumps({"tools": tools}))
    params = {"name": "fetch", "arguments": {"text": "x"}}
    asked = [("tools/list", {}), ("tools/call", params), ("nothing", {})]
    requests = [
        {"jsonrpc": "2.0", "id": id, "method": method, "params": params} for id, (method, params) in enumerate(asked)
    ]
    command = [sys.executable, "-S", "-E", echo.__file__, "--name", "web", "--tools", str(tmp_path / "tools.json")]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    output = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=30).stdout
    listed, called, unknown = map(json.loads, output.splitlines())
    assert listed["result"]["tools"] == tools
    assert json.loads(messages.said(called["result"])) == {"server": "web", "tool": "fetch", "arguments": {"text": "x"}}
    assert unknown["error"]["code"] == -32601


def test_a_list_that_changes_is_announced_with_other_words() -> None:
    command = [sys.executable, "-S", "-E", echo.__file__, "--name", "web", "--count", "3", "--change-s", "0.05"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        announced = json.loads(process.stdout.readline())
        process.stdin.write('{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\n')
        process.stdin.flush()
        listed = next(each for each in map(json.loads, process.stdout) if "result" in each)["result"]["tools"]
        process.stdin.close()
    assert announced["method"] == "notifications/tools/list_changed"
    assert len(listed) == 3
    assert any("(version" in tool["description"] for tool in listed)


def test_a_server_that_fails_says_so_as_a_result() -> None:
    request = {"method": "tools/call", "params": {"name": "alpha"}}
    expected = {"result": {"content": [{"type": "text", "text": "not signed in"}], "isError": True}}
    assert echo.answer("box", [], request, "not signed in") == expected
