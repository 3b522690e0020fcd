"""The stub of the model in the four APIs, and the tap. The programs themselves run by hand alone."""

from __future__ import annotations

import io
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from bench.agents import tap
from bench.agents.dialects import Request
from bench.agents.model import DISCOVER, FOUND, Model, serve_stub
from bench.agents.programs import PROGRAMS, Place

NAME = f"foretool_{DISCOVER}"
REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/messages": {"stream": True, "tools": [{"name": NAME}], "messages": [{"role": "user", "content": "Do it."}]},
    "/v1/chat/completions": {
        "stream": True,
        "tools": [{"function": {"name": NAME}}],
        "messages": [{"role": "user", "content": "Do it."}],
    },
    "/v1/responses": {
        "stream": True,
        "tools": [{"type": "namespace", "name": "foretool", "tools": [{"name": NAME}]}],
        "input": [{"type": "message", "role": "user", "content": "Do it."}],
    },
    "/v1beta/models/m:streamGenerateContent?alt=sse": {
        "tools": [{"functionDeclarations": [{"name": NAME}]}],
        "contents": [{"parts": [{"text": "Do it."}]}],
    },
}


@pytest.mark.parametrize("path", REQUESTS)
def test_in_each_api_the_model_first_calls_the_search_of_the_agent_s_own_name_for_it(path: str) -> None:
    model = Model()
    with serve_stub(model) as url, urllib.request.urlopen(url + path, json.dumps(REQUESTS[path]).encode()) as reply:
        said = reply.read().decode()
    assert reply.headers["content-type"] == "text/event-stream"
    assert NAME in said and "compress a folder" in said
    assert [list(turn.request.tools) for turn in model.turns] == [[NAME]]
    assert model.turns[0].request.said.startswith("") and "Do it." in model.turns[0].request.said


def test_the_model_follows_its_script_and_passes_the_handle_on() -> None:
    model = Model()
    request = Request(tools={NAME: {}}, results=('{"handle":"' + "h" * 22 + '"}',))
    steps = [model.answer(request) for _ in range(4)]
    assert [getattr(step, "name", step) for step in steps] == [
        NAME,
        f"foretool_{FOUND}",
        "foretool_call_tool_write",
        "done",
    ]
    assert getattr(steps[2], "arguments", {})["handle"] == "h" * 22
    assert model.answer(Request()) == "a title"


def test_the_tap_takes_the_name_away_and_notes_every_message() -> None:
    noted: list[dict[str, Any]] = []
    hello = {"method": "initialize", "params": {"clientInfo": {"name": "famous", "version": "1"}}}
    listed = {"result": {"tools": [{"name": "a", "description": "long"}], "ttlMs": 9}}
    out = io.BytesIO()

    def change(message: dict[str, Any]) -> None:
        tap.rename(message, "somebody")
        tap.shorten_ttl(message, 1)

    source = io.BytesIO("".join(json.dumps(each) + "\n" for each in (hello, listed)).encode() + b"noise\n")
    tap.relay(source, out, lambda message: noted.append(tap.summary(message)), change)
    passed = [json.loads(line) for line in out.getvalue().splitlines()]
    assert passed[0]["params"]["clientInfo"]["name"] == "somebody"
    assert (passed[1]["result"]["ttlMs"], passed[1]["result"]["tools"][0]["description"]) == (1, "long")
    assert noted[1]["result"]["tools"] == ["a"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_agent_is_told_of_the_stub_and_of_foretool(name: str, tmp_path: Path) -> None:
    start = PROGRAMS[name](Place(tmp_path, "http://127.0.0.1:1", ["run-foretool", "serve"]))
    written = "".join(each.read_text("utf-8") for each in tmp_path.rglob("*") if each.is_file())
    told = written + json.dumps([*start.arguments, *start.env.values()])
    assert "http://127.0.0.1:1" in told and "run-foretool" in told
