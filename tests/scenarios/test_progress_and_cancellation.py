"""Progress and cancellation find their way through both hops, each under its own name."""

from __future__ import annotations

import asyncio

import pytest
from fakes import BOTH, LEGACY, MODERN, Asked, FakeUpstream, proxy_over, said
from requirements import requirement

from foretool.storage.records import Era

pytestmark = pytest.mark.anyio


def slow(eras: tuple[Era, ...] = LEGACY) -> FakeUpstream:
    upstream = FakeUpstream("calc", ["slow", "add"], eras)
    upstream.hold("slow")
    return upstream


@requirement("call:progress")
@pytest.mark.parametrize("eras", [LEGACY, MODERN, BOTH])
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("token", ["abc", 7, 0, ""])
async def test_progress_comes_back_under_the_clients_own_token(
    eras: tuple[Era, ...], modern: bool, token: str | int
) -> None:
    upstream = slow(eras)
    async with proxy_over(upstream) as stage:
        client = stage.client.modern() if modern else stage.client
        call = client.post("tools/call", {"name": "calc__slow"}, meta={"progressToken": token})
        asked = await upstream.called("slow")
        asked.progress(0.5, total=1.0, message="half", extra=[1])
        asked.reply({"content": []})
        await client.result(call)
    told = {"progressToken": token, "progress": 0.5, "total": 1.0, "message": "half", "extra": [1]}
    assert client.notices == [("notifications/progress", told)]
    assert client.messages[-1]["id"] == call


@requirement("call:progress")
async def test_two_clients_with_the_same_token_each_get_their_own_progress() -> None:
    upstream = slow()
    async with proxy_over(upstream) as stage:
        one, other = stage.client, stage.connect()
        for client in (one, other):
            await client.initialize()
            client.post("tools/call", {"name": "calc__slow"}, meta={"progressToken": 1})
        (await upstream.called("slow", 2)).progress(2)
        (await upstream.called("slow", 1)).progress(1)
        assert (await one.heard("notifications/progress"))["progress"] == 1
        assert (await other.heard("notifications/progress"))["progress"] == 2
    assert (len(one.notices), len(other.notices)) == (1, 1)


@requirement("call:progress")
@pytest.mark.parametrize("method", ["notifications/progress", "notifications/message"])
async def test_what_nobody_wants_to_hear_takes_no_room_from_what_somebody_does(method: str) -> None:
    upstream = slow(MODERN)

    def tell(asked: Asked, number: int) -> None:
        log = {"level": "info", "data": number}
        token = asked.meta["progressToken"]
        asked.link.say(method, log if "message" in method else {"progressToken": token, "progress": number})

    async with proxy_over(upstream) as stage:
        client = stage.client.modern()
        call = client.post("tools/call", {"name": "calc__slow"})
        asked = await upstream.called("slow")
        for number in range(3000):  # several times what a connection may say at once
            tell(asked, number)
        asked.reply({"content": []})
        await client.result(call)
        wish = {"progressToken": "mine", "io.modelcontextprotocol/logLevel": "info"}
        client.post("tools/call", {"name": "calc__slow"}, meta=wish)
        tell(await upstream.called("slow", 2), 7)
        heard = await client.heard(method)
    assert 7 in heard.values() and client.count(method) == 1


@requirement("call:progress")
async def test_no_token_means_no_progress_and_a_foreign_token_is_dropped() -> None:
    upstream = slow()
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize()
        call = client.post("tools/call", {"name": "calc__slow"})
        asked = await upstream.called("slow")
        for token in (asked.message.id, 12345, "x", None):
            asked.link.say("notifications/progress", {"progressToken": token, "progress": 1})
        asked.reply({"content": []})
        await client.result(call)
    assert client.notices == []


@requirement("timeout:living")
@pytest.mark.parametrize("eras", [LEGACY, MODERN])
@pytest.mark.parametrize("modern", [False, True])
async def test_a_call_that_reports_progress_goes_on_and_its_client_hears_of_none_that_it_did_not_want(
    eras: tuple[Era, ...], modern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    upstream = slow(eras)
    upstream.entry = {"timeout_s": 5}
    async with proxy_over(upstream) as stage:
        client = stage.client.modern() if modern else stage.client
        call = client.post("tools/call", {"name": "calc__slow", "arguments": {}})
        asked = await upstream.called("slow")
        for _ in range(10):
            now += 4.0
            asked.progress(1)
            await client.ask("tools/list")
            stage.app.tick()
        asked.reply({"content": [{"type": "text", "text": "done"}]})
        assert said(await client.result(call)) == "done"
    assert client.notices == []


@requirement("timeout:living")
@pytest.mark.parametrize(
    ("silence_s", "steps", "reason"),
    [
        (4.0, 2, "no answer, and no progress within 5 s"),
        (3000.0, 8, "it went on reporting progress, without an answer within 6 hours"),
    ],
)
async def test_progress_keeps_a_call_for_so_long_and_no_longer(
    silence_s: float, steps: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    upstream = slow()
    upstream.entry = {"timeout_s": silence_s + 1}
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize()
        call = client.post("tools/call", {"name": "calc__slow", "arguments": {}})
        asked = await upstream.called("slow")
        for _ in range(steps):
            now += silence_s
            asked.progress(1)
            await client.ask("ping")
            stage.app.tick()
        now += silence_s + 2
        stage.app.tick()
        result = await client.result(call)
    assert reason in said(result)


@requirement("call:cancel")
@pytest.mark.parametrize("modern", [False, True])
async def test_a_cancelled_call_is_cancelled_upstream_and_answered_with_silence(modern: bool) -> None:
    upstream = slow(BOTH)
    async with proxy_over(upstream) as stage:
        client = stage.client.modern() if modern else stage.client
        call = client.post("tools/call", {"name": "calc__slow"}, id="mine")
        asked = await upstream.called("slow")
        client.notify("notifications/cancelled", {"requestId": call, "reason": "changed my mind"})
        cancelled = await upstream.asked("notifications/cancelled")
        asked.reply({"content": []})  # too late: the upstream had finished all the same
        await client.call_tool("calc__add", {})
        outcomes = [(each.tool, each.outcome) for each in stage.calls()]
    assert cancelled.params["requestId"] == asked.message.id
    assert cancelled.params["reason"] == "changed my mind"
    assert [message for message in client.messages if message.get("id") == "mine"] == []
    assert outcomes == [("calc__slow", "cancelled"), ("calc__add", "ok")]


@requirement("call:cancel")
async def test_a_call_that_still_waits_for_its_upstream_is_taken_back_without_being_sent() -> None:
    upstream = FakeUpstream("calc", ["slow"], gate=asyncio.Event())
    async with proxy_over(upstream, cold_list_s=0) as stage:
        client = stage.client
        await client.initialize()
        call = client.post("tools/call", {"name": "calc__slow"})
        client.notify("notifications/cancelled", {"requestId": call})
        assert upstream.gate is not None
        upstream.gate.set()
        await upstream.asked("tools/list")
        await client.ask("ping")
    assert upstream.calls == []


@requirement("call:cancel-one")
async def test_a_cancellation_concerns_its_own_call_alone_even_across_the_two_eras_of_an_upstream() -> None:
    upstream = slow(BOTH)
    async with proxy_over(upstream) as stage:
        legacy, modern = stage.client, stage.connect().modern()
        await legacy.initialize()
        calls = [client.post("tools/call", {"name": "calc__slow"}) for client in (legacy, modern) for _ in range(3)]
        asked = [await upstream.called("slow", number) for number in range(1, 7)]
        by_client = {id(each.link): each for each in asked}
        assert len(by_client) == 2
        legacy.notify("notifications/cancelled", {"requestId": calls[0]})
        await upstream.asked("notifications/cancelled")
        for each in asked:
            each.reply({"content": []})
        for client, call in [(legacy, calls[1]), (legacy, calls[2]), *((modern, call) for call in calls[3:])]:
            await client.result(call)
    assert upstream.count("notifications/cancelled") == 1


@requirement("call:cancel-unknown")
async def test_cancelling_what_is_unknown_or_finished_does_nothing() -> None:
    upstream = slow()
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize()
        done = client.post("tools/call", {"name": "calc__add"})
        await client.result(done)
        for target in (done, "never", 99):
            client.notify("notifications/cancelled", {"requestId": target})
        await client.ask("ping")
    assert upstream.count("notifications/cancelled") == 0


@requirement("client:gone")
async def test_a_client_that_goes_away_takes_its_calls_back_and_ends_its_session() -> None:
    upstream = slow()
    async with proxy_over(upstream) as stage:
        stays, goes = stage.client, stage.connect()
        await stays.initialize("stays")
        await goes.initialize("goes")
        kept = stays.post("tools/call", {"name": "calc__slow"})
        lost = goes.post("tools/call", {"name": "calc__slow"})
        first = await upstream.called("slow")
        second = await upstream.called("slow", 2)
        assert goes._front is not None
        goes._front.close()
        cancelled = await upstream.asked("notifications/cancelled")
        first.reply({"content": []})
        await stays.result(kept)
        sessions = {each.client: each.ended_at for each in stage.store.sessions.recent()}
    assert cancelled.params["requestId"] == second.message.id
    assert lost not in goes._raw
    assert sessions["goes"] is not None
    assert sessions["stays"] is None
