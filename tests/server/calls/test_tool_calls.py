"""What `call_tool` says of wrong arguments. Whole conversations: tests/scenarios/test_bridge.py."""

from __future__ import annotations

import pytest
from fakes import FakeUpstream, proxy_over, said, tool

pytestmark = pytest.mark.anyio


async def test_an_answer_about_wrong_arguments_is_short_however_large_the_schema_is() -> None:
    deep = {f"p{n}": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "x" * 200} for n in range(20)}
    wide = {f"field_{n}": {"type": "object", "properties": deep, "description": "y" * 200} for n in range(30)}
    async with proxy_over(FakeUpstream("u", [tool("t", properties={"a": {"type": "number"}, **wide})])) as stage:
        await stage.client.initialize()
        result = await stage.client.call_tool("call_tool_write", {"name": "u__t", "arguments": {"a": "one"}})
    assert '"a": expected a number, found "one"' in said(result)
    assert len(said(result)) < 4300
