"""Parked requests and our own questions. Whole conversations: tests/scenarios/test_questions.py."""

from __future__ import annotations

import pytest
from fakes import Asked, FakeUpstream, proxy_over, tool
from requirements import requirement

from foretool.server.methods import server_requests

pytestmark = pytest.mark.anyio

ELICITS = {"elicitation": {}}


def asks() -> FakeUpstream:
    upstream = FakeUpstream("calc", ["ask"])

    def script(asked: Asked) -> None:
        asked.link.deliver(b'{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"?"}}')

    upstream.scripts["ask"] = script
    return upstream


@requirement("question:parked-expired")
async def test_a_parked_call_nobody_comes_back_for_is_cancelled_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_requests, "PARKED_S", -1.0)
    upstream = asks()
    async with proxy_over(upstream) as stage:
        client = stage.client.modern(capabilities=ELICITS)
        first = await client.call_tool("calc__ask", {})
        assert first["resultType"] == "input_required"
        stage.app.tick()
        cancelled = await upstream.asked("notifications/cancelled")
        again = {"name": "calc__ask", "inputResponses": {}, "requestState": first["requestState"]}
        reply = await client.reply(client.post("tools/call", again))
    assert cancelled.params["requestId"] == (await upstream.called("ask")).message.id
    assert "error" in reply
    assert len(upstream.calls) == 1


@requirement("question:parked-limit")
async def test_only_so_many_calls_may_be_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_requests, "MOST_PARKED", 2)
    upstream = asks()
    async with proxy_over(upstream) as stage:
        client = stage.client.modern(capabilities=ELICITS)
        for _ in range(2):
            assert (await client.call_tool("calc__ask", {}))["resultType"] == "input_required"
        client.post("tools/call", {"name": "calc__ask", "arguments": {}})
        await upstream.called("ask", 3)
        await client.ask("tools/list")
        await client.ask("tools/list")
        assert len(stage.app.answering.server_requests._parked) == 2


@requirement("trust:confirm:modern")
async def test_an_answer_to_our_own_question_counts_once_and_for_its_client_alone() -> None:
    wipe = tool("wipe", annotations={"destructiveHint": True})
    upstream = FakeUpstream("disk", [wipe])
    params = {"name": "call_tool_write", "arguments": {"name": "disk__wipe", "arguments": {}}}
    async with proxy_over(upstream, confirm="destructive") as stage:
        client = stage.client.modern(capabilities=ELICITS)
        stranger = stage.connect().modern(capabilities=ELICITS)
        first = await client.ask("tools/call", params)
        (key,) = first["inputRequests"]
        answered = {
            **params,
            "inputResponses": {key: {"action": "accept"}},
            "requestState": first["requestState"],
        }
        refused = await stranger.reply(stranger.post("tools/call", answered))
        await client.ask("tools/call", answered)
        again = await client.reply(client.post("tools/call", answered))
    assert "error" in refused
    assert upstream.calls == [("wipe", {})]
    assert again.get("result", {}).get("resultType") == "input_required" or "error" in again
