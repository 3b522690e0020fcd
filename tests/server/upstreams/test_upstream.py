"""One upstream: when it starts, in which era it is spoken to, and how it comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes import PATIENCE_S, FakeUpstream
from running_upstream import called, running

from foretool.server.protocol.jsonrpc import Message, raw
from foretool.server.upstreams.connection import Lost, Party, Reply, Request
from foretool.storage.records import ToolId

pytestmark = pytest.mark.anyio


async def test_errors_are_shown_without_secrets() -> None:
    fake = FakeUpstream("calc", ["add"], missing="token s3cret is wrong")
    async with running(fake, redact=lambda text: text.replace("s3cret", "[TOKEN]")) as (upstream, _):
        assert await called(upstream) == Lost("token [TOKEN] is wrong", False)
        fake.missing = ""
        assert isinstance(await called(upstream), Message)
        fake.die("exited: s3cret")
        assert upstream.error == "exited: [TOKEN]"


async def test_requests_that_wait_too_long_for_a_start_are_given_up() -> None:
    fake = FakeUpstream("calc", ["add"], gate=asyncio.Event())
    async with running(fake) as (upstream, _):
        replies: list[Reply] = []
        upstream.request("legacy", Request("tools/call", {}, replies.append, timeout=0.000001))
        await asyncio.sleep(0)
        upstream.expire()
        assert replies == [Lost("no answer within 1e-06 s", False)]


async def test_after_stop_nothing_is_sent_and_nothing_starts() -> None:
    fake = FakeUpstream("calc", ["add"])
    async with running(fake) as (upstream, _):
        await called(upstream)
        await upstream.stop()
        reply = await called(upstream)
        assert isinstance(reply, Lost)
        assert not reply.sent
        await asyncio.sleep(100)
    assert (fake.starts, fake.links) == (1, [])


async def test_a_mistake_of_ours_while_starting_is_told_to_whoever_waits_and_tried_again() -> None:
    class Mistaken(FakeUpstream):
        is_broken = True

        async def opened(self, *given: Any) -> Any:
            if self.is_broken:
                raise RuntimeError("a mistake")
            return await super().opened(*given)

    fake = Mistaken("calc", ["add"])
    async with running(fake) as (upstream, _):
        reply = await called(upstream)
        assert isinstance(reply, Lost)
        assert "RuntimeError" in reply.reason
        fake.is_broken = False
        assert isinstance(await called(upstream), Message)


@pytest.mark.parametrize("turns", range(12))
async def test_it_can_be_stopped_at_any_moment_of_its_start(turns: int) -> None:
    fake = FakeUpstream("calc", ["add"])
    async with asyncio.timeout(PATIENCE_S):
        async with running(fake) as (upstream, _):
            upstream.start("legacy")
            for _ in range(turns):
                await asyncio.sleep(0)
    assert fake.links == []


@pytest.mark.parametrize("by", ["nobody", "a client"])
async def test_it_is_started_again_for_a_client_that_can_do_more_unless_one_has_called_it(by: str) -> None:
    """Also where the call came before the start, and has started it."""
    fake, can = FakeUpstream("calc", ["add"]), dict[str, Any]()
    async with running(fake, capabilities=lambda era: dict(can)) as (upstream, _):
        replies: list[Reply] = []
        party = Party("", "") if by == "a client" else None
        upstream.request("legacy", Request("tools/call", {"name": raw("add")}, replies.append, party=party))
        await asyncio.sleep(1)
        can["elicitation"] = {}
        upstream.tell_again()
        assert len(replies) == 1
        await asyncio.sleep(5)
        assert upstream.lines.ready() and not upstream.has_failed
    assert fake.starts == (1 if by == "a client" else 2)


@pytest.mark.parametrize(("known", "starts"), [({"add", "sub", "ask"}, 2), ({"add", "old"}, 1)])
async def test_one_that_lists_less_than_is_known_of_it_is_started_again_though_it_was_called(
    known: set[str], starts: int
) -> None:
    """A new version, which has other tools, is not taken for one that asks what its clients can do."""
    fake, can = FakeUpstream("calc", ["add", "sub"]), dict[str, Any]()
    async with running(fake, capabilities=lambda era: dict(can)) as (upstream, _):
        upstream.request("legacy", Request("tools/call", {"name": raw("add")}, print, party=Party("", "")))
        await asyncio.sleep(1)
        upstream.note_tools([ToolId(each) for each in known], [ToolId("add"), ToolId("sub")])
        can["elicitation"] = {}
        upstream.tell_again()
        await asyncio.sleep(5)
    assert fake.starts == starts
