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
