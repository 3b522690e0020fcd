"""Calls that take longer than their clients wait: what is said, who may ask, what is kept and for how long."""

from __future__ import annotations

import itertools
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from fakes import (
    BOTH,
    LEGACY,
    MODERN,
    FakeClient,
    FakeUpstream,
    Json,
    failing_store,
    proxy_over,
    said,
    text,
    tool,
)
from requirements import requirement
from waiting import IDENT, WAIT_S, ask, call_slow, let_pass

from foretool.storage.opening import open_store
from foretool.storage.records import Era

pytestmark = pytest.mark.anyio


def slow(eras: tuple[Era, ...] = LEGACY, **more: Any) -> FakeUpstream:
    upstream = FakeUpstream("calc", [tool("slow", annotations={"readOnlyHint": True}, **more), "add"], eras)
    upstream.hold("slow")
    return upstream


@requirement("call:long")
@pytest.mark.parametrize("eras", [LEGACY, MODERN, BOTH])
@pytest.mark.parametrize("modern", [False, True])
async def test_a_call_that_takes_longer_than_its_client_waits_goes_on_and_is_asked_for(
    eras: tuple[Era, ...], modern: bool
) -> None:
    upstream = slow(eras)
    async with proxy_over(upstream, call_wait_s=WAIT_S) as stage:
        client = stage.client.modern() if modern else stage.client
        if not modern:
            await client.initialize()
        answer, ident = await call_slow(stage, client)
        assert said(answer).startswith("calc__slow is still running") and "isError" not in answer
        again = await let_pass(stage, client, ask(client, ident))
        assert IDENT.search(said(again)) and said(again).startswith("calc__slow is still running")
        assert stage.calls() == []
        asked = await upstream.called("slow")
        waiting = ask(client, ident)
        asked.reply(text("done"))
        for result in (await client.result(waiting), await client.result(ask(client, ident))):
            assert said(result) == "done" and result.get("resultType") == ("complete" if modern else None)
        (call,) = stage.calls()
    assert (call.tool, call.outcome) == ("calc__slow", "ok") and call.took_ms >= 4000 * WAIT_S
    assert upstream.calls == [("slow", {})]


@requirement("call:long")
async def test_what_the_server_reports_meanwhile_is_told() -> None:
    upstream = slow()
    async with proxy_over(upstream, call_wait_s=WAIT_S) as stage:
        client = stage.client
        await client.initialize()
        _, ident = await call_slow(stage, client)
        asked = await upstream.called("slow")
        asked.progress(3, total=10, message='pages\nread".')
        await client.ask("ping")
        answer = await let_pass(stage, client, ask(client, ident))
        assert 'Last progress: 3 of 10, "pages read\'.".' in said(answer)
        wanted = {"name": "call_result", "arguments": {"id": ident}}
        client.post("tools/call", wanted, meta={"progressToken": "mine"})
        asked.progress(4, total=10)
        told = await client.heard("notifications/progress")
    assert told == {"progressToken": "mine", "progress": 4, "total": 10}


@requirement("call:long")
async def test_a_question_waits_for_somebody_who_asks_for_the_result() -> None:
    upstream = slow()
    async with proxy_over(upstream, call_wait_s=WAIT_S) as stage:
        client = stage.client
        await client.initialize(capabilities={"elicitation": {}})
        _, ident = await call_slow(stage, client)
        asked = await upstream.called("slow")
        form = {"message": "Which one?", "requestedSchema": {"type": "object", "properties": {}}}
        client.answers["elicitation/create"] = {"action": "decline"}
        asked.link.deliver(_question(form))
        await stage.app.upstreams["calc"].lines.line_for("legacy").connection.ask("ping", {}, 5)  # type: ignore[union-attr]
        assert client.questions == []
        waiting = ask(client, ident)
        await client.asked("elicitation/create")
        asked.reply(text("declined"))
        assert said(await client.result(waiting)) == "declined"


def _question(form: Json) -> bytes:
    import json

    return json.dumps({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form}).encode()


@requirement("call:long")
async def test_a_modern_client_is_asked_by_the_request_that_waits_and_goes_on_with_its_retry() -> None:
    upstream = slow()
    async with proxy_over(upstream, call_wait_s=WAIT_S) as stage:
        client = stage.client.modern(capabilities={"elicitation": {}})
        _, ident = await call_slow(stage, client)
        asked = await upstream.called("slow")
        form = {"message": "Which one?", "requestedSchema": {"type": "object", "properties": {}}}
        asked.link.deliver(_question(form))
        wanted = {"name": "call_tool", "arguments": {"name": "call_result", "arguments": {"id": ident}}}
        result = await client.ask("tools/call", wanted)
        ((key, question),) = result["inputRequests"].items()
        assert question["params"]["message"] == "Server 'calc' asks: Which one?"
        answers = {"inputResponses": {key: {"action": "decline"}}, "requestState": result["requestState"]}
        retry = client.post("tools/call", {**wanted, **answers})
        asked.reply(text("declined"))
        assert said(await client.result(retry)) == "declined"
        assert [call.outcome for call in stage.calls()] == ["ok"]


@requirement("call:long:cancel")
async def test_cancelled_means_cancelled_and_a_wait_that_is_given_up_cancels_nothing() -> None:
    upstream = slow()
    async with proxy_over(upstream, call_wait_s=WAIT_S) as stage:
        client = stage.client
        await client.initialize()
        _, ident = await call_slow(stage, client)
        waiting = ask(client, ident)
        client.notify("notifications/cancelled", {"requestId": waiting})
        assert upstream.count("notifications/cancelled") == 0
        other = ask(client, ident)
        assert said(await client.result(ask(client, ident, cancel=True))) == "calc__slow was cancelled."
        asked = await upstream.asked("notifications/cancelled")
        assert asked.params["requestId"] == (await upstream.called("slow")).message.id
        assert "was cancelled" in said(await client.result(other))
        assert "was cancelled" in said(await client.result(ask(client, ident)))
        assert [call.outcome for call in stage.calls()] == ["cancelled"]


@requirement("call:long:whose")
async def test_nobody_else_gets_the_result() -> None:
    upstream = slow()
    profiles = {"work": {"servers": ["calc"]}}
    async with proxy_over(upstream, call_wait_s=WAIT_S, profiles=profiles) as stage:
        client, other, kin = stage.client, stage.connect("work"), stage.connect()
        stranger = FakeClient(stage.app, principal="somebody else")
        for each in (client, other, kin, stranger):
            await each.initialize()
        _, ident = await call_slow(stage, client)
        for wrong in (ident[:-1], "", 7, None, ident.upper()):
            answer = await client.result(ask(client, wrong))  # type: ignore[arg-type]
            assert answer["isError"] and ident not in said(answer)
        for step in range(2):
            for asker, arguments in itertools.product((other, stranger), ({}, {"cancel": True})):
                answer = await asker.result(ask(asker, ident, **arguments))
                assert answer["isError"] and "is kept for this client" in said(answer)
            if not step:
                (await upstream.called("slow")).reply(text("secret"))
        assert said(await kin.result(ask(kin, ident))) == "secret"


@requirement("call:long:kept")
async def test_a_result_survives_a_restart_and_a_call_that_did_not_end_is_said_to_be_lost(tmp_path: Path) -> None:
    upstream = slow()
    with open_store(tmp_path / "store.sqlite3") as store:
        async with proxy_over(upstream, store=store, call_wait_s=WAIT_S) as stage:
            client = stage.client
            await client.initialize()
            _, done = await call_slow(stage, client)
            (await upstream.called("slow")).reply(text("done"))
            await client.ask("ping")
            _, lost = await call_slow(stage, client)
            (row,) = [each for each in (store.kept_calls.find(lost),) if each is not None]
        # The proxy was killed: what it said last is what stands in the store.
        store.kept_calls.save(_changed(row, pid=2**22 + 1))
        async with proxy_over(upstream, store=store, call_wait_s=WAIT_S) as stage:
            client = stage.client
            await client.initialize()
            assert said(await client.result(ask(client, done))) == "done"
            for _ in range(2):
                answer = await client.result(ask(client, lost))
                assert answer["isError"] and "It only reads: call it again" in said(answer)
            assert [call.outcome for call in stage.calls()] == ["ok", "lost", "lost"]


def _changed(row: Any, **fields: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(row, **fields)


@requirement("call:long:kept")
async def test_a_proxy_that_ends_in_order_says_what_became_of_the_call(tmp_path: Path) -> None:
    upstream = slow()
    with open_store(tmp_path / "store.sqlite3") as store:
        async with proxy_over(upstream, store=store, call_wait_s=WAIT_S) as stage:
            await stage.client.initialize()
            _, ident = await call_slow(stage, stage.client)
        row = store.kept_calls.find(ident)
        assert row is not None and "it only reads: call again" in row.reply


@requirement("call:long:kept")
async def test_a_result_is_forgotten_in_time_and_the_oldest_make_room(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("foretool.server.calls.kept_calls.MOST_KEPT", 2)
    upstream = slow()
    async with proxy_over(upstream, call_wait_s=WAIT_S) as stage:
        client = stage.client
        await client.initialize()
        idents = []
        for count in range(1, 4):
            _, ident = await call_slow(stage, client)
            idents.append(ident)
            (await upstream.called("slow", count)).reply(text(f"result {count}"))
            await client.ask("ping")
        answers = [said(await client.result(ask(client, each))) for each in idents]
        assert answers[1:] == ["result 2", "result 3"] and "is kept for this client" in answers[0]
        assert stage.store.kept_calls.forget_old(time.time() + 700) == 2


@requirement("call:long")
async def test_a_tool_that_promises_structured_content_is_answered_as_an_error_because_clients_check_it() -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    async with proxy_over(slow(outputSchema=schema), call_wait_s=WAIT_S) as stage:
        await stage.client.initialize()
        answer, _ = await call_slow(stage, stage.client)
        assert answer["isError"] is True


@requirement("call:long")
@pytest.mark.parametrize("transport", ["stdio", "library"])
async def test_who_may_wait_waits(transport: str) -> None:
    upstream = slow()
    async with proxy_over(upstream, call_wait_s=0 if transport == "stdio" else WAIT_S) as stage:
        client = stage.connect(transport=transport)
        await client.initialize()
        call = client.post("tools/call", {"name": "calc__slow", "arguments": {}})
        asked = await upstream.called("slow")
        time.sleep(2 * WAIT_S)  # noqa: ASYNC251
        stage.app.tick()
        asked.reply(text("done"))
        assert said(await client.result(call)) == "done"


@requirement("call:long:kept")
@pytest.mark.parametrize("trouble", ["off", "full disk"])
async def test_a_result_that_may_not_or_cannot_be_written_is_kept_in_memory(trouble: str) -> None:
    upstream = slow()
    store, file = failing_store()
    async with proxy_over(
        upstream, store=store, call_wait_s=WAIT_S, record="off" if trouble == "off" else "shape"
    ) as stage:
        client = stage.client
        await client.initialize()
        if trouble == "full disk":
            file.refuse = sqlite3.SQLITE_FULL
        _, ident = await call_slow(stage, client)
        (await upstream.called("slow")).reply(text("done"))
        await client.ask("ping")
        stage.app.tick()
        assert said(await client.result(ask(client, ident))) == "done"
        file.refuse = 0
        assert store.kept_calls.find(ident) is None
        stage.app.tick()
        assert (store.kept_calls.find(ident) is not None) is (trouble == "full disk")
    store.close()


@requirement("call:long:whose")
async def test_the_result_of_a_server_that_was_removed_is_nobodys() -> None:
    upstream = slow()
    async with proxy_over(upstream, call_wait_s=WAIT_S) as stage:
        client = stage.client
        await client.initialize()
        _, ident = await call_slow(stage, client)
        waiting = ask(client, ident)
        removed = stage.app.upstreams.remove("calc")
        assert removed is not None
        await removed.stop()
        assert "it only reads: call again" in said(await client.result(waiting))
        assert "is kept for this client" in said(await client.result(ask(client, ident)))


@requirement("call:long")
@pytest.mark.parametrize("cancels", [False, True])
async def test_a_list_of_calls_goes_on_without_its_client_too(cancels: bool) -> None:
    upstream = slow()
    upstream.tools = [*upstream.tools[:1], tool("add", annotations={"readOnlyHint": True})]
    async with proxy_over(upstream, call_wait_s=WAIT_S, call_tools=True) as stage:
        client = stage.client
        await client.initialize()
        calls = [{"name": f"calc__{each}", "arguments": {}} for each in ("slow", "add")]
        call = client.post("tools/call", {"name": "call_tools", "arguments": {"calls": calls}})
        asked = await upstream.called("slow")
        answer = await let_pass(stage, client, call)
        assert said(answer).startswith("call_tools is still running")
        ident = said(answer).partition('"id": "')[2][:32]
        waiting = ask(client, ident)
        if cancels:
            assert said(await client.result(ask(client, ident, cancel=True))) == "call_tools was cancelled."
            assert "was cancelled" in said(await client.result(waiting))
            await upstream.asked("notifications/cancelled")
        else:
            asked.reply(text("slow"))
            assert said(await client.result(waiting)) == "add"
        assert [call.outcome for call in stage.calls()] == (["cancelled"] if cancels else ["ok", "ok"])
    assert len(upstream.calls) == (1 if cancels else 2)
