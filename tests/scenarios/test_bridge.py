"""`call_tool`: checks arguments, asks before it destroys, and never calls itself."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import Failed, FakeUpstream, proxy_over, said, tool
from requirements import requirement

from foretool.server.protocol import jsonrpc

pytestmark = pytest.mark.anyio

WIPE = tool("wipe", "Deletes everything", annotations={"destructiveHint": True})
ADD = tool("add", "Adds", {"a": {"type": "number"}}, annotations={"destructiveHint": False})
ADD["inputSchema"]["required"] = ["a"]


def disk() -> FakeUpstream:
    return FakeUpstream("disk", [WIPE, ADD])


def through(name: str, arguments: Any = None) -> dict[str, Any]:
    return {"name": name} if arguments is None else {"name": name, "arguments": arguments}


@requirement("bridge:arguments")
@pytest.mark.parametrize("arguments", [{}, {"a": "one"}, None, "text", [1]])
async def test_arguments_that_do_not_fit_come_back_with_the_schema_and_are_not_sent(arguments: Any) -> None:
    upstream = disk()
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        result = await stage.client.call_tool("call_tool", through("disk__add", arguments))
    assert result["isError"] is True
    assert '"required":["a"]' in said(result).replace(" ", "")
    assert upstream.calls == []


@requirement("bridge:arguments")
async def test_arguments_that_fit_are_passed_on_and_so_is_what_no_schema_can_check() -> None:
    odd = {"name": "odd", "inputSchema": {"type": "object", "properties": {"x": {"type": "no such type"}}}}
    upstream = FakeUpstream("disk", [ADD, odd])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.call_tool("call_tool", through("disk__add", {"a": 1, "more": None}))
        await stage.client.call_tool("call_tool", through("disk__odd", {"x": 1}))
    assert upstream.calls == [("add", {"a": 1, "more": None}), ("odd", {"x": 1})]


@requirement("bridge:itself")
async def test_it_refuses_its_own_name_and_a_missing_one() -> None:
    async with proxy_over(disk()) as stage:
        await stage.client.initialize()
        with pytest.raises(Failed) as refused:
            await stage.client.call_tool("call_tool", through("call_tool", through("disk__add", {"a": 1})))
        assert refused.value.code == jsonrpc.INVALID_PARAMS
        for arguments in ({}, {"name": 5}, {"name": ""}):
            result = await stage.client.call_tool("call_tool", arguments)
            assert result["isError"] is True
            assert "say which tool to call" in result["content"][0]["text"]


@requirement("bridge:discover")
async def test_it_passes_discover_tools_on() -> None:
    async with proxy_over(disk()) as stage:
        await stage.client.initialize()
        result = await stage.client.call_tool("call_tool", through("discover_tools", {"task": "delete everything"}))
    assert result["structuredContent"]["matches"][0]["name"] == "disk__wipe"


@requirement("bridge:destructive:refused")
@pytest.mark.parametrize(("setting", "capabilities"), [("deny", {"elicitation": {}}), ("ask", {}), ("deny", {})])
async def test_a_destructive_tool_is_refused_with_the_way_out(setting: str, capabilities: dict[str, Any]) -> None:
    upstream = disk()
    async with proxy_over(upstream, bridge_destructive=setting) as stage:
        await stage.client.initialize(capabilities=capabilities)
        await stage.client.list_tools()
        result = await stage.client.call_tool("call_tool", through("disk__wipe", {}))
    assert result["isError"] is True
    assert "pin it" in said(result)
    assert upstream.calls == []


@requirement("bridge:destructive:asked")
@pytest.mark.parametrize(("action", "runs"), [("accept", True), ("decline", False), ("cancel", False)])
async def test_a_destructive_tool_runs_when_the_user_agrees(action: str, runs: bool) -> None:
    upstream = disk()
    async with proxy_over(upstream) as stage:
        stage.client.answers["elicitation/create"] = {"action": action, "content": {}}
        await stage.client.initialize(capabilities={"elicitation": {}})
        await stage.client.list_tools()
        result = await stage.client.call_tool("call_tool", through("disk__wipe", {}))
        (question,) = stage.client.questions
    assert "disk__wipe" in question["params"]["message"]
    assert upstream.calls == ([("wipe", {})] if runs else [])
    assert result.get("isError", False) is not runs


@requirement("bridge:destructive:asked")
async def test_a_nonsensical_answer_to_the_question_is_no_consent() -> None:
    upstream = disk()
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize(capabilities={"elicitation": {}})
        await client.list_tools()
        for nonsense in (5, None, [], {"action": 1}):
            call = client.post("tools/call", {"name": "call_tool", "arguments": through("disk__wipe", {})})
            await client.until(lambda: len(client.questions) > 0)
            client.respond(client.questions.pop(), nonsense)
            assert (await client.result(call))["isError"] is True
    assert upstream.calls == []


@requirement("bridge:destructive:asked-modern")
async def test_a_modern_client_is_asked_by_input_required() -> None:
    upstream = disk()
    async with proxy_over(upstream) as stage:
        client = stage.client.modern(capabilities={"elicitation": {}})
        await client.list_tools()
        first = await client.call_tool("call_tool", through("disk__wipe", {}))
        assert first["resultType"] == "input_required"
        ((key, request),) = first["inputRequests"].items()
        assert request["method"] == "elicitation/create"
        answers = {"inputResponses": {key: {"action": "accept", "content": {}}}, "requestState": first["requestState"]}
        again = {"name": "call_tool", "arguments": through("disk__wipe", {}), **answers}
        assert said(await client.ask("tools/call", again)) == "wipe"
    assert upstream.calls == [("wipe", {})]


@requirement("bridge:destructive:allowed")
async def test_a_destructive_tool_runs_when_it_is_allowed_or_listed_or_called_by_name() -> None:
    upstream = disk()
    async with proxy_over(upstream, bridge_destructive="allow") as stage:
        await stage.client.initialize()
        await stage.client.call_tool("call_tool", through("disk__wipe", {}))
    async with proxy_over(upstream, bridge_destructive="deny", pin=["disk__wipe"]) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await stage.client.call_tool("call_tool", through("disk__wipe", {}))
    async with proxy_over(upstream, bridge_destructive="deny") as stage:
        await stage.client.initialize()
        await stage.client.call_tool("disk__wipe", {})
    assert upstream.calls == [("wipe", {})] * 3


@requirement("bridge:honest")
async def test_its_own_annotations_do_not_claim_that_it_only_reads() -> None:
    async with proxy_over(disk()) as stage:
        listed = {each["name"]: each for each in (await stage.client.ask("tools/list"))["tools"]}
    assert listed["call_tool"]["annotations"]["readOnlyHint"] is False
    assert listed["discover_tools"]["annotations"]["readOnlyHint"] is True


@requirement("bridge:carries")
async def test_it_carries_progress_and_cancellation() -> None:
    upstream = disk()
    upstream.hold("add")
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize()
        params = {"name": "call_tool", "arguments": through("disk__add", {"a": 1})}
        call = client.post("tools/call", params, meta={"progressToken": "mine"})
        asked = await upstream.called("add")
        asked.progress(1, total=2)
        assert await client.heard("notifications/progress") == {"progressToken": "mine", "progress": 1, "total": 2}
        client.notify("notifications/cancelled", {"requestId": call, "reason": "no longer"})
        cancelled = await upstream.asked("notifications/cancelled")
    assert cancelled.params == {"requestId": asked.message.id, "reason": "no longer"}
