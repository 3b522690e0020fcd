from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import processes
from bench.clients import messages
from bench.proxy import soak
from bench.servers import echo


def test_what_the_system_says_of_this_process() -> None:
    rss, pss = processes.memory_mib(os.getpid())
    assert rss >= pss > 1
    assert processes.open_files(os.getpid()) >= 3
    assert processes.threads(os.getpid()) >= 1


def test_a_steady_process_has_no_slope_and_a_growing_one_has_its_rate() -> None:
    samples = [{"calls": calls, "rss_mib": 30 + calls / 1000, "open_files": 7} for calls in (0, 1000, 2000, 3000)]
    found = soak.growth(samples, 3000)
    assert found["rss_mib"] == {"warm": 31.0, "end": 33.0, "most": 33.0, "per_100000_calls": 100.0}
    assert found["open_files"]["per_100000_calls"] == 0


def test_spread() -> None:
    assert processes.spread([0.3, 0.1, 0.2]) == {"median": 0.2, "least": 0.1, "all": [0.3, 0.1, 0.2]}


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


def test_a_failed_call_is_no_answer() -> None:
    with pytest.raises(messages.Failed, match="gone"):
        messages.said({"content": [{"type": "text", "text": "gone"}], "isError": True})
    with pytest.raises(messages.Failed, match="no such tool"):
        messages.result_of({"id": 1, "error": {"code": -32602, "message": "no such tool"}})
