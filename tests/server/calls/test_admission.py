"""What a refused call leaves behind. Whole attacks: tests/attacks/test_policy.py."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import Failed, FakeUpstream, Stage, proxy_over, said, tool
from requirements import requirement

from foretool.storage.episodes import read_episodes

pytestmark = pytest.mark.anyio

WIPE = tool("wipe", "Deletes everything", {"path": {"type": "string"}}, annotations={"destructiveHint": True})


def disk(**entry: Any) -> FakeUpstream:
    return FakeUpstream("disk", [WIPE, tool("read", "Reads a file", annotations={"readOnlyHint": True})], entry=entry)


async def refused_call(stage: Stage, name: str = "disk__wipe") -> str:
    with pytest.raises(Failed) as refused:
        await stage.client.call_tool(name, {"path": "/tmp/x"})
    return refused.value.message


@requirement("trust:policy:on-record")
async def test_a_refusal_is_a_call_that_was_not_sent_and_a_miss_that_names_the_change() -> None:
    upstream = disk(deny=["wipe"])
    async with proxy_over(upstream, record="full") as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        assert await refused_call(stage) == (
            'disk__wipe was not run: "wipe" in "deny" of server \'disk\' refuses it; only the user can change that'
        )
        answer = await stage.client.call_tool("call_tool", {"name": "disk__wipe", "arguments": {"path": "/tmp/x"}})
        first, second = stage.calls()
        (miss,) = stage.misses()
    assert answer["isError"] is True and "only the user" in said(answer)
    assert (first.tool, first.upstream, first.via, first.outcome, first.sent, first.hidden) == (
        "disk__wipe", "disk", "name", "refused", False, True,
    )  # fmt: skip
    assert (first.arguments, second.via, second.outcome) == ('{"path": "/tmp/x"}', "bridge", "refused")
    assert (miss.tool, miss.noticed, miss.cause, miss.recovered, miss.call) == (
        "disk__wipe", "call", "denied", "no", first.id,
    )  # fmt: skip
    assert miss.change == 'remove "wipe" from "deny" of server \'disk\''


@requirement("trust:policy:no-use")
async def test_a_refused_call_counts_as_no_use_and_nothing_is_learned_from_it() -> None:
    async with proxy_over(disk(deny=["wipe"])) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await stage.client.discover("delete everything")
        await refused_call(stage)
        await stage.client.call_tool("disk__read", {"path": "/tmp/x"})
        usage = {each.tool: each.calls for each in stage.store.calls.usage()}
        events = [each.text for each in stage.store.calls.events(10)]
        needs = [each.text for each in stage.store.discoveries.needs(0.0) if each.kind == "call"]
        firsts = stage.store.discoveries.first_calls(0, 0.0)
        episodes = read_episodes(stage.store, 1e12)
        chat = stage.app.clients.only_client()
        assert chat is not None and chat.session is not None
        assert chat.session.conversations.whole.steps == ["disk__read"]
    assert usage["disk__read"] == 1 and not usage.get("disk__wipe")
    assert events == needs == ["disk__read"]
    assert "disk__wipe" not in firsts.values()
    assert [each.calls for each in episodes] == [("disk__read",)]
