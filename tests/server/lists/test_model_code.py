"""A client whose model writes code, which looks through all tools and calls them, gets all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from fakes import FakeUpstream, Stage, failing_store, proxy_over
from requirements import requirement

from foretool.server.lists.model_code import MOST_TOOLS, SESSIONS

TOOLS = 200
OURS = {"discover_tools", "call_tool", "call_tool_write"}
SETTINGS: dict[str, Any] = {"policy": "auto", "list_tokens": 800, "list_whole": True}


def meta(call: str) -> dict[str, Any]:
    """What Codex 0.171.0 writes into `_meta` of a call, as far as it matters."""
    return {"callId": call, "x-codex-turn-metadata": {"model": "m", "codex_version": "0.171.0"}}


CODE, MODEL = meta("exec-20b1de3f-4a07-4cb6-a1f4-7e3d2a6c7d0a"), meta("call_Yx1")


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    upstream = FakeUpstream("calc", [f"tool_{number}" for number in range(TOOLS)])
    store, _ = failing_store()
    async with proxy_over(upstream, store=store, **SETTINGS) as stage:
        yield stage


async def converse(stage: Stage, *calls: dict[str, Any], version: str = "1") -> int:
    """The number of tools that a new session lists; it then calls one with each `_meta`."""
    client = stage.connect()
    await client.initialize("codex-mcp-client", version)
    listed = await client.list_tools()
    assert {*listed} >= OURS
    for each in calls:
        await client.call_tool("call_tool_write", {"name": "calc__tool_7", "arguments": {}}, meta=each)
    return len(listed)


@requirement("list:model-code")
@pytest.mark.anyio
async def test_all_tools_are_listed_to_a_client_whose_calls_came_from_code_of_its_model(stage: Stage) -> None:
    assert await converse(stage, CODE) == len(OURS)
    assert await converse(stage, CODE, version="2") == TOOLS + len(OURS)
    (record,) = [each for each in stage.store.clients.all() if each.version == "2"]
    assert record.code_sessions == SESSIONS


@requirement("list:model-code")
@pytest.mark.anyio
async def test_a_call_that_the_model_makes_itself_ends_it(stage: Stage) -> None:
    await converse(stage, CODE)
    assert await converse(stage, MODEL) == TOOLS + len(OURS)
    assert await converse(stage) == len(OURS)


@requirement("list:model-code")
@pytest.mark.anyio
async def test_sessions_that_call_nothing_end_it_as_their_model_may_have_no_room_for_all_tools(stage: Stage) -> None:
    await converse(stage, CODE)
    for _ in range(SESSIONS):
        assert await converse(stage) == TOOLS + len(OURS)
    assert await converse(stage) == len(OURS)


@pytest.mark.anyio
@pytest.mark.parametrize("said", [{}, {"callId": "exec-1"}, {"x-codex-turn-metadata": {}}, {**CODE, "callId": 7}])
async def test_a_client_that_does_not_say_who_calls_is_treated_as_before(stage: Stage, said: dict[str, Any]) -> None:
    await converse(stage, said)
    assert await converse(stage) == len(OURS)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tools", "settings"),
    [
        (MOST_TOOLS + 1, {**SETTINGS, "max_tools": MOST_TOOLS + 1}),
        (TOOLS, {**SETTINGS, "policy": "frozen"}),
        (TOOLS, {**SETTINGS, "list_whole": False}),
    ],
)
async def test_neither_too_many_tools_nor_what_the_user_set_otherwise(tools: int, settings: dict[str, Any]) -> None:
    upstream = FakeUpstream("calc", [f"tool_{number}" for number in range(tools)])
    store, _ = failing_store()
    async with proxy_over(upstream, store=store, **settings) as stage:
        await converse(stage, CODE)
        assert await converse(stage, CODE) == len(OURS)
