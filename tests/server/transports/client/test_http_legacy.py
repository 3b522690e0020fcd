"""HTTP clients of the legacy era, over real connections, before a proxy that only echoes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from http_callers import (
    JSON_AND_EVENTS,
    Echo,
    EchoFront,
    EventReader,
    deaf,
    http_server,
    messages,
    notice,
    stream_limit,
)
from requirements import requirement

from foretool.server.protocol import jsonrpc
from foretool.server.transports.client import http_legacy

pytestmark = pytest.mark.anyio


@requirement("http:sessions")
async def test_a_legacy_session_from_initialize_to_delete() -> None:
    async with http_server() as caller:
        response = await caller.initialize()
        assert response.status_code == 200
        assert len(caller.session["mcp-session-id"]) == 32
        async with caller.legacy("tools/list", id="x") as answer:
            events = EventReader(answer)
            priming = await events.next()
            assert priming == {"id": "2.-1", "retry": "1000", "data": ""}
            assert await events.message() == {
                "jsonrpc": "2.0",
                "id": "x",
                "result": {"method": "tools/list", "profile": ""},
            }
            assert await events.next() is None
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        told = await caller.http.post("/mcp", json=note, headers={**JSON_AND_EVENTS, **caller.session})
        assert (told.status_code, told.content, caller.front.told[0].method) == (202, b"", "notifications/initialized")
        assert (await caller.http.delete("/mcp", headers=caller.session)).status_code == 200
        assert caller.front.closed.is_set()
        async with caller.legacy("tools/list") as answer:
            assert answer.status_code == 404


async def test_a_legacy_client_that_goes_away_has_cancelled_nothing_and_comes_back_for_the_rest() -> None:
    async with http_server() as caller:
        await caller.initialize()
        async with caller.legacy("hold", id=5) as answer:
            events = EventReader(answer)
            await events.next()
            _, channel = await caller.front.next()
            channel.send(notice(1))
            got = await events.next()
        assert got is not None
        channel.send(notice(2))
        channel.finish(jsonrpc.result(5, jsonrpc.EMPTY), None)
        async with caller.get(last_event_id=got["id"]) as answer:
            rest = await messages(answer)
        assert [message.get("params", {}).get("n") for message in rest] == [2, None]
        assert caller.front.cancelled.empty()
        async with caller.get(last_event_id="77.3") as answer:
            assert answer.status_code == 400


async def test_a_cancelled_legacy_request_ends_its_stream_without_a_reply() -> None:
    async with http_server() as caller:
        await caller.initialize()
        async with caller.legacy("hold", id=5) as answer:
            _, channel = await caller.front.next()
            channel.end()
            assert await messages(answer) == []


async def test_an_upstream_that_wants_polling_gets_it() -> None:
    async with http_server() as caller:
        await caller.initialize()
        async with caller.legacy("hold", id=5) as answer:
            _, channel = await caller.front.next()
            events = EventReader(answer)
            priming = await events.next()
            channel.poll()  # type: ignore[attr-defined]
            assert await events.next() is None
        channel.finish(jsonrpc.result(5, jsonrpc.EMPTY), None)
        assert priming is not None
        async with caller.get(last_event_id=priming["id"]) as answer:
            assert [message["id"] for message in await messages(answer)] == [5]


async def test_what_belongs_to_no_request_waits_for_the_get_stream_and_goes_to_the_newest_alone() -> None:
    async with http_server() as caller:
        await caller.initialize()
        caller.front.standalone.send(notice(1))
        async with caller.get() as old:
            first = EventReader(old)
            await first.next()
            assert (await first.message())["params"]["n"] == 1
            async with caller.get() as new:
                second = EventReader(new)
                await second.next()
                caller.front.standalone.send(notice(2))
                assert (await second.message())["params"]["n"] == 2
            (session,) = caller.server.legacy.sessions.values()
            while session.responses > 1:
                await asyncio.sleep(0)
            caller.front.standalone.send(notice(3))
            assert (await first.message())["params"]["n"] == 3


async def test_a_failed_handshake_leaves_no_session() -> None:
    class Refusing(Echo):
        def open(self, *args: Any, **kwargs: Any) -> EchoFront:
            front = super().open(*args, **kwargs)
            error = jsonrpc.failure(0, jsonrpc.error_object(-32602, "no"))
            front.receive = lambda message, channel: channel.finish(error, -32602)  # type: ignore[method-assign]
            return front

    async with http_server(Refusing()) as caller:
        response = await caller.initialize()
        assert "mcp-session-id" not in response.headers
        assert "-32602" in response.text
        assert len(caller.server.legacy.sessions) == 0
        assert caller.front.closed.is_set()


@requirement("http:sessions")
async def test_with_an_idle_time_of_0_sessions_live_for_ever() -> None:
    async with http_server(session_idle_s=0) as caller:
        await caller.initialize()
        caller.server.legacy.expire(time.monotonic() + 1e9)
        assert len(caller.server.legacy.sessions) == 1


@requirement("http:sessions")
async def test_sessions_are_limited_and_end_when_nobody_uses_them() -> None:
    async with http_server(max_sessions=1, session_idle_s=100) as caller:
        await caller.initialize()
        refused = await caller.initialize()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "60")
        assert "all 1 sessions are taken" in refused.json()["error"]["message"]
        loop_now = time.monotonic()
        async with caller.legacy("hold"):
            await caller.front.next()
            caller.server.legacy.expire(loop_now + 1000)
            assert len(caller.server.legacy.sessions) == 1
        while caller.server.legacy.sessions:
            caller.server.legacy.expire(time.monotonic() + 1000)
            await asyncio.sleep(0)
        assert caller.front.closed.is_set()


@requirement("http:slow-client")
async def test_a_legacy_client_that_does_not_read_loses_the_connection_but_not_the_reply() -> None:
    async with http_server() as caller:
        await caller.initialize()
        writer = await deaf(caller, "hold", caller.session)
        _, channel = await caller.front.next()
        for number in range(60):
            channel.send(notice(number, 1_000_000))
            await asyncio.sleep(0)
        assert channel.size <= stream_limit()  # type: ignore[attr-defined]
        channel.finish(jsonrpc.result(5, jsonrpc.EMPTY), None)
        async with caller.get(last_event_id="2.-1") as answer:
            told = await messages(answer)
        assert told[-1] == {"jsonrpc": "2.0", "id": 5, "result": {}}
        assert 1 < len(told) < 20
        writer.close()


@requirement("trust:http:in-flight")
async def test_requests_that_nobody_waits_for_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_legacy, "MOST_REQUESTS", 3)
    async with http_server() as caller:
        await caller.initialize()
        statuses = []
        for number in range(5):
            async with caller.legacy("hold", id=number) as answer:  # and away: nothing is cancelled by that
                statuses.append(answer.status_code)
        assert statuses == [200, 200, 200, 429, 429]
        for _ in range(3):
            message, channel = await caller.front.next()
            channel.finish(jsonrpc.result(message.id, jsonrpc.EMPTY), None)
        async with caller.legacy("tools/list", id=9) as answer:
            assert answer.status_code == 200
