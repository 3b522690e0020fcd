"""The stub of the model, and what is read from what a client sent it. The program itself runs by hand alone."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from bench.proxy import claude_code
from bench.proxy.claude_code import PREFIX, Model

TOOLS = [{"name": "Bash"}, {"name": f"{PREFIX}call_tool"}, {"name": f"{PREFIX}disk__zip_folder", "defer_loading": True}]


def test_the_model_follows_its_script_and_passes_the_handle_on() -> None:
    model = Model()
    answer = {"role": "user", "content": [{"type": "tool_result", "content": '{"handle":"' + "h" * 22 + '"}'}]}
    assert model.answer({"messages": []}) == [{"type": "text", "text": "a title"}]
    steps = [model.answer({"tools": TOOLS, "messages": [answer]})[0] for _ in range(4)]
    assert [step.get("name", step.get("text")) for step in steps] == [
        f"{PREFIX}discover_tools",
        f"{PREFIX}disk__zip_folder",
        f"{PREFIX}call_tool_write",
        "done",
    ]
    assert steps[2]["input"]["handle"] == "h" * 22
    assert len(model.requests) == 4


def test_an_answer_is_streamed_as_the_messages_api_does() -> None:
    with claude_code.serve_stub(Model()) as url:
        body = json.dumps({"model": "m", "stream": True, "tools": TOOLS, "messages": []}).encode()
        with urllib.request.urlopen(f"{url}/v1/messages?beta=true", body) as reply:
            said = reply.read().decode()
    names = [line.removeprefix("event: ") for line in said.splitlines() if line.startswith("event: ")]
    assert names == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert '"stop_reason": "tool_use"' in said


def test_a_request_tells_what_it_carried() -> None:
    called = {"type": "tool_use", "id": "1", "name": f"{PREFIX}disk__list_folder", "input": {}}
    messages = [
        {"role": "user", "content": f"deferred: {PREFIX}mail__send_letter"},
        {"role": "assistant", "content": [called]},
    ]
    assert claude_code.carried({"tools": TOOLS, "messages": messages}) == {
        "others": 1,
        "loaded": ["call_tool"],
        "deferred": ["disk__zip_folder"],
        "announced": ["mail__send_letter"],
    }


def test_the_config_has_every_tool_of_the_script(tmp_path: Path) -> None:
    written = json.loads(claude_code.write_config(tmp_path, "frozen").read_text())
    assert set(written["mcpServers"]) == {"disk", "mail"}
    assert written["foretool"]["policy"] == "frozen"
    for name in (claude_code.FOUND, claude_code.BRIDGED, claude_code.PINNED):
        server, tool = name.split("__")
        assert tool in claude_code.TOOLS[server]
