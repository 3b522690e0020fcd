"""What `call_tool` says of wrong arguments. Whole conversations: tests/scenarios/test_bridge.py."""

from __future__ import annotations

import pytest
from fakes import FakeUpstream, proxy_over, said, tool

from foretool.server.calls.bridged_calls import MOST_SCHEMA

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("length", [100, MOST_SCHEMA])
async def test_a_schema_that_is_too_long_to_quote_is_trimmed_and_the_answer_says_where_it_is_whole(length: int) -> None:
    upstream = FakeUpstream("u", [tool("t", properties={"a": {"type": "number", "description": "x" * length}})])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        result = await stage.client.call_tool("call_tool_write", {"name": "u__t", "arguments": {"a": "one"}})
    assert result["isError"] is True
    assert ("x" * length in said(result)) == (length < MOST_SCHEMA)
    assert ('discover_tools(names=["u__t"])' in said(result)) == (length == MOST_SCHEMA)
    assert '"a":{"type":"number"' in said(result)


async def test_an_answer_about_wrong_arguments_is_short_however_large_the_schema_is() -> None:
    deep = {f"p{n}": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "x" * 200} for n in range(20)}
    wide = {f"field_{n}": {"type": "object", "properties": deep, "description": "y" * 200} for n in range(30)}
    async with proxy_over(FakeUpstream("u", [tool("t", properties={"a": {"type": "number"}, **wide})])) as stage:
        await stage.client.initialize()
        result = await stage.client.call_tool("call_tool_write", {"name": "u__t", "arguments": {"a": "one"}})
    assert '"a": expected a number, found "one"' in said(result)
    assert len(said(result)) < MOST_SCHEMA + 300
