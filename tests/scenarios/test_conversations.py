"""Several chats on one process: what comes with the handle of an answer belongs to that conversation alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes import FakeClient, FakeUpstream, Json, proxy_over, said, tool
from requirements import requirement

from foretool.storage.store import Store

pytestmark = pytest.mark.anyio


def office() -> tuple[FakeUpstream, FakeUpstream]:
    mail = FakeUpstream("mail", [tool("send", "Send a letter"), tool("read", "Read a letter")])
    disk = FakeUpstream("disk", [tool("zip", "Compress a folder"), tool("list", "List a folder")])
    return mail, disk


async def bridged(client: FakeClient, name: str, handle: str = "") -> Json:
    arguments: Json = {"name": name, "arguments": {}} | ({"handle": handle} if handle else {})
    return await client.call_tool("call_tool_write", arguments)


def handles(store: Store) -> dict[str, list[str]]:
    """Tools called, by handle."""
    found: dict[str, list[str]] = {}
    for call in store.calls.recent(-1)[::-1]:
        found.setdefault(call.handle, []).append(call.tool)
    return found


@requirement("conversation:handle")
@pytest.mark.parametrize("modern", [False, True])
async def test_an_answer_gives_out_a_handle_in_its_text_and_its_structure(modern: bool) -> None:
    async with proxy_over(*office(), policy="frozen") as stage:
        client = stage.client.modern() if modern else stage.client
        first = await client.call_tool("discover_tools", {"task": "send a letter", "structured": True})
        handle = first["structuredContent"]["handle"]
        assert f"\nhandle: {handle}" in said(first)
        again = await client.discover("compress a folder", handle=handle)
        other = await client.discover("compress a folder")
    assert again["handle"] == handle
    assert other["handle"] != handle


@requirement("conversation:handle")
async def test_chats_that_interleave_on_one_process_have_their_own_history_misses_and_records() -> None:
    async with proxy_over(*office(), policy="frozen", list_tokens=0) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        one = (await client.discover("send a letter"))["handle"]
        other = (await client.discover("compress a folder"))["handle"]
        for _ in range(2):
            await bridged(client, "mail__send", one)
            await bridged(client, "disk__zip", other)
        await bridged(client, "mail__send", other)
        (session,) = next(iter(stage.app.clients)).sessions()
        chats = [list(session.conversations.of(handle).history) for handle in (one, other, "")]
        tasks = {each.handle: each.task for each in stage.store.discoveries.recent(-1)}
        misses = [(miss.tool, miss.query, miss.history) for miss in stage.misses()]
        recorded = handles(stage.store)
    assert chats == [["mail__send"] * 2, ["disk__zip", "disk__zip", "mail__send"], []]
    assert recorded == {one: ["mail__send"] * 2, other: ["disk__zip", "disk__zip", "mail__send"]}
    assert tasks == {one: "send a letter", other: "compress a folder"}
    # What one chat was told of is not what the other knows: each misses the tool once.
    assert misses == [
        ("mail__send", "send a letter", ()),
        ("disk__zip", "compress a folder", ()),
        ("mail__send", "send a letter", ("disk__zip", "disk__zip")),
    ]


@requirement("conversation:handle")
async def test_a_client_that_passes_no_handle_on_is_one_conversation_as_ever() -> None:
    async with proxy_over(*office(), policy="frozen", list_tokens=0) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        await client.discover("send a letter")
        await client.call_tool("mail__send", {})
        await client.discover("compress a folder")
        await bridged(client, "disk__zip")
        (session,) = next(iter(stage.app.clients)).sessions()
        history = list(session.conversations.whole.history)
        found = [each.handle for each in stage.store.discoveries.recent(-1)]
        misses = [(miss.tool, miss.noticed, miss.query) for miss in stage.misses()]
        recorded = handles(stage.store)
    assert history == ["mail__send", "disk__zip"]
    assert found == ["", ""]
    assert recorded == {"": ["mail__send", "disk__zip"]}
    assert misses == [
        ("mail__send", "discovery", "send a letter"),
        ("disk__zip", "discovery", "compress a folder"),
    ]


@requirement("conversation:handle")
async def test_a_conversation_begins_with_what_was_done_before_its_handle_was_given_out() -> None:
    async with proxy_over(*office(), policy="frozen") as stage:
        client = stage.client
        await client.call_tool("mail__read", {})
        handle = (await client.discover("send a letter"))["handle"]
        await client.call_tool("disk__list", {})
        (session,) = next(iter(stage.app.clients)).sessions()
        assert list(session.conversations.of(handle).history) == ["mail__read"]


@requirement("conversation:handle")
@pytest.mark.parametrize("handle", ["", "mine", "x" * 23, "../../etc/passwd", None])
async def test_what_is_no_handle_of_ours_is_as_none(handle: Any) -> None:
    async with proxy_over(*office()) as stage:
        result = await stage.client.call_tool(
            "call_tool_write", {"name": "disk__zip", "arguments": {}, "handle": handle}
        )
        await stage.client.call_tool("discover_tools", {"task": "zip", "handle": handle}, id="d")
        recorded = handles(stage.store)
    assert said(result) == "zip"
    assert recorded == {"": ["disk__zip"]}


@requirement("conversation:handle")
async def test_a_handle_from_before_a_restart_is_told_apart_all_the_same() -> None:
    async with proxy_over(*office()) as stage:
        await bridged(stage.client, "disk__zip", "A" * 22)
        await bridged(stage.client, "mail__send", "B" * 22)
        recorded = handles(stage.store)
    assert recorded == {"A" * 22: ["disk__zip"], "B" * 22: ["mail__send"]}


@requirement("conversation:handle")
async def test_a_handle_means_nothing_to_another_client() -> None:
    async with proxy_over(*office(), policy="frozen") as stage:
        one, other = stage.client, stage.connect()
        await one.initialize()
        await other.initialize()
        handle = (await one.discover("send a letter"))["handle"]
        await bridged(one, "mail__send", handle)
        await bridged(other, "disk__zip", handle)
        first, second = (client.sessions()[0] for client in stage.app.clients)
        assert list(first.conversations.of(handle).history) == ["mail__send"]
        assert list(second.conversations.of(handle).history) == ["disk__zip"]


@requirement("conversation:handle", "trust:confirm:modern")
async def test_a_call_that_the_user_had_to_confirm_stays_in_its_conversation() -> None:
    wipe = tool("wipe", annotations={"destructiveHint": True})
    async with proxy_over(FakeUpstream("disk", [wipe]), confirm="destructive") as stage:
        client = stage.client.modern(capabilities={"elicitation": {}})
        params = {"name": "call_tool_write", "arguments": {"name": "disk__wipe", "arguments": {}, "handle": "A" * 22}}
        first = await client.ask("tools/call", params)
        (key,) = first["inputRequests"]
        answers = {"inputResponses": {key: {"action": "accept"}}, "requestState": first["requestState"]}
        await client.ask("tools/call", {**params, **answers})
        recorded = handles(stage.store)
    assert recorded == {"A" * 22: ["disk__wipe"]}


@requirement("conversation:handle")
async def test_many_chats_at_once_each_keep_their_own_calls() -> None:
    async with proxy_over(*office(), policy="frozen") as stage:
        client = stage.client
        await client.initialize()

        async def chat(number: int) -> str:
            handle: str = (await client.discover("send a letter"))["handle"]
            for _ in range(number):
                await bridged(client, "mail__send", handle)
            return handle

        given = await asyncio.gather(*(chat(number) for number in range(1, 9)))
        recorded = handles(stage.store)
    assert [len(recorded[handle]) for handle in given] == list(range(1, 9))


@requirement("discovery:once")
@pytest.mark.parametrize("modern", [False, True])
async def test_an_answer_is_text_alone_unless_a_program_asks_for_more(modern: bool) -> None:
    async with proxy_over(*office(), policy="frozen") as stage:
        client = stage.client.modern() if modern else stage.client
        listed = {each["name"]: each for each in (await client.ask("tools/list"))["tools"]}
        plain = await client.call_tool("discover_tools", {"task": "send a letter"})
        asked = await client.call_tool("discover_tools", {"task": "send a letter", "structured": True})
    assert "outputSchema" not in listed["discover_tools"]
    assert "structuredContent" not in plain
    names = [match["name"] for match in asked["structuredContent"]["matches"]]
    assert names and all(name in said(plain) for name in names)
