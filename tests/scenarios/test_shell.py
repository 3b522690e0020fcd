"""A client that calls tools by name and never lists them, as `foretool call` does."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FakeUpstream, Stage, proxy_over, said, text, tool
from requirements import requirement

from foretool.server.clients.client import SHELL

pytestmark = pytest.mark.anyio

LONG = "A sentence of some words. " * 2000
ADD = tool("add", "Adds", {"a": {"type": "number"}})
ADD["inputSchema"]["required"] = ["a"]


async def begin(stage: Stage) -> None:
    await stage.client.initialize(capabilities={"experimental": {SHELL: {}}})


@requirement("shell:no-list")
async def test_no_call_is_a_miss_and_results_come_whole() -> None:
    upstream = FakeUpstream("disk", ["read"], results={"read": text(LONG)})
    async with proxy_over(upstream, result_tokens=100, policy="frozen", list_tokens=10) as stage:
        await begin(stage)
        assert said(await stage.client.call_tool("disk__read")) == LONG
        other = stage.connect()
        await other.initialize()
        await other.list_tools()
        assert said(await other.call_tool("disk__read")) != LONG
        first, second = stage.calls()
        assert (first.hidden, second.hidden) == (False, True)
        assert {each.session for each in stage.misses()} == {second.session}


@requirement("shell:no-list")
@pytest.mark.parametrize(("given", "sent"), [({"a": "12"}, [("add", {"a": 12})]), ({}, []), ({"a": "x"}, [])])
async def test_arguments_are_read_as_the_schema_says(given: Any, sent: Any) -> None:
    upstream = FakeUpstream("calc", [ADD])
    async with proxy_over(upstream) as stage:
        await begin(stage)
        result = await stage.client.call_tool("calc__add", given)
    assert upstream.calls == sent
    assert sent or ('"required":["a"]' in said(result) and result["isError"])


@requirement("shell:no-list")
async def test_a_server_that_a_shell_starts_is_promised_what_later_clients_can() -> None:
    upstream = FakeUpstream("calc", ["add"])
    async with proxy_over(upstream) as stage:
        await begin(stage)
        await stage.client.call_tool("calc__add")
        greeting = await upstream.asked("initialize")
    assert "sampling" in greeting.params["capabilities"]
