"""`tools/call` and its record. Whole conversations: tests/scenarios/test_misses.py and test_bridge.py."""

from __future__ import annotations

import pytest
from fakes import FakeUpstream, proxy_over, text, tool
from requirements import requirement

pytestmark = pytest.mark.anyio


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
