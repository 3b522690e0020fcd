"""Sessions of the legacy era at several replicas: two servers over one database in one process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from http_callers import JSON_AND_EVENTS, Caller, Echo, EventReader, bearer, http_rules, http_server
from http_fakes import PATIENCE_S
from postgres import cut_off
from requirements import requirement

from foretool.fleet.postgres import replicas as storage
from foretool.fleet.replicas import shared_sessions as module
from foretool.fleet.replicas.replica import Replica
from foretool.fleet.replicas.shared_sessions import GONE, SharedSessions
from foretool.server.protocol import jsonrpc
from foretool.storage.opening import open_serving_store
from foretool.storage.records import Letter
from foretool.storage.store import Store

pytestmark = pytest.mark.anyio

TOKENS = {"ann": ["", "work"], "bob": ["", "work"]}
RULES: dict[str, Any] = {"tokens": TOKENS, "profiles": ("", "work")}


@pytest.fixture
def stores(address: str) -> Iterator[list[Store]]:
    opened = [open_serving_store(address) for _ in range(3)]
    yield opened
    for store in opened:
        store.close()


def share(store: Store) -> SharedSessions:
    assert store.replicas is not None
    return SharedSessions(Replica(store.replicas))


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def fleet(stores: list[Store], **rules: Any) -> AsyncIterator[list[Caller]]:
    """A server for each store, which hears the others."""
    async with AsyncExitStack() as stack:
        callers = []
        for store in stores:
            caller = await stack.enter_async_context(http_server(Echo(), sharing=share(store), **{**RULES, **rules}))
            caller.http.headers.update(bearer("ann"))
            callers.append(caller)
        await until(lambda: all(store.replicas._listening_since for store in stores))  # type: ignore[union-attr]
        yield callers


async def ask(caller: Caller, method: str, path: str = "/mcp", **headers: str) -> Any:
    """The status of a request in the session, and its reply."""
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {}}
    response = await caller.http.post(path, json=body, headers={**JSON_AND_EVENTS, **caller.session, **headers})
    lines = [line[5:] for line in response.text.splitlines() if line.startswith("data:") and line[5:].strip()]
    return response.status_code, (json.loads(lines[-1]) if lines else None)


async def begin(one: Caller, *others: Caller) -> None:
    assert (await one.initialize()).status_code == 200
    for other in others:
        other.session = one.session


@requirement("replicas:session")
async def test_a_session_goes_on_at_any_replica_as_it_was_left(stores: list[Store]) -> None:
    async with fleet(stores) as (one, two, three):
        await begin(one, two, three)
        assert (await ask(two, "tools/list"))[1]["result"]["method"] == "tools/list"
        assert two.front.principal == one.front.principal
        two.front.state["seen"] = 1
        await ask(two, "tools/call")
        assert (await ask(three, "tools/call"))[0] == 200
        assert three.front.state == {"version": "2025-11-25", "seen": 1}
        assert (await ask(one, "tools/call"))[0] == 200
        assert one.front.state["seen"] == 1
        assert len({front.replica for caller in (one, two, three) for front in caller.fronts.fronts}) == 3


@requirement("replicas:bound")
async def test_a_session_of_another_token_or_profile_is_not_there(stores: list[Store]) -> None:
    async with fleet(stores[:2]) as (one, two):
        await begin(one, two)
        assert (await ask(two, "tools/list", **bearer("bob")))[0] == 404
        assert (await ask(two, "tools/list", "/mcp/work"))[0] == 404
        assert (await ask(two, "tools/list", **bearer("nobody")))[0] == 401
        assert two.fronts.fronts == []
        assert (await ask(two, "tools/list"))[0] == 200
        # Neither once this replica knows it.
        assert (await ask(two, "tools/list", **bearer("bob")))[0] == 404
        response = await two.http.delete("/mcp", headers={**two.session, **bearer("bob")})
        assert response.status_code == 404
        assert (await ask(one, "tools/list"))[0] == 200


@requirement("replicas:bound")
async def test_forged_ids_open_nothing(stores: list[Store]) -> None:
    async with fleet(stores[:2]) as (one, two):
        await begin(one, two)
        database = stores[0].calls._database  # type: ignore[attr-defined]
        ((ident, memo),) = database.rows("SELECT ident, memo FROM live_sessions")
        real = one.session["mcp-session-id"]
        forged = [ident.hex(), memo.hex(), real[:-1], real.upper() + "0", f"{real}0", "0" * 32, "", "'; --", "é" * 9]
        for each in forged:
            two.session = {"mcp-session-id": each.encode()}  # type: ignore[dict-item]
            assert (await ask(two, "tools/list"))[0] in (400, 404), each
        assert two.fronts.fronts == []
        assert real.encode() not in memo and real not in str(database.rows("SELECT * FROM live_sessions"))


@requirement("replicas:bound")
async def test_a_row_that_somebody_copies_in_the_database_opens_no_other_session(stores: list[Store]) -> None:
    async with fleet(stores[:2]) as (one, two):
        await begin(one)
        victim = dict(one.session)
        await one.initialize(**bearer("bob"))
        database = stores[0].calls._database  # type: ignore[attr-defined]
        # Who may write the database can move a row to another owner, but the memo opens for its own id alone.
        rows = database.rows("SELECT ident, memo FROM live_sessions ORDER BY principal")
        for (ident, _), (_, memo) in zip(rows, reversed(rows), strict=True):
            database.run("UPDATE live_sessions SET memo = ?, revision = revision + 1 WHERE ident = ?", (memo, ident))
        two.session = victim
        assert (await ask(two, "tools/list"))[0] == 404


@requirement("replicas:bound")
async def test_a_session_that_was_deleted_cannot_be_replayed_anywhere(stores: list[Store]) -> None:
    async with fleet(stores) as (one, two, three):
        await begin(one, two, three)
        for caller in (one, two):
            assert (await ask(caller, "tools/list"))[0] == 200
        assert (await two.http.delete("/mcp", headers=two.session)).status_code == 200
        for caller in (one, two, three):
            assert (await ask(caller, "tools/list"))[0] == 404
        assert one.server.legacy.sessions == {}
        assert three.fronts.fronts == []
        database = stores[0].calls._database  # type: ignore[attr-defined]
        assert database.rows("SELECT count(*) FROM live_events") == [(0,)]


async def test_a_session_whose_token_is_taken_back_ends_everywhere(stores: list[Store]) -> None:
    async with fleet(stores[:2]) as (one, two):
        await begin(one, two)
        await ask(two, "tools/list")
        one.server.follow(http_rules(tokens={"bob": [""]}, profiles=("", "work")))
        await until(lambda: not two.server.legacy.sessions)
        assert (await ask(two, "tools/list"))[0] == 404


@requirement("replicas:resume")
async def test_an_answer_is_fetched_from_another_replica_while_its_own_still_works_on_it(stores: list[Store]) -> None:
    async with fleet(stores[:2]) as (one, two):
        await begin(one, two)
        async with one.legacy("hold", "seven") as response:
            primed = await EventReader(response).next()
            assert primed is not None
            message, channel = await one.front.next()
        channel.send(jsonrpc.notification("notifications/progress", jsonrpc.raw({"n": 1})))
        async with two.get(last_event_id=primed["id"]) as response:
            reader = EventReader(response)
            await reader.next()  # the priming event
            first = await reader.next()
            assert first is not None and json.loads(first["data"])["params"] == {"n": 1}
            assert isinstance(message.id, str)
            channel.finish(jsonrpc.result(message.id, jsonrpc.raw({"done": True})), None)
            assert await reader.message() == {"jsonrpc": "2.0", "id": "seven", "result": {"done": True}}
            assert await reader.next() is None
        # Once more, after the first event alone.
        async with two.get(last_event_id=first["id"]) as response:
            reader = EventReader(response)
            await reader.next()
            assert (await reader.message())["result"] == {"done": True}


@requirement("replicas:resume")
async def test_a_request_whose_replica_has_gone_is_answered_with_an_error(
    stores: list[Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "SETTLING_S", 0.0)
    async with fleet(stores[:1]) as (two,):
        async with fleet(stores[1:2]) as (one,):
            await begin(one, two)
            async with one.legacy("hold", 9) as response:
                primed = await EventReader(response).next()
                assert primed is not None
        async with two.get(last_event_id=primed["id"]) as response:
            reader = EventReader(response)
            await reader.next()
            reply = await reader.message()
            assert (reply["id"], reply["error"]["message"]) == (9, GONE)


async def test_streams_that_never_were_cannot_be_resumed_without_end(
    stores: list[Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_FEEDS", 2)
    async with fleet(stores[:2]) as (one, two), AsyncExitStack() as stack:
        await begin(one, two)
        await ask(two, "tools/list")
        owner = one.front.replica
        for place in range(2):
            response = await stack.enter_async_context(two.get(last_event_id=f"{owner}-{90 + place}.0"))
            assert response.status_code == 200
        refused = await two.http.get(
            "/mcp", headers={"accept": "text/event-stream", **two.session, "last-event-id": f"{owner}-99.0"}
        )
        assert refused.status_code == 429
        for odd in ("x.0", "-.0", "a-b", f"{two.front.replica}-99.0", "a-~~.x", "9" * 300):
            refused = await two.http.get(
                "/mcp", headers={"accept": "text/event-stream", **two.session, "last-event-id": odd}
            )
            assert refused.status_code == 400, odd


@requirement("replicas:letters")
async def test_a_cancellation_and_an_answer_reach_the_replica_that_waits_for_them(stores: list[Store]) -> None:
    async with fleet(stores[:2]) as (one, two):
        await begin(one, two)
        for body in (
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}},
            {"jsonrpc": "2.0", "id": "foretool-x-1", "result": {"roots": []}},
        ):
            response = await two.http.post("/mcp", json=body, headers={**JSON_AND_EVENTS, **two.session})
            assert response.status_code == 202
        await until(lambda: len(one.front.told) == 2)
        assert [each.method for each in one.front.told] == ["notifications/cancelled", jsonrpc.UNSET]
        assert len(two.front.told) == 2
        await ask(two, "tools/list")
        await until(one.front.listed.is_set)


@requirement("replicas:letters")
async def test_what_belongs_to_no_request_reaches_the_client_by_the_replica_that_carries_its_stream(
    stores: list[Store],
) -> None:
    changed = jsonrpc.notification("notifications/tools/list_changed", jsonrpc.UNSET)
    async with fleet(stores[:2]) as (one, two):
        await begin(one, two)
        await ask(two, "tools/list")
        one.front.standalone.send(changed)  # nobody carries it yet
        async with two.get() as response:
            reader = EventReader(response)
            await reader.next()
            assert (await reader.message())["method"] == "notifications/tools/list_changed"
            one.front.standalone.send(changed)
            seen = await reader.next()
            assert seen is not None
        # Whatever the client has not got is sent by the next replica.
        async with one.get(last_event_id=f"{two.front.replica}-0.0") as response:
            reader = EventReader(response)
            await reader.next()
            assert (await reader.message())["method"] == "notifications/tools/list_changed"


@requirement("replicas:bound")
async def test_letters_of_those_who_do_not_know_the_session_do_nothing(stores: list[Store]) -> None:
    async with fleet(stores[:1]) as (one,):
        await begin(one)
        (session,) = one.server.legacy.sessions.values()
        forger = share(stores[1]).replica
        raw = jsonrpc.encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        for kind in ("message", "event", "ended", "reader", "listed"):
            forger.store.post(Letter(kind, forger.id, "", session.shared.ident, raw))
        # Neither does a letter of another session, or one whose kind was changed.
        forger.store.post(Letter("ended", forger.id, "", session.shared.ident, session.shared.seal(b"", "listed")))
        forger.post("message", session.shared, raw)  # which is right, and comes last
        await until(lambda: one.front.told)
        assert len(one.front.told) == 1 and not one.front.listed.is_set()
        assert one.server.legacy.sessions


async def test_without_its_database_a_replica_serves_the_sessions_that_it_knows(
    stores: list[Store], address: str
) -> None:
    async with fleet(stores[:2]) as (one, two):
        await begin(one, two)
        for store in stores[:2]:
            cut_off(store, address)
        assert (await ask(one, "tools/list"))[0] == 200
        response = await two.http.post(
            "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers={**JSON_AND_EVENTS, **two.session}
        )
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        # A session that begins now is kept once the database is there again.
        begun = await one.initialize()
        assert begun.status_code == 200
        for store in stores[:2]:
            assert store.reopen()
        two.session = one.session
        await ask(one, "tools/list")
        assert (await ask(two, "tools/list"))[0] == 200


async def test_a_replica_that_ends_leaves_its_sessions_to_the_others(stores: list[Store]) -> None:
    async with fleet(stores[:1]) as (two,):
        async with fleet(stores[1:2]) as (one,):
            await begin(one, two)
            front = one.front
        assert front.has_left.is_set() and not front.closed.is_set()
        assert (await ask(two, "tools/list"))[0] == 200


async def test_where_there_is_no_room_an_unused_session_is_left_to_other_replicas(stores: list[Store]) -> None:
    async with fleet(stores[:2], max_sessions=4) as (one, two):
        sessions = []
        for caller in (one, one, two, two):
            await caller.initialize()
            sessions.append(caller.session)
        for session in sessions:
            two.session = session
            assert (await ask(two, "tools/list"))[0] == 200
        assert len(two.server.legacy.sessions) <= 2
