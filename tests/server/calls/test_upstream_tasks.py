"""Tasks of upstreams: a client that speaks no tasks gets the result of its call, with progress and questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import Asked, FakeClient, FakeUpstream, Json, Stage, proxy_over, said, text, tool
from requirements import requirement
from waiting import WAIT_S, ask, call_slow, let_pass

from foretool.server.protocol.versions import TASKS
from foretool.storage.opening import open_store

pytestmark = pytest.mark.anyio

EXTENSION = {"extensions": {TASKS: {}}}
MADE = {"createdAt": "2026-11-28T10:00:00Z", "lastUpdatedAt": "2026-11-28T10:00:00Z", "ttlMs": 60000}


def state(status: str, **more: Any) -> Json:
    return {"resultType": "complete", "taskId": "t1", "status": status, **MADE, "pollIntervalMs": 500, **more}


def working(modern: bool = True, risk: dict[str, str] | None = None, **more: Any) -> FakeUpstream:
    """A server that makes a task of each call of its slow tool; `tasks/get` and `tasks/result` are not answered."""
    declared = EXTENSION if modern else {"tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
    slow = tool("slow", annotations={"readOnlyHint": True}, execution={"taskSupport": "required"})
    upstream = FakeUpstream(
        "calc",
        [slow],
        ("modern",) if modern else ("legacy",),
        capabilities={"tools": {}, **declared},
        entry={"risk": risk or {}},
        **more,
    )
    announced = (
        {**state("working"), "resultType": "task"} if modern else {"task": {"taskId": "t1", "status": "working"}}
    )
    upstream.scripts["slow"] = lambda asked: asked.reply(announced)
    for method in ("tasks/get", "tasks/result", "tasks/cancel", "tasks/update"):
        upstream.hold(method)
    return upstream


async def greet(stage: Stage, modern: bool, **capabilities: Any) -> FakeClient:
    if modern:
        return stage.client.modern(capabilities=capabilities)
    await stage.client.initialize(capabilities=capabilities)
    return stage.client


@requirement("tasks:adapted")
@pytest.mark.parametrize("modern", [False, True])
async def test_a_task_of_a_modern_server_becomes_a_plain_call_with_progress(modern: bool) -> None:
    upstream = working()
    async with proxy_over(upstream) as stage:
        client = await greet(stage, modern)
        call = client.post("tools/call", {"name": "calc__slow", "arguments": {}}, meta={"progressToken": "p"})
        declared = (await upstream.called("slow")).meta["io.modelcontextprotocol/clientCapabilities"]
        assert TASKS in declared["extensions"]
        (await upstream.asked("tasks/get")).reply(state("working", statusMessage="half"))
        told = await client.heard("notifications/progress")
        assert told == {"progressToken": "p", "progress": 1, "message": "half"}
        asked = await upstream.asked("tasks/get", 2)
        assert asked.params["taskId"] == "t1"
        asked.reply(state("completed", result=text("done")))
        result = await client.result(call)
        assert said(result) == "done" and result.get("resultType") == ("complete" if modern else None)
        assert [call.outcome for call in stage.calls()] == ["ok"]


@requirement("tasks:adapted")
async def test_a_task_that_fails_or_is_ended_by_its_server_is_told_as_what_it_is() -> None:
    upstream = working()
    ends: list[tuple[Json, str, str]] = [
        (state("completed", result=text("bad", isError=True)), "bad", "tool_error"),
        (state("failed", error={"code": -32603, "message": "broke"}), "broke", "error"),
        (state("cancelled", statusMessage="no time"), "its server ended it (cancelled): no time", "tool_error"),
        ({"resultType": "complete"}, "", "ok"),
    ]
    async with proxy_over(upstream) as stage:
        client = await greet(stage, False)
        for count, (end, words, outcome) in enumerate(ends, 1):
            call = client.post("tools/call", {"name": "calc__slow", "arguments": {}})
            (await upstream.asked("tasks/get", count)).reply(end)
            reply = await client.reply(call)
            assert words in str(reply)
            assert stage.calls()[-1].outcome == outcome


@requirement("tasks:adapted")
async def test_a_legacy_server_is_asked_for_a_task_where_its_tool_requires_one_and_waits_with_the_result() -> None:
    upstream = working(modern=False)
    async with proxy_over(upstream) as stage:
        client = await greet(stage, False, elicitation={})
        call = client.post("tools/call", {"name": "calc__slow", "arguments": {}})
        assert (await upstream.called("slow")).params["task"] == {}
        asked = await upstream.asked("tasks/result")
        client.answers["elicitation/create"] = {"action": "decline"}
        form = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
        assert (await asked.ask("elicitation/create", form))["result"] == {"action": "decline"}
        asked.reply(text("done"))
        assert said(await client.result(call)) == "done"


@requirement("tasks:adapted")
@pytest.mark.parametrize("modern", [False, True])
async def test_questions_of_a_task_reach_the_user_once_and_their_answers_the_task(modern: bool) -> None:
    upstream = working()
    form = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
    wanted = {"q1": {"method": "elicitation/create", "params": form}}
    answer = {"action": "accept", "content": {}}
    async with proxy_over(upstream) as stage:
        client = await greet(stage, modern, elicitation={})
        client.answers["elicitation/create"] = answer
        params: Json = {"name": "calc__slow", "arguments": {}}
        call = client.post("tools/call", params)
        (await upstream.asked("tasks/get")).reply(state("input_required", inputRequests=wanted))
        if modern:
            result = await client.result(call)
            assert result["inputRequests"]["q1"]["params"]["message"] == "Server 'calc' asks: Sure?"
            given = {"inputResponses": {"q1": answer}, "requestState": result["requestState"]}
            call = client.post("tools/call", {**params, **given})
        asked = await upstream.asked("tasks/update")
        assert (asked.params["taskId"], asked.params["inputResponses"]) == ("t1", {"q1": answer})
        asked.reply({"resultType": "complete"})
        # It may list the question a little longer.
        (await upstream.asked("tasks/get", 2)).reply(state("input_required", inputRequests=wanted))
        (await upstream.asked("tasks/get", 3)).reply(state("completed", result=text("done")))
        assert said(await client.result(call)) == "done"
        assert len(client.questions) == (0 if modern else 1) and upstream.count("tasks/update") == 1
        assert [call.outcome for call in stage.calls()] == ["ok"]
    assert len(upstream.calls) == 1


@requirement("tasks:cancel")
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("by", ["client", "id"])
async def test_cancelled_means_cancelled(modern: bool, by: str) -> None:
    upstream = working(modern)
    async with proxy_over(upstream, call_wait_s=WAIT_S) as stage:
        client = await greet(stage, False)
        if by == "client":
            call = client.post("tools/call", {"name": "calc__slow", "arguments": {}})
            await upstream.asked("tasks/get" if modern else "tasks/result")
            client.notify("notifications/cancelled", {"requestId": call})
        else:
            _, ident = await call_slow(stage, client)
            await upstream.asked("tasks/get" if modern else "tasks/result")
            await client.result(ask(client, ident, cancel=True))
        assert (await upstream.asked("tasks/cancel")).params["taskId"] == "t1"
        assert [call.outcome for call in stage.calls()] == ["cancelled"]


@requirement("tasks:kept")
@pytest.mark.parametrize("modern", [False, True])
async def test_the_next_proxy_asks_for_a_task_that_goes_on(modern: bool, tmp_path: Path) -> None:
    upstream = working(modern)
    method = "tasks/get" if modern else "tasks/result"
    with open_store(tmp_path / "store.sqlite3") as store:
        async with proxy_over(upstream, store=store, call_wait_s=WAIT_S) as stage:
            client = await greet(stage, False)
            _, ident = await call_slow(stage, client)
            await upstream.asked(method)
            stage.app.tick()
        row = store.kept_calls.find(ident)
        assert row is not None and (row.task, row.reply) == ("t1", "")
        store.kept_calls.save(msgspec.structs.replace(row, pid=2**22 + 1))
        before = upstream.count(method)
        async with proxy_over(upstream, store=store, call_wait_s=WAIT_S) as stage:
            client = await greet(stage, False)
            first = ask(client, ident)
            asked = await upstream.asked(method, before + 1)
            assert "is still running" in said(await let_pass(stage, client, first))
            waiting = ask(client, ident)
            asked.reply(state("completed", result=text("done")) if modern else text("done"))
            assert said(await client.result(waiting)) == "done"
            (call,) = stage.calls()
            assert (call.outcome, call.session) == ("ok", row.session)
    assert len(upstream.calls) == 1


@requirement("tasks:adapted")
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(
    ("code", "why"), [(-32602, "Task not found: t1"), (-32602, "Unknown id"), (-32601, "Method not found")]
)
async def test_a_server_that_is_lost_for_a_while_is_asked_again_and_of_one_that_has_forgotten_a_model_reads_what_to_do(
    code: int, why: str, modern: bool
) -> None:
    upstream = working(modern, risk={"slow": "write"})
    method = "tasks/get" if modern else "tasks/result"
    async with proxy_over(upstream) as stage:
        client = await greet(stage, False)
        call = client.post("tools/call", {"name": "calc__slow", "arguments": {}})
        await upstream.asked(method)
        upstream.die("was ended by SIGKILL")
        (await upstream.asked(method, 2)).fail(code, why)
        result = await client.result(call)
        assert result["isError"] and said(result) == (
            f"server 'calc' did not answer 'calc__slow': it does not know the task of this call any more"
            f" ({why.removesuffix(': t1')}); it went away meanwhile: was ended by SIGKILL;"
            " it had been sent, so it may have been carried out: check before calling again"
        )
        assert [(call.outcome, call.sent) for call in stage.calls()] == [("lost", True)]


@requirement("tasks:adapted")
@pytest.mark.parametrize("modern", [False, True])
async def test_a_call_whose_task_cannot_be_asked_for_again_is_not_said_to_be_unsent(modern: bool) -> None:
    upstream = working(modern, risk={"slow": "write"})
    async with proxy_over(upstream) as stage:
        client = await greet(stage, False)
        call = client.post("tools/call", {"name": "calc__slow", "arguments": {}})
        await upstream.asked("tasks/get" if modern else "tasks/result")
        upstream.missing = "program not found"
        upstream.die()
        result = (await client.reply(call, patience=3600))["result"]
        assert "it may have been carried out: check before calling again" in said(result)
        assert [(call.outcome, call.sent) for call in stage.calls()] == [("lost", True)]


@requirement("tasks:adapted")
async def test_an_error_of_a_call_that_ran_as_a_task_is_told_as_the_server_gave_it() -> None:
    upstream = working(modern=False)
    async with proxy_over(upstream) as stage:
        client = await greet(stage, False)
        call = client.post("tools/call", {"name": "calc__slow", "arguments": {}})
        (await upstream.asked("tasks/result")).fail(-32602, "topic must not be empty")
        assert (await client.reply(call))["error"]["message"] == "topic must not be empty"


@requirement("tasks:adapted")
async def test_answers_that_a_task_may_not_have_got_are_asked_for_again() -> None:
    upstream = working()
    form = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
    asking = state("input_required", inputRequests={"q1": {"method": "elicitation/create", "params": form}})
    async with proxy_over(upstream) as stage:
        client = await greet(stage, False, elicitation={})
        client.answers["elicitation/create"] = {"action": "accept", "content": {}}
        call = client.post("tools/call", {"name": "calc__slow", "arguments": {}})
        (await upstream.asked("tasks/get")).reply(asking)
        await upstream.asked("tasks/update")
        upstream.die()
        (await upstream.asked("tasks/get", 2)).reply(asking)
        (await upstream.asked("tasks/update", 2)).reply({"resultType": "complete"})
        (await upstream.asked("tasks/get", 3)).reply(state("completed", result=text("done")))
        assert said(await client.result(call)) == "done"
        assert len(client.questions) == 2


@requirement("tasks:adapted")
async def test_a_result_that_happens_to_name_a_task_is_none() -> None:
    upstream = working()

    def answer(asked: Asked) -> None:
        asked.reply({**text("plain"), "structuredContent": {"task": {"taskId": "x"}, "taskId": "y"}})

    upstream.scripts["slow"] = answer
    async with proxy_over(upstream) as stage:
        client = await greet(stage, False)
        assert said(await client.call_tool("calc__slow", {})) == "plain"


def speaking(client: FakeClient) -> FakeClient:
    return client.modern(capabilities={**EXTENSION, "elicitation": {}})


@requirement("tasks:forwarded")
async def test_a_client_that_speaks_tasks_gets_the_task_under_an_id_of_ours(tmp_path: Path) -> None:
    upstream = working()
    form = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
    with open_store(tmp_path / "store.sqlite3") as store:
        async with proxy_over(upstream, store=store) as stage:
            client = speaking(stage.client)
            made = await client.call_tool("calc__slow", {})
            ident = made["taskId"]
            assert (made["resultType"], made["status"]) == ("task", "working") and ident != "t1"
            assert stage.calls() == []
        async with proxy_over(upstream, store=store) as stage:
            client = speaking(stage.client)
            get = client.post("tasks/get", {"taskId": ident})
            asked = await upstream.asked("tasks/get")
            assert asked.params["taskId"] == "t1"
            asked.reply(state("input_required", inputRequests={"q": {"method": "elicitation/create", "params": form}}))
            found = await client.result(get)
            assert found["taskId"] == ident
            assert found["inputRequests"]["q"]["params"]["message"] == "Server 'calc' asks: Sure?"
            update = client.post("tasks/update", {"taskId": ident, "inputResponses": {"q": {"action": "decline"}}})
            asked = await upstream.asked("tasks/update")
            assert asked.params["inputResponses"] == {"q": {"action": "decline"}}
            asked.reply({"resultType": "complete"})
            assert (await client.result(update))["resultType"] == "complete"
            for count in (2, 3):
                get = client.post("tasks/get", {"taskId": ident})
                (await upstream.asked("tasks/get", count)).reply(state("completed", result=text("done")))
                assert said((await client.result(get))["result"]) == "done"
            assert [call.outcome for call in stage.calls()] == ["ok"]


@requirement("tasks:forwarded")
async def test_of_a_task_that_its_server_forgot_a_client_that_speaks_tasks_reads_what_to_do() -> None:
    upstream = working()
    async with proxy_over(upstream) as stage:
        client = speaking(stage.client)
        get = client.post("tasks/get", {"taskId": (await client.call_tool("calc__slow", {}))["taskId"]})
        (await upstream.asked("tasks/get")).fail(-32602, "Task not found: t1")
        error = (await client.reply(get))["error"]
        assert error["code"] == -32602 and "t1" not in error["message"]
        assert "it may have been carried out" in error["message"]
        assert [call.outcome for call in stage.calls()] == ["lost"]


@requirement("tasks:forwarded")
async def test_who_did_not_make_the_task_or_speaks_no_tasks_learns_nothing_of_it() -> None:
    upstream = working()
    async with proxy_over(upstream, profiles={"work": {"servers": ["calc"]}}) as stage:
        client, other = speaking(stage.client), speaking(stage.connect("work"))
        ident = (await client.call_tool("calc__slow", {}))["taskId"]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            for asker, wrong in ((other, ident), (client, "t1"), (client, ident[:-1]), (client, 7), (client, None)):
                refused = await asker.reply(asker.post(method, {"taskId": wrong, "inputResponses": {}}))
                assert refused["error"]["code"] == -32602 and "t1" not in refused["error"]["message"]
            client.modern()
            assert (await client.reply(client.post(method, {"taskId": ident})))["error"]["code"] == -32021
            speaking(client)
            assert upstream.count(method) == 0
        cancelled = client.post("tasks/cancel", {"taskId": ident})
        (await upstream.asked("tasks/cancel")).reply({"resultType": "complete"})
        await client.result(cancelled)
        assert [call.outcome for call in stage.calls()] == ["cancelled"]
