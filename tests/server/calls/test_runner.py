"""`tools/call` and its record. Whole conversations: tests/scenarios/test_misses.py and test_bridge.py."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import BOTH, Asked, FakeUpstream, proxy_over, said, text, tool
from requirements import requirement

pytestmark = pytest.mark.anyio


def answers(kind: str) -> Any:
    def script(asked: Asked) -> None:
        match kind:
            case "ok":
                asked.reply({"content": []})
            case "tool_error":
                asked.reply({"content": [], "isError": True})
            case "error":
                asked.fail(-1, "no")
            case "lost":
                asked.link.die()

    return script


@pytest.mark.parametrize("kind", ["ok", "tool_error", "error", "lost"])
@pytest.mark.parametrize("modern", [False, True])
async def test_each_outcome_is_recorded_once_with_its_duration(kind: str, modern: bool) -> None:
    upstream = FakeUpstream("calc", ["add"], BOTH)
    upstream.scripts["add"] = answers(kind)
    async with proxy_over(upstream) as stage:
        client = stage.client.modern() if modern else stage.client
        await client.reply(client.post("tools/call", {"name": "calc__add", "arguments": {"a": 1}}))
        (call,) = stage.calls()
    assert (call.outcome, call.sent, call.arguments) == (kind, True, '{"a":"number"}')
    assert 0 < call.took_ms < 5000


async def test_a_call_without_arguments_is_passed_on_without_them() -> None:
    upstream = FakeUpstream("calc", ["add"])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        assert said(await stage.client.call_tool("calc__add")) == "add"
    (asked,) = [each for each in upstream.requests if each.method == "tools/call"]
    assert asked.params == {"name": "add", "_meta": {"progressToken": asked.message.id}}


@requirement("call:task-declined")
async def test_other_members_of_a_call_and_its_meta_are_passed_on_but_not_that_it_is_a_task() -> None:
    upstream = FakeUpstream("calc", ["add"])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        params = {"name": "calc__add", "arguments": {}, "vendor": {"ttl": 1}}
        await stage.client.ask("tools/call", {**params, "task": {"ttl": 1}}, meta={"claudecode/toolUseId": "t1"})
    (asked,) = [each for each in upstream.requests if each.method == "tools/call"]
    meta = {"claudecode/toolUseId": "t1", "progressToken": asked.message.id}
    assert asked.params == {**params, "name": "add", "_meta": meta}


@requirement("call:misfit")
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("name", ["calc__add", "call_tool"])
async def test_an_answer_that_does_not_fit_its_output_schema_is_passed_on_with_a_line_that_says_so(
    name: str, modern: bool
) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    add = tool("add", outputSchema=schema, annotations={"readOnlyHint": True})
    upstream = FakeUpstream("calc", [add])
    params = {"name": "calc__add", "arguments": {}}
    if name == "call_tool":
        params = {"name": name, "arguments": params}
    line = (
        "foretool: the structured content of this answer does not fit the output schema of calc__add:"
        ' "sum": expected a whole number, found "many more". It is passed on as its server gave it.'
    )
    async with proxy_over(upstream) as stage:
        client = stage.client.modern() if modern else stage.client
        for content, said_of_it in (({"sum": "many\nmore"}, [line]), ({"sum": 3}, [])):
            upstream.results["add"] = text("4", structuredContent=content)
            result = await client.ask("tools/call", params)
            assert [block["text"] for block in result["content"]] == ["4", *said_of_it]
            assert result["structuredContent"] == content
        upstream.results["add"] = text("4", structuredContent={}, isError=True)
        assert len((await client.ask("tools/call", params))["content"]) == 1
