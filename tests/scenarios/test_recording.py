"""What is kept, what is not, and that a store which refuses never stands between a client and its answer."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3

import pytest
from fakes import FakeUpstream, failing_store, proxy_over, said, tool
from requirements import requirement
from stored_records import calls_of, connection_of

from foretool.storage.store import Store

pytestmark = pytest.mark.anyio

SECRET = "s3cr3t-t0ken-value"


def dumped(store: Store) -> str:
    return "\n".join(connection_of(store).iterdump())


@requirement("record:levels")
@pytest.mark.parametrize(
    ("record", "arguments"),
    [
        ("off", ""),
        ("shape", '{"path":"string","depth":"number","flags":"array","deep":"object","on":"boolean","no":"null"}'),
    ],
)
async def test_argument_values_are_not_kept(record: str, arguments: str) -> None:
    given = {"path": "/private/thing", "depth": 1, "flags": [], "deep": {"a": "/private/thing"}, "on": True, "no": None}
    async with proxy_over(FakeUpstream("files", ["read"]), record=record) as stage:
        await stage.client.initialize()
        await stage.client.discover("read my private diary")
        await stage.client.call_tool("files__read", given)
        (call,) = stage.calls()
        kept = dumped(stage.store)
    assert call.arguments == arguments
    assert "/private/thing" not in kept
    assert ("private diary" in kept) is (record != "off")


@requirement("record:levels")
async def test_values_are_kept_where_that_was_asked_for_but_no_secret() -> None:
    upstream = FakeUpstream("files", ["read"], entry={"env": {"TOKEN": "${TOKEN}"}})
    async with proxy_over(upstream, environ={"TOKEN": SECRET}, record="full") as stage:
        await stage.client.initialize()
        await stage.client.call_tool("files__read", {"path": "/etc/hosts", "key": SECRET})
        (call,) = stage.calls()
    assert json.loads(call.arguments) == {"path": "/etc/hosts", "key": "[TOKEN]"}


@requirement("secrets")
async def test_no_secret_reaches_the_store_the_log_or_a_client(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    entry = {"env": {"TOKEN": "${TOKEN}"}, "args": ["--key", "${KEY}"]}
    upstream = FakeUpstream("files", ["read"], entry=entry, stderr=[f"cannot log in with {SECRET}"])
    other = FakeUpstream("other", ["x"], entry=entry, missing=f"login {SECRET} was refused")
    upstream.hold("read")
    environ = {"TOKEN": SECRET, "KEY": "another-secret-value"}
    async with proxy_over(upstream, other, environ=environ) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        call = client.post("tools/call", {"name": "files__read", "arguments": {"a": 1}})
        await upstream.called("read")
        upstream.die(f"exited with code 1; last stderr line: 'bad token {SECRET}, another-secret-value'")
        assert "bad token [TOKEN], [" in said(await client.result(call))
        await client.call_tool("other__x", {})
        await asyncio.sleep(2)
        kept = dumped(stage.store)
        sent = b"\n".join(client.lines).decode()
    for secret in (SECRET, "another-secret-value"):
        assert secret not in kept
        assert secret not in caplog.text
        assert secret not in sent


@requirement("record:before-answer")
async def test_a_call_is_committed_before_its_answer_is_sent() -> None:
    store, _ = failing_store()
    seen: list[int] = []
    async with proxy_over(FakeUpstream("calc", ["add"]), store=store) as stage:
        await stage.client.initialize()
        send = stage.client.send

        def watched(data: bytes) -> None:
            seen.append(len(store.calls.recent(-1)))
            send(data)

        stage.client.send = watched  # type: ignore[method-assign]
        for _ in range(5):
            await stage.client.call_tool("calc__add", {})
    assert seen == [1, 2, 3, 4, 5]


@requirement("record:refusing-store")
@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR])
async def test_while_the_store_refuses_answers_still_come_and_nothing_is_lost(code: int) -> None:
    store, connection = failing_store()
    upstream = FakeUpstream("calc", ["add", "sub"], entry={"pin": ["add"]})
    async with proxy_over(upstream, store=store) as stage:
        connection.refuse = code
        client = stage.client
        await client.initialize()
        assert await client.list_tools() == ["calc__add", "call_tool", "call_tool_write", "discover_tools"]
        assert [each["name"] for each in (await client.discover("sub"))["matches"]] == ["calc__sub"]
        for _ in range(10):
            assert said(await client.call_tool("calc__add", {})) == "add"
        assert said(await client.call_tool("calc__sub", {})) == "sub"
        connection.refuse = 0
        await asyncio.sleep(2)  # of the loop's own time: it is tried again about once a second
        assert [call.tool for call in stage.calls()] == [*["calc__add"] * 10, "calc__sub"]
        assert [miss.tool for miss in stage.misses()] == ["calc__sub"]
        (session,) = store.sessions.recent()
        assert len(store.sessions.exposures(session.key)) == 1
        assert len(store.discoveries.recent(-1)) == 1
        assert len(calls_of(store, session.key)) == 11
        assert (stage.app.recorder.backlog.waiting, stage.app.recorder.backlog.dropped) == (0, 0)
        await client.call_tool("calc__add", {})
        assert len(stage.calls()) == 12


@requirement("record:refusing-store")
async def test_what_was_refused_until_the_end_is_written_at_the_end() -> None:
    store, connection = failing_store()
    async with proxy_over(FakeUpstream("calc", ["add"]), store=store) as stage:
        await stage.client.initialize()
        connection.refuse = sqlite3.SQLITE_BUSY
        await stage.client.call_tool("calc__add", {})
        assert stage.calls() == []
        connection.refuse = 0
    assert [call.tool for call in store.calls.recent(-1)] == ["calc__add"]
    assert store.sessions.recent()[0].ended_at is not None


@requirement("record:sessions")
async def test_a_session_is_on_record_with_who_it_was() -> None:
    async with proxy_over(FakeUpstream("calc", ["add"]), profile="p", profiles={"p": {}}) as stage:
        await stage.client.initialize("claude-code", "2.1")
        await stage.client.list_tools()
        other = stage.connect().modern("codex", "9")
        await other.list_tools()
        sessions = [
            (each.client, each.version, each.era, each.transport, each.profile)
            for each in stage.store.sessions.recent()[::-1]
        ]
        exposures = [stage.store.sessions.exposures(each.key) for each in stage.store.sessions.recent()]
    assert sessions == [("claude-code", "2.1", "legacy", "stdio", "p"), ("codex", "9", "modern", "stdio", "")]
    assert [len(each) for each in exposures] == [1, 1]


@requirement("record:versions")
async def test_every_version_of_a_tool_stays_on_record() -> None:
    upstream = FakeUpstream("calc", [tool("add", "one")], entry={"trust": "auto"})
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        upstream.change(tool("add", "two"))
        await upstream.asked("tools/list", 2)
        await asyncio.sleep(1)
        versions = [json.loads(each.definition)["description"] for each in stage.store.catalog.versions("calc", "add")]
    assert versions == ["one", "two"]
