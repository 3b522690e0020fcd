"""One record of each kind, and the raw rows of a storage file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from foretool.storage.records import (
    Call,
    Discovery,
    Exposure,
    Failure,
    KeptCall,
    Match,
    Miss,
    SessionRecord,
    Tool,
    ToolId,
    UpstreamRecord,
    UpstreamState,
)
from foretool.storage.steps import finish
from foretool.storage.store import Store

SESSION = SessionRecord("s1", "claude-code", "2.1", "modern", "stdio", "default", 10.0)
CALL = Call("s1", 11.0, ToolId("git__log"), "git", "name", False, "ok", 1.5, True, '{"repo":"string"}', 0, handle="h1")
MISS = Miss(
    session="s1",
    at=12.0,
    tool="git__blame",
    noticed="call",
    cause="budget",
    rank=7,
    of=40,
    query="who wrote this line",
    history=(ToolId("git__log"),),
    exposure=1,
    discovery=1,
    change="raise the budget by 120 tokens",
    recovered="called",
    turns=1,
    tokens=310,
    parts={"lexical": 0.5},
)
EXPOSURE = Exposure("s1", 10.5, "frozen", 2, (ToolId("git__log"), ToolId("git__diff")), 412, "list")
DISCOVERY = Discovery(
    session="s1",
    at=11.5,
    task="who wrote this line",
    names=("git__blame",),
    sufficiency=None,
    level="high",
    matches=(Match(ToolId("git__blame"), 1, 2.5, {"lexical": 2.5}),),
    tokens=210,
    took_ms=0.7,
    handle="h1",
)
UPSTREAM = UpstreamRecord("git", "f1", "legacy", '{"name":"git"}', "Use absolute paths.", '{"tools":{}}', 5.0)
KEPT = KeptCall("i1", "[]", "s1", ToolId("git__log"), "git", "", "legacy", "m", 7, 1.0, 2.0, 9.0, "{}", "{}")
FAILURE = Failure("dead", "e1", "FT301", "exited with code 1 [FT301]; start it by hand", 5.0, 9.0, 3, 400.0)
STATE = UpstreamState(77, 9.0, "git", "ready", 9.5, "legacy", 12, 1, 3, "", ("starting", "ready"))


def tool(name: str, schema_hash: str = "", upstream: str = "git", tokens: int | None = None) -> Tool:
    digest = schema_hash or f"hash of {name}"
    return Tool(ToolId(f"{upstream}__{name}"), upstream, name, b'{"name":"' + digest.encode() + b'"}', digest, tokens)


def rows(path: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(path)
    found = connection.execute(sql).fetchall()
    connection.close()
    return found


def connection_of(store: Any) -> sqlite3.Connection:
    """The connection below a store, for tests that break its file or read it as a whole."""
    connection: sqlite3.Connection = store._database._connection
    return connection


def calls_of(store: Store, session: str) -> list[Call]:
    """The calls of one session, the oldest first."""
    return [call for call in store.calls.recent(-1)[::-1] if call.session == session]


def saved_upstreams(store: Store) -> list[UpstreamRecord]:
    """Every upstream in a store, whatever its fingerprint."""
    keys = connection_of(store).execute("SELECT name, fingerprint FROM upstreams ORDER BY name").fetchall()
    return [record for record, _ in store.catalog.load(keys)]


def fill_store(store: Store) -> None:
    """Put a session, a call, an upstream with two tools and a state into a store."""
    store.sessions.begin(SESSION)
    store.calls.record([CALL])
    finish(store.catalog.save_upstream(UPSTREAM, [tool("a"), tool("b")]))
    store.serving.save_state(replace(STATE, pid=78))


def forget_approvals(store: Store, server: str) -> None:
    """Delete everything of a server, so that its next list counts as the first."""
    store.approvals._database.run("DELETE FROM approvals WHERE server = ?", (server,))


def granted_servers(store: Store, person: str) -> list[str]:
    """The servers that keep a grant of a person."""
    found = store.grants._database.rows("SELECT server FROM grants WHERE person = ? ORDER BY server", (person,))
    return [server for (server,) in found]
