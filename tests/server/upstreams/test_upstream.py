"""One upstream: when it starts, in which era it is spoken to, and how it comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes import BOTH, LEGACY, MODERN, PATIENCE_S, FakeUpstream
from running_upstream import called, running

from foretool.server.protocol.jsonrpc import Message
from foretool.server.upstreams.connection import Lost, Reply, Request
from foretool.server.upstreams.upstream import BACKOFF_S, State
from foretool.storage.records import Era

pytestmark = pytest.mark.anyio


async def test_nothing_starts_until_it_is_wanted() -> None:
    fake = FakeUpstream("calc", ["add"])
    async with running(fake) as (upstream, host):
        await asyncio.sleep(10)
        assert (fake.starts, upstream.state) == (0, State.KNOWN)
        reply = await called(upstream)
        assert isinstance(reply, Message)
        await fake.asked("tools/list")
        await asyncio.sleep(0.01)
        assert (fake.starts, upstream.state, host.tools) == (1, State.READY, [1])


@pytest.mark.parametrize(("eras", "era", "spoken"), [
    (LEGACY, "legacy", {"legacy": True}),
    (LEGACY, "modern", {"modern": False, "legacy": True}),
    (MODERN, "modern", {"modern": True}),
    (MODERN, "legacy", {"modern": True, "legacy": False}),
    (BOTH, "legacy", {"legacy": True}),
    (BOTH, "modern", {"modern": True}),
])  # fmt: skip
async def test_what_is_learned_of_its_eras(eras: tuple[Era, ...], era: Era, spoken: dict[Era, bool]) -> None:
    async with running(FakeUpstream("calc", ["add"], eras)) as (upstream, _):
        assert isinstance(await called(upstream, era), Message)
        assert upstream.speaks == spoken


async def test_one_process_serves_both_eras_once_it_has_turned_out_to_speak_the_legacy_one_alone() -> None:
    fake = FakeUpstream("calc", ["add"], LEGACY)
    async with running(fake) as (upstream, _):
        await called(upstream, "legacy")
        await called(upstream, "modern")
        await asyncio.sleep(1)
        assert len(fake.links) == 1
        fake.die()
        await called(upstream, "modern")
        await called(upstream, "legacy")
        await asyncio.sleep(100)
        assert (len(fake.links), upstream.state, upstream.in_flight) == (1, State.READY, 0)


async def test_a_failing_start_is_tried_again_after_growing_pauses_and_at_once_when_wanted() -> None:
    fake = FakeUpstream("calc", ["add"], missing="command 'calc' was not found")
    async with running(fake) as (upstream, host):
        assert await called(upstream) == Lost("command 'calc' was not found", False)
        await asyncio.sleep(sum(BACKOFF_S[1:4]) + 0.5)
        assert fake.starts == 4
        assert (upstream.state, upstream.error) == (State.RETRYING, "command 'calc' was not found")
        fake.missing = ""
        assert isinstance(await called(upstream), Message)
        assert host.states[-1] is State.READY
        assert upstream.error == ""


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
    fake = FakeUpstream("calc", ["add"])
    works = fake.opened
    async with running(fake) as (upstream, _):

        async def broken(*_: Any) -> Any:
            raise RuntimeError("a mistake")

        upstream._open_link = broken
        reply = await called(upstream)
        assert isinstance(reply, Lost)
        assert "RuntimeError" in reply.reason
        upstream._open_link = works
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
