"""`growing`: what was discovered is appended in one batch, announced once, and the answer waits for the new list."""

from __future__ import annotations

import asyncio

import pytest
from fakes import LIST_CHANGED, FakeUpstream, proxy_over, tool
from requirements import requirement

pytestmark = pytest.mark.anyio


def files() -> FakeUpstream:
    return FakeUpstream(
        "files",
        [
            tool("zip_archive", "Compress a folder into an archive"),
            tool("archive_list", "List what an archive holds"),
            tool("read", "Read a text file"),
            tool("delete", "Remove a file for ever"),
        ],
    )


@requirement("list:growing:appends")
async def test_found_tools_are_appended_behind_what_stood_there() -> None:
    async with proxy_over(files(), policy="growing", pin=["files__read"]) as stage:
        client = stage.client
        await client.initialize()
        before = (await client.ask("tools/list"))["tools"]
        arguments = {"task": "compress an archive", "structured": True}
        question = client.post("tools/call", {"name": "discover_tools", "arguments": arguments})
        await client.heard(LIST_CHANGED)
        after = (await client.ask("tools/list"))["tools"]
        found = [match["name"] for match in (await client.result(question))["structuredContent"]["matches"]]
    assert after[: len(before)] == before
    assert [each["name"] for each in after[len(before) :]] == found
    assert client.count(LIST_CHANGED) == 1


@requirement("list:growing:appends")
async def test_a_second_discovery_appends_after_the_first() -> None:
    async with proxy_over(files(), policy="growing", hold_ms=1) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        await client.discover(names=["files__zip_archive"])
        first = await client.list_tools()
        await client.discover(names=["files__delete", "files__zip_archive", "files__archive_list"])
        second = await client.list_tools()
    assert first == ["call_tool", "call_tool_write", "discover_tools", "files__zip_archive"]
    assert second == [*first, "files__delete", "files__archive_list"]


@requirement("list:growing:appends")
async def test_what_is_listed_already_is_not_announced_again() -> None:
    async with proxy_over(files(), policy="growing", hold_ms=1) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        await client.discover(names=["files__read"])
        await client.discover(names=["files__read"])
    assert client.count(LIST_CHANGED) == 1


@requirement("list:growing:hold")
async def test_the_answer_waits_until_the_client_has_listed_again() -> None:
    async with proxy_over(files(), policy="growing", hold_ms=60_000) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        question = client.post("tools/call", {"name": "discover_tools", "arguments": {"names": ["files__read"]}})
        await client.heard(LIST_CHANGED)
        # Only its own second listing lets the answer go.
        listing = client.post("tools/list")
        await client.reply(listing)
        assert question not in client._raw
        await client.reply(question)
    order = [message["id"] for message in client.messages if message.get("id") in (question, listing)]
    assert order == [listing, question]


@requirement("list:growing:hold")
async def test_the_answer_waits_no_longer_than_hold_ms() -> None:
    async with proxy_over(files(), policy="growing", hold_ms=400) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        loop = asyncio.get_running_loop()
        asked = loop.time()
        await client.discover(names=["files__read"])
        waited = loop.time() - asked
    assert 0.39 < waited < 0.5


@requirement("list:growing:budget")
async def test_it_does_not_grow_beyond_the_budget() -> None:
    async with proxy_over(files(), policy="growing", list_tokens=1, hold_ms=1) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        answer = await client.discover(names=["files__read"])
        names = await client.list_tools()
    assert [match["name"] for match in answer["matches"]] == ["files__read"]
    assert names == ["call_tool", "call_tool_write", "discover_tools"]
    assert client.count(LIST_CHANGED) == 0


@requirement("list:growing:session")
async def test_another_client_does_not_see_the_growth() -> None:
    async with proxy_over(files(), policy="growing", hold_ms=1) as stage:
        one, other = stage.client, stage.connect()
        await one.initialize()
        await other.initialize()
        await one.list_tools()
        await other.list_tools()
        await one.discover(names=["files__read"])
        assert "files__read" in await one.list_tools()
        assert "files__read" not in await other.list_tools()
    assert other.count(LIST_CHANGED) == 0


@requirement("list:growing:record")
async def test_the_grown_list_is_on_record_and_what_had_to_be_discovered_is_one_miss() -> None:
    async with proxy_over(files(), policy="growing", hold_ms=1) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        await client.discover(names=["files__read"])
        await client.list_tools()
        await client.call_tool("files__read", {})
        await client.call_tool("files__read", {})
        session = stage.store.sessions.recent()[0].key
        exposures = stage.store.sessions.exposures(session)
        assert [(each.reason, each.tools) for each in exposures] == [
            ("list", ("call_tool", "call_tool_write", "discover_tools")),
            ("growth", ("call_tool", "call_tool_write", "discover_tools", "files__read")),
        ]
        assert [(each.tool, each.noticed, each.recovered, each.turns) for each in stage.misses()] == [
            ("files__read", "discovery", "discovered", 1)
        ]
        assert [each.hidden for each in stage.calls()] == [False, False]


@requirement("list:growing:cancel")
async def test_a_held_answer_that_is_cancelled_is_not_sent() -> None:
    async with proxy_over(files(), policy="growing", hold_ms=400) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        question = client.post("tools/call", {"name": "discover_tools", "arguments": {"names": ["files__read"]}})
        await client.heard(LIST_CHANGED)
        client.notify("notifications/cancelled", {"requestId": question})
        await client.ask("ping")
        await asyncio.sleep(1)  # of the loop's own time: past the end of the hold
        assert question not in client._raw
