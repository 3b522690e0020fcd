"""`Store`: one SQLite file, one method per question; the only SQL of ours besides the migrations.

Above it: `server/` and the CLI, which see records and never rows. Below it: `sqlite3` in autocommit mode, so that
every transaction is one that is spelled out here. Several processes share the file (write-ahead log); a write that
cannot have the lock within `busy_ms`, or has no room, raises `StorageError` and leaves nothing behind.

A commit survives the death of the process (`synchronous=NORMAL`: no fsync per commit; a power cut may lose the last
moments but harms nothing). Commits fill the write-ahead log, and moving the log into the file does cost fsyncs: by
SQLite's default that stalls the event loop for 4 ms every few hundred calls. Hence `checkpoint`, for a worker thread,
does the bulk of it; SQLite's own stays on at `_BACKSTOP_PAGES`, so that the log is bounded even when nobody calls.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec
from msgspec.structs import astuple

from foretool.storage.migrations import MIGRATIONS, is_foreign, migrate, schema_version
from foretool.storage.records import (
    Call,
    Changes,
    ClientRecord,
    Discovery,
    Era,
    Exposure,
    Match,
    Miss,
    Prompt,
    SessionRecord,
    Statistics,
    StepRecord,
    Tool,
    ToolId,
    ToolVersion,
    UpstreamRecord,
    UpstreamState,
    Usage,
    WorkingSet,
)

Memory = Literal[":memory:"]

_OPENING_S = 5.0
"""How long opening waits for another process that is migrating the same file."""

_BACKSTOP_PAGES = 4096
"""Pages of 4 KiB in the log before SQLite checkpoints by itself, inside a commit: 16 MiB."""

_CHECKPOINT_COMMITS = 250
"""Commits after which `checkpoint` is worth a thread; 2 to 4 MiB of log."""

_PRUNED_AT_ONCE = 2000
"""Rows deleted per transaction: a few ms, so that a proxy that writes meanwhile does not run into its `busy_ms`."""

_KEPT_DELAYS = 31
"""Re-list delays per client from which the median is taken."""

_TRANSACTION = ("COMMIT", ("ROLLBACK",))
_SAVEPOINT = ("RELEASE inner_block", ("ROLLBACK TO inner_block", "RELEASE inner_block"))

_CALL_HEAD = ("session", "at", "tool", "upstream", "via", "hidden", "outcome", "took_ms", "sent", "arguments")
_CALL = (*_CALL_HEAD, "discovery", "handle")
_MISS_HEAD = ("session", "at", "tool", "noticed", "cause", "rank", "of", "query")
_MISS_TAIL = ("exposure", "discovery", "change", "recovered", "turns", "tokens")
_MISS = (*_MISS_HEAD, "history", *_MISS_TAIL, "parts", "call")
_SESSION = ("key", "client", "version", "era", "transport", "profile", "started_at", "ended_at")
_UPSTREAM = ("era", "server_info", "instructions", "capabilities", "lacks")
_PROMPT = ("at", "text", "session", "cwd")
_STEP_FIGURES = ("tokens", "budget", "probability", "sufficiency", "fallback", "cached", "error", "took_ms")
_STEP = ("session", "at", "task", "tools", "fragments", *_STEP_FIGURES)

_call_row = attrgetter(*_CALL)
_miss_head = attrgetter(*_MISS_HEAD)
_miss_tail = attrgetter(*_MISS_TAIL)
_session_row = attrgetter(*_SESSION)
_prompt_row = attrgetter(*_PROMPT)
_step_figures = attrgetter(*_STEP_FIGURES)
_upstream_row = attrgetter(*_UPSTREAM)

_strings = msgspec.json.Decoder(tuple[str, ...])
_tool_ids = msgspec.json.Decoder(tuple[ToolId, ...])
_numbers = msgspec.json.Decoder(list[float])
_parts = msgspec.json.Decoder(dict[str, float])
_matches = msgspec.json.Decoder(tuple[Match, ...])


def _insert(table: str, columns: Sequence[str]) -> str:
    places = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({_listed(columns)}) VALUES ({places})"  # noqa: S608  # names are constants of this file


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


_ADD_CALL = _insert("calls", _CALL)
_ADD_MISS = _insert("misses", _MISS)
_ADD_PROMPT = _insert("prompts", _PROMPT)
_ADD_STEP = _insert("steps", _STEP)
_ADD_SESSION = (
    f"INSERT INTO sessions ({_listed(_SESSION)}, first_call)"  # noqa: S608  # names are constants of this file
    " SELECT ?, ?, ?, ?, ?, ?, ?, ?, coalesce(max(id), 0) + 1 FROM calls WHERE true ON CONFLICT (key) DO NOTHING"
)
_GET_CALLS = f"SELECT {_listed(_CALL)}, id FROM calls"  # noqa: S608  # as above
_GET_MISSES = f"SELECT {_listed(_MISS)}, id FROM misses"  # noqa: S608
_GET_SESSIONS = f"SELECT {_listed(_SESSION)} FROM sessions"  # noqa: S608
_GET_EXPOSURES = (
    "SELECT session, at, policy, epoch, lists.tools, tokens, reason, exposures.id"
    " FROM exposures JOIN lists ON lists.id = exposures.list"
)
_GET_DISCOVERIES = (
    "SELECT session, at, task, names, sufficiency, level, matches, tokens, took_ms, id, handle, probability"
    " FROM discoveries"
)
_GET_PROMPTS = f"SELECT {_listed(_PROMPT)}, id FROM prompts"  # noqa: S608
_GET_STEPS = f"SELECT {_listed(_STEP)}, id FROM steps"  # noqa: S608
_GET_STATES = (
    "SELECT pid, started_at, upstream, state, since, era, tools, restarts, skipped_lines, last_error, stderr"
    " FROM upstream_states"
)

# Calls have no index but their id, so a session's first id spares reading the whole table.
_OF_SESSION = (
    "WHERE session = :session AND id >= coalesce((SELECT first_call FROM sessions WHERE key = :session), 0)"
    " ORDER BY at, id"
)
_OF_CLIENT = "WHERE client = ? AND version = ? AND era = ?"
_GET_CLIENTS = "SELECT client, version, era, announced, relisted, delays, last_seen FROM clients"
_GET_UPSTREAMS = (
    "SELECT id, name, fingerprint, era, server_info, instructions, capabilities, listed_at, lacks FROM upstreams"
)

_FOLD_CALLS = """
INSERT INTO usage (tool, calls, misses, last_at)
SELECT tool, count(*), 0, max(at) FROM calls WHERE id > ? AND id <= ? GROUP BY tool
ON CONFLICT (tool) DO UPDATE SET calls = calls + excluded.calls, last_at = max(last_at, excluded.last_at)
"""
_FOLD_MISSES = """
INSERT INTO usage (tool, calls, misses, last_at)
SELECT tool, 0, count(*), 0 FROM misses
WHERE id > ? AND id <= ? AND tool <> '' AND noticed NOT IN ('unknown_name', 'nothing_found') GROUP BY tool
ON CONFLICT (tool) DO UPDATE SET misses = misses + excluded.misses
"""
_USAGE = """
    SELECT tool, sum(calls), sum(misses), max(last_at) FROM (
        SELECT tool, count(*) AS calls, 0 AS misses, max(at) AS last_at FROM calls
            WHERE at >= :since AND (:profile IS NULL OR session IN (SELECT key FROM sessions WHERE profile = :profile))
            GROUP BY tool
        UNION ALL
        SELECT tool, 0, count(*), 0.0 FROM misses
            WHERE at >= :since AND noticed NOT IN ('unknown_name', 'nothing_found')
            AND (:profile IS NULL OR session IN (SELECT key FROM sessions WHERE profile = :profile))
            GROUP BY tool
    ) GROUP BY tool ORDER BY sum(calls) DESC, max(last_at) DESC, tool
"""

# A prompt belongs to no profile: its client may be connected to any.
_TASKS = """
    SELECT task FROM (
        SELECT task, at FROM discoveries WHERE at >= :since AND task != ''
            AND (:profile IS NULL OR session IN (SELECT key FROM sessions WHERE profile = :profile))
        UNION ALL
        SELECT text, at FROM prompts WHERE :profile IS NULL AND at >= :since AND text != ''
    ) GROUP BY task ORDER BY max(at) DESC LIMIT :limit
"""

_TOOLS = """
    SELECT tools.exposed, tools.name, definitions.definition, definitions.schema_hash, definitions.tokens
        FROM tools JOIN definitions ON definitions.id = tools.definition
        WHERE tools.upstream = ? ORDER BY tools.position
"""

_HEADS = """
    SELECT upstreams.name, upstreams.fingerprint, tools.exposed, tools.name, substr(definitions.definition, 1, ?)
        FROM tools JOIN upstreams ON upstreams.id = tools.upstream JOIN definitions ON definitions.id = tools.definition
        ORDER BY tools.upstream, tools.position
"""

_NAMED_TOOLS = """
    SELECT upstreams.name, tools.name, tools.exposed, definitions.definition, schema_hash, tokens
        FROM tools JOIN upstreams ON upstreams.id = tools.upstream JOIN definitions ON definitions.id = tools.definition
        WHERE tools.exposed = ? AND upstreams.name = ? AND upstreams.fingerprint = ?
"""

_STATISTICS = """
    SELECT (SELECT count(*) FROM upstreams), (SELECT count(*) FROM tools), (SELECT count(*) FROM tool_versions),
        (SELECT count(*) FROM sessions), (SELECT count(*) FROM exposures), (SELECT count(*) FROM discoveries),
        (SELECT count(*) FROM calls), (SELECT count(*) FROM misses), (SELECT count(*) FROM clients),
        (SELECT page_count * page_size FROM pragma_page_count, pragma_page_size)
"""

# What a kept miss points at stays with it. The newest row stays too: SQLite gives out the id after the highest there
# is, so an emptied table would count from 1 again and old references would come to mean other rows.
_OLD = {
    "calls": "at < :before AND id NOT IN (SELECT call FROM misses) AND id != (SELECT max(id) FROM calls)",
    "exposures": "at < :before AND id NOT IN (SELECT exposure FROM misses) AND id != (SELECT max(id) FROM exposures)",
    "discoveries": (
        "at < :before AND id NOT IN (SELECT discovery FROM misses) AND id NOT IN (SELECT discovery FROM calls)"
        " AND id != (SELECT max(id) FROM discoveries)"
    ),
    "prompts": "at < :before AND id != (SELECT max(id) FROM prompts)",
    "steps": "at < :before AND id != (SELECT max(id) FROM steps)",
    "lists": "id NOT IN (SELECT list FROM exposures)",
    "sessions": (
        "started_at < :before AND coalesce(ended_at, started_at) < :before"
        " AND key NOT IN (SELECT session FROM calls) AND key NOT IN (SELECT session FROM exposures)"
        " AND key NOT IN (SELECT session FROM discoveries) AND key NOT IN (SELECT session FROM misses)"
    ),
}


class StorageError(Exception):
    """The file could not be read or written; the message says which, what was found, and the way out."""

    def __init__(self, message: str, *, temporary: bool = False) -> None:
        super().__init__(message)
        self.temporary = temporary
        """The same call may succeed later: the file was locked, or the disk full."""


class Store:
    """One open file. Used from one thread, except `checkpoint`; other processes open their own.

    Every method may raise `StorageError`; a write that raised has left nothing in the file and may be repeated.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path | Memory, busy_ms: int = 250) -> None:
        """Over an open, migrated connection in autocommit mode; others call `Store.open`."""
        self.path = path
        self._db = connection
        self._busy_ms = busy_ms
        # 0 outside every `atomic`; the connection's own `in_transaction` may outlive it if a rollback failed.
        self._depth = 0
        # Since the last `checkpoint`; a guess at the length of the log.
        self._commits = 0

    @classmethod
    def open(cls, path: Path | Memory, *, busy_ms: int = 250) -> Store:
        """Open the file, made and migrated if need be: directory 0700 and file 0600 where they are new.

        `busy_ms` is how long a later write may wait, on the calling thread, for another process's write to end.
        Raises `StorageError` for a damaged file, one of a newer foretool or of another program, or no permission.
        """
        try:
            if isinstance(path, Path):
                _create_private(path)
            connection = sqlite3.connect(path, timeout=_OPENING_S, isolation_level=None)
            try:
                _prepare(connection, path)
                connection.execute(f"PRAGMA busy_timeout = {int(busy_ms)}")
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}; check the storage path and its permissions") from error
        except sqlite3.Error as error:
            raise _explain(error, path, busy_ms) from error
        return cls(connection, path, busy_ms)

    def close(self) -> None:
        """Close the file; the last process to do so also empties the write-ahead log (up to some 10 ms)."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Transactions

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Everything written inside is in the file at the end, or nothing is; blocks nest.

        Takes the write lock at once, so it is short and never awaits. Let a `StorageError` leave the outermost block.
        """
        with self._block("BEGIN IMMEDIATE"):
            yield
        if not self._depth:
            self._commits += 1

    @contextmanager
    def _block(self, begin: str) -> Iterator[None]:
        commit, undo = _SAVEPOINT if self._depth else _TRANSACTION
        self._settle()
        try:
            self._run("SAVEPOINT inner_block" if self._depth else begin)
        except StorageError:
            self._settle()
            raise
        self._depth += 1
        try:
            yield
            self._run(commit)
        except BaseException:
            # SQLite itself has already rolled back after some errors (full disk, I/O).
            if self._db.in_transaction:
                for statement in undo:
                    self._run(statement)
            raise
        finally:
            self._depth -= 1

    def _settle(self) -> None:
        """Undo a transaction whose rollback failed; else the next commit would be none."""
        if not self._depth and self._db.in_transaction:
            self._run("ROLLBACK")

    def _run(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        try:
            return self._db.execute(sql, values)
        except UnicodeEncodeError:
            return self._run(sql, _writable(values))
        except (sqlite3.Error, OverflowError) as error:
            raise _explain(error, self.path, self._busy_ms) from error

    def _run_all(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            # Looked at before, since the rows in front of one that cannot be written would be in already.
            self._db.executemany(sql, [row if all(map(_is_writable, row)) else _writable(row) for row in rows])
        except (sqlite3.Error, OverflowError) as error:
            raise _explain(error, self.path, self._busy_ms) from error

    def _rows(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise _explain(error, self.path, self._busy_ms) from error

    # For the other files of this folder.

    def read(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query."""
        return self._rows(sql, values)

    def read_each(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Rows of a query one by one, where there are many of which little is kept."""
        try:
            yield from self._db.execute(sql, values)
        except sqlite3.Error as error:
            raise _explain(error, self.path, self._busy_ms) from error

    def write_all(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """One statement for many rows, in one transaction."""
        with self.atomic():
            self._run_all(sql, rows)

    def _row(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> tuple[Any, ...] | None:
        rows = self._rows(sql, values)
        return rows[0] if rows else None

    def _last_id(self) -> int:
        # Not the cursor's `lastrowid`, which `executemany` leaves unset.
        return int(self._rows("SELECT last_insert_rowid()")[0][0])

    # The write-ahead log

    @property
    def is_checkpoint_due(self) -> bool:
        """Enough was written since the last `checkpoint` to be worth a thread."""
        return self._commits >= _CHECKPOINT_COMMITS

    def checkpoint(self) -> int:
        """Move the write-ahead log into the file, from any thread; waits for nobody and blocks no writer.

        Returns the pages that had to stay in the log because a reader, or a write since, still needs them there.
        """
        self._commits = 0
        if not isinstance(self.path, Path):
            return 0
        try:
            connection = sqlite3.connect(self.path, timeout=0, isolation_level=None)
            try:
                _, in_log, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise _explain(error, self.path, 0) from error
        return int(in_log - moved)

    # Calls and misses

    def record(self, calls: Sequence[Call], misses: Sequence[Miss] = ()) -> None:
        """Commit a batch in one transaction; when this returns, `kill -9` loses none of it.

        A miss that one of these calls revealed has that call's place in `calls`, counted from 1, as its `call`; the
        file holds the id instead. Raises `ValueError` if there is no such place.
        """
        if len(calls) == 1 and not misses:
            self._settle()
            self._run(_ADD_CALL, _call_row(calls[0]))
            self._commits += 1
            return
        if not calls and not misses:
            return
        if any(not 0 <= miss.call <= len(calls) for miss in misses):
            raise ValueError(f"Miss.call is the place of a call in its batch of {len(calls)}, 1 the first, or 0")
        with self.atomic():
            self._run_all(_ADD_CALL, map(_call_row, calls))
            # One writer at a time: the ids of a batch follow each other.
            before = self._last_id() - len(calls) if calls else 0
            self._run_all(_ADD_MISS, (_miss_row(miss, before + miss.call if miss.call else 0) for miss in misses))

    def call(self, id: int) -> Call | None:
        row = self._row(f"{_GET_CALLS} WHERE id = ?", (id,))
        return _call(row) if row else None

    def recent_calls(self, limit: int) -> list[Call]:
        """The newest first."""
        return [_call(row) for row in self._rows(f"{_GET_CALLS} ORDER BY id DESC LIMIT ?", (limit,))]

    def session_calls(self, session: str) -> list[Call]:
        """The oldest first."""
        return [_call(row) for row in self._rows(f"{_GET_CALLS} {_OF_SESSION}", {"session": session})]

    def history(self, session: str) -> list[ToolId]:
        """The tools a session called, the oldest first, as often as it did."""
        rows = self._rows(f"SELECT tool FROM calls {_OF_SESSION}", {"session": session})  # noqa: S608  # a constant
        return [ToolId(tool) for (tool,) in rows]

    def usage(self, profile: str | None = None, since: float = 0.0) -> list[Usage]:
        """Every tool called or missed at or after `since`, in one profile or (None) all; the most called first.

        Misses are those of tools that exist; `last_at` is that of the last call, 0 without one. For all profiles and
        times it reads a summary and the calls since that was last brought up to date; else every call on record
        (100 ms per 200,000).
        """
        if profile is None and not since:
            self.fold_usage()
            rows = self._rows("SELECT tool, calls, misses, last_at FROM usage ORDER BY calls DESC, last_at DESC, tool")
        else:
            rows = self._rows(_USAGE, {"profile": profile, "since": since})
        return [Usage(ToolId(tool), calls, misses, last_at) for tool, calls, misses, last_at in rows]

    def fold_usage(self) -> None:
        """Bring the summary behind `usage` up to date; recording a call does not, so that it stays cheap."""
        with self.atomic():
            call, miss = self._row("SELECT call, miss FROM usage_folded WHERE id = 1") or (0, 0)
            newest = self._row("SELECT (SELECT max(id) FROM calls), (SELECT max(id) FROM misses)") or (None, None)
            until = (newest[0] or call, newest[1] or miss)
            if until == (call, miss):
                return
            self._run(_FOLD_CALLS, (call, until[0]))
            self._run(_FOLD_MISSES, (miss, until[1]))
            self._run("INSERT OR REPLACE INTO usage_folded (id, call, miss) VALUES (1, ?, ?)", until)

    def miss(self, id: int) -> Miss | None:
        row = self._row(f"{_GET_MISSES} WHERE id = ?", (id,))
        return _miss(row) if row else None

    def misses_since(self, at: float, limit: int = -1) -> list[Miss]:
        """The newest first; a negative limit is none."""
        sql = f"{_GET_MISSES} WHERE at >= ? ORDER BY at DESC, id DESC LIMIT ?"
        return [_miss(row) for row in self._rows(sql, (at, limit))]

    def causes_since(self, at: float) -> dict[str, int]:
        """How many misses each cause has, the most frequent first."""
        sql = "SELECT cause, count(*) FROM misses WHERE at >= ? GROUP BY cause ORDER BY count(*) DESC, cause"
        return dict(self._rows(sql, (at,)))

    # Sessions, exposures, discoveries

    def begin_session(self, session: SessionRecord) -> None:
        """Note a session, before its first call, and that its client was seen; a key already there stays as it is."""
        with self.atomic():
            self._run(_ADD_SESSION, _session_row(session))
            self._see_client(session.client, session.version, session.era, session.started_at)

    def end_session(self, key: str, at: float) -> None:
        self._run("UPDATE sessions SET ended_at = ? WHERE key = ?", (at, key))

    def session(self, key: str) -> SessionRecord | None:
        row = self._row(f"{_GET_SESSIONS} WHERE key = ?", (key,))
        return SessionRecord(*row) if row else None

    def sessions(self, limit: int = -1) -> list[SessionRecord]:
        """The newest first."""
        rows = self._rows(f"{_GET_SESSIONS} ORDER BY started_at DESC, rowid DESC LIMIT ?", (limit,))
        return [SessionRecord(*row) for row in rows]

    def add_exposure(self, exposure: Exposure) -> int:
        """Returns its id."""
        tools = _json(exposure.tools)
        digest = hashlib.sha256(tools.encode()).digest()
        with self.atomic():
            self._run("INSERT INTO lists (hash, tools) VALUES (?, ?) ON CONFLICT (hash) DO NOTHING", (digest, tools))
            self._run(
                "INSERT INTO exposures (session, at, policy, epoch, list, tokens, reason)"
                " SELECT ?, ?, ?, ?, id, ?, ? FROM lists WHERE hash = ?",
                (
                    exposure.session,
                    exposure.at,
                    exposure.policy,
                    exposure.epoch,
                    exposure.tokens,
                    exposure.reason,
                    digest,
                ),
            )
            return self._last_id()

    def exposure(self, id: int) -> Exposure | None:
        row = self._row(f"{_GET_EXPOSURES} WHERE exposures.id = ?", (id,))
        return _exposure(row) if row else None

    def session_exposures(self, session: str) -> list[Exposure]:
        """The oldest first."""
        rows = self._rows(f"{_GET_EXPOSURES} WHERE session = ? ORDER BY exposures.id", (session,))
        return [_exposure(row) for row in rows]

    def add_discovery(self, discovery: Discovery) -> int:
        """Returns its id."""
        with self.atomic():
            self._run(
                "INSERT INTO discoveries"
                " (session, at, task, names, sufficiency, level, matches, tokens, took_ms, handle, probability)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    discovery.session,
                    discovery.at,
                    discovery.task,
                    _json(discovery.names),
                    discovery.sufficiency,
                    discovery.level,
                    _json(discovery.matches),
                    discovery.tokens,
                    discovery.took_ms,
                    discovery.handle,
                    discovery.probability,
                ),
            )
            return self._last_id()

    def name_discovery(self, id: int, handle: str) -> None:
        """The handle that its answer gave out has come back: it belongs to that conversation."""
        self._run("UPDATE discoveries SET handle = ? WHERE id = ?", (handle, id))

    def discovery(self, id: int) -> Discovery | None:
        row = self._row(f"{_GET_DISCOVERIES} WHERE id = ?", (id,))
        return _discovery(row) if row else None

    def recent_discoveries(self, limit: int) -> list[Discovery]:
        """The newest first."""
        return [_discovery(row) for row in self._rows(f"{_GET_DISCOVERIES} ORDER BY id DESC LIMIT ?", (limit,))]

    def tasks(self, since: float = 0.0, limit: int = -1, profile: str | None = None) -> list[str]:
        """What was wanted, in words: texts given to discoveries and recorded prompts, each once, the latest first.

        With a `profile` only the discoveries of its clients.
        """
        rows = self._rows(_TASKS, {"since": since, "limit": limit, "profile": profile})
        return [task for (task,) in rows]

    def add_prompt(self, prompt: Prompt) -> int:
        """Keep what a user asked for; returns its id."""
        with self.atomic():
            self._run(_ADD_PROMPT, _prompt_row(prompt))
            return self._last_id()

    def prompts(self, since: float = 0.0, limit: int = -1) -> list[Prompt]:
        """Recorded prompts, the newest first."""
        rows = self._rows(f"{_GET_PROMPTS} WHERE at >= ? ORDER BY at DESC, id DESC LIMIT ?", (since, limit))
        return [Prompt(*row) for row in rows]

    def add_step(self, step: StepRecord) -> int:
        """Keep what was put together for a step; returns its id."""
        head = (step.session, step.at, step.task, _json(step.tools), _json(step.fragments))
        with self.atomic():
            self._run(_ADD_STEP, (*head, *_step_figures(step)))
            return self._last_id()

    def steps(self, since: float = 0.0, limit: int = -1) -> list[StepRecord]:
        """What was put together for steps, the newest first."""
        rows = self._rows(f"{_GET_STEPS} WHERE at >= ? ORDER BY at DESC, id DESC LIMIT ?", (since, limit))
        return [_step(row) for row in rows]

    # The client ledger

    def add_client_relist(
        self,
        client: str,
        version: str,
        era: Era,
        announced: int,
        relisted: int,
        ms: float | None = None,
        *,
        at: float | None = None,
    ) -> None:
        """Add to a client's counts; `ms` is the delay of one re-list, `at` now if not given."""
        key = (client, version, era)
        with self.atomic():
            self._see_client(*key, time.time() if at is None else at)
            delays = _numbers.decode(self._rows(f"SELECT delays FROM clients {_OF_CLIENT}", key)[0][0])  # noqa: S608
            if ms is not None:
                delays = [*delays, ms][-_KEPT_DELAYS:]
            self._run(
                f"UPDATE clients SET announced = announced + ?, relisted = relisted + ?, delays = ? {_OF_CLIENT}",  # noqa: S608  # a constant
                (announced, relisted, _json(delays), *key),
            )

    def _see_client(self, client: str, version: str, era: Era, at: float) -> None:
        self._run(
            "INSERT INTO clients (client, version, era, announced, relisted, delays, last_seen)"
            " VALUES (?, ?, ?, 0, 0, '[]', ?)"
            " ON CONFLICT (client, version, era) DO UPDATE SET last_seen = max(last_seen, excluded.last_seen)",
            (client, version, era, at),
        )

    def client(self, name: str, version: str, era: Era) -> ClientRecord | None:
        row = self._row(f"{_GET_CLIENTS} {_OF_CLIENT}", (name, version, era))
        return _client(row) if row else None

    def clients(self) -> list[ClientRecord]:
        """The latest seen first."""
        return [_client(row) for row in self._rows(f"{_GET_CLIENTS} ORDER BY last_seen DESC, client, version")]

    # The catalogue

    def catalog_version(self) -> int:
        """Goes up with every change of an upstream, a tool or an exposed name, by any process; 5 us to ask."""
        row = self._row("SELECT value FROM counters WHERE name = 'catalog'")
        return row[0] if row else 0

    def _bump_catalog(self) -> None:
        self._run(
            "INSERT INTO counters (name, value) VALUES ('catalog', 1)"
            " ON CONFLICT (name) DO UPDATE SET value = value + 1"
        )

    def upstreams(self) -> list[UpstreamRecord]:
        """All that any proxy ever saved, by name; the same name once per fingerprint, the latest listed first."""
        rows = self._rows(f"{_GET_UPSTREAMS} ORDER BY name, listed_at DESC")
        return [UpstreamRecord(*row[1:]) for row in rows]

    def load_catalog(self, upstreams: Sequence[tuple[str, str]]) -> list[tuple[UpstreamRecord, list[Tool]]]:
        """What is remembered of the upstreams (name, fingerprint), in that order, from one moment of the file.

        An upstream never saved is left out. Tools come in the order the upstream listed them; each `id` is the name
        it was last exposed under, which other settings may have changed since.
        """
        with self._block("BEGIN"):
            found = (self._row(f"{_GET_UPSTREAMS} WHERE name = ? AND fingerprint = ?", key) for key in upstreams)
            return [(UpstreamRecord(*row[1:]), self._tools(row[0], row[1])) for row in found if row]

    def tool_heads(self, upstreams: Sequence[tuple[str, str]], size: int) -> list[tuple[str, ToolId, str, bytes]]:
        """Upstream, exposed name, name there and the first `size` bytes of the definition of every tool of these
        upstreams (name and fingerprint): for who wants a few of very many tools at once."""
        wanted = set(upstreams)
        rows = self._rows(_HEADS, (size,))
        return [(name, tool, own, head) for name, fingerprint, tool, own, head in rows if (name, fingerprint) in wanted]

    def tools_named(self, tools: Iterable[tuple[ToolId, str, str]]) -> list[Tool]:
        """The tools of these exposed names, upstreams and fingerprints, in this order; unknown ones are left out."""
        found: list[Tool] = []
        for wanted in tools:
            for upstream, name, exposed, definition, schema_hash, tokens in self._rows(_NAMED_TOOLS, wanted):
                found.append(Tool(ToolId(exposed), upstream, name, definition, schema_hash, tokens))
        return found

    def _tools(self, id: int, upstream: str) -> list[Tool]:
        return [
            Tool(exposed, upstream, name, definition, schema_hash, tokens)
            for exposed, name, definition, schema_hash, tokens in self._rows(_TOOLS, (id,))
        ]

    def save_upstream(self, upstream: UpstreamRecord, tools: Sequence[Tool]) -> Changes:
        """Replace what is remembered of an upstream and its tools (names unique); earlier definitions stay on record.

        The catalogue's version moves only if something but `listed_at` is new.
        """
        with self.atomic():
            id, is_new = self._save_upstream_row(upstream)
            before = self._current(id)
            after = {tool.name: (tool.schema_hash, tool.id) for tool in tools}
            if list(before.items()) != list(after.items()) or len(after) != len(tools):
                self._replace_tools(id, upstream, tools)
                is_new = True
            self._save_tokens({tool.schema_hash: tool.tokens for tool in tools if tool.tokens is not None})
            if is_new:
                self._bump_catalog()
        return _changes(before, after)

    def _save_upstream_row(self, upstream: UpstreamRecord) -> tuple[int, bool]:
        """Its row's id, and whether anything but the time was new."""
        row = self._row(f"{_GET_UPSTREAMS} WHERE name = ? AND fingerprint = ?", (upstream.name, upstream.fingerprint))
        if row is None:
            self._run(
                _insert("upstreams", ("name", "fingerprint", *_UPSTREAM, "listed_at")),
                (upstream.name, upstream.fingerprint, *_upstream_row(upstream), upstream.listed_at),
            )
            return self._last_id(), True
        self._run(
            "UPDATE upstreams SET era = ?, server_info = ?, instructions = ?, capabilities = ?, lacks = ?,"
            " listed_at = ? WHERE id = ?",
            (*_upstream_row(upstream), upstream.listed_at, row[0]),
        )
        return row[0], (*row[3:7], row[8]) != _upstream_row(upstream)

    def _current(self, id: int) -> dict[str, tuple[str, ToolId]]:
        """Upstream name to (schema hash, exposed name), in the order listed."""
        rows = self._rows(
            "SELECT tools.name, definitions.schema_hash, tools.exposed FROM tools"
            " JOIN definitions ON definitions.id = tools.definition WHERE tools.upstream = ? ORDER BY tools.position",
            (id,),
        )
        return {name: (schema_hash, ToolId(exposed)) for name, schema_hash, exposed in rows}

    def _replace_tools(self, id: int, upstream: UpstreamRecord, tools: Sequence[Tool]) -> None:
        self._run_all(
            "INSERT INTO definitions (schema_hash, definition) VALUES (?, ?) ON CONFLICT (schema_hash) DO NOTHING",
            ((tool.schema_hash, tool.definition) for tool in tools),
        )
        self._run("DELETE FROM tools WHERE upstream = ?", (id,))
        self._run_all(
            "INSERT INTO tools (upstream, name, position, exposed, definition)"
            " SELECT ?, ?, ?, ?, id FROM definitions WHERE schema_hash = ?",
            ((id, tool.name, position, tool.id, tool.schema_hash) for position, tool in enumerate(tools)),
        )
        self._run(
            "INSERT INTO tool_versions (upstream, name, definition, first_seen)"
            " SELECT ?, name, definition, ? FROM tools WHERE upstream = ?"
            " ON CONFLICT (upstream, name, definition) DO NOTHING",
            (upstream.name, upstream.listed_at, id),
        )

    def versions(self, upstream: str, name: str) -> list[ToolVersion]:
        """Every definition the tool has had, by its upstream's name and its own there, the oldest first."""
        rows = self._rows(
            "SELECT schema_hash, definitions.definition, tokens, first_seen FROM tool_versions"
            " JOIN definitions ON definitions.id = tool_versions.definition"
            " WHERE upstream = ? AND name = ? ORDER BY first_seen, tool_versions.rowid",
            (upstream, name),
        )
        return [ToolVersion(*row) for row in rows]

    def set_tokens(self, tokens: Mapping[str, int]) -> None:
        """Keep counts by schema hash, for every upstream that has that definition; unknown hashes are passed over."""
        with self.atomic():
            self._save_tokens(tokens)

    def _save_tokens(self, tokens: Mapping[str, int]) -> None:
        self._run_all(
            "UPDATE definitions SET tokens = ? WHERE schema_hash = ? AND tokens IS NOT ?",
            ((count, schema_hash, count) for schema_hash, count in tokens.items()),
        )

    def exposed_names(self) -> dict[ToolId, tuple[str, str]]:
        """Every exposed name ever given, with the upstream's name and the tool's name there."""
        rows = self._rows("SELECT exposed, upstream, name FROM exposed_names")
        return {ToolId(exposed): (upstream, name) for exposed, upstream, name in rows}

    def save_exposed_names(self, names: Mapping[ToolId, tuple[str, str]]) -> dict[ToolId, tuple[str, str]]:
        """Keep names for ever; returns those that another tool already has, with it: those were not saved.

        Two proxies may race here with different settings; the first keeps the name, so its meaning never changes.
        """
        with self.atomic():
            known = self.exposed_names()
            new = {exposed: tool for exposed, tool in names.items() if exposed not in known}
            self._run_all(
                "INSERT INTO exposed_names (exposed, upstream, name) VALUES (?, ?, ?)",
                ((exposed, upstream, name) for exposed, (upstream, name) in new.items()),
            )
            if new:
                self._bump_catalog()
        return {exposed: known[exposed] for exposed, tool in names.items() if known.get(exposed, tool) != tool}

    # What running proxies share

    def working_set(self, key: str) -> WorkingSet | None:
        row = self._row("SELECT key, epoch, tools, listing, created_at, inputs FROM working_sets WHERE key = ?", (key,))
        return WorkingSet(row[0], row[1], _tool_ids.decode(row[2]), *row[3:]) if row else None

    def save_working_set(self, working_set: WorkingSet) -> bool:
        """Replace the list of its key; False if the file has this epoch or a later one: read and serve that."""
        values = (
            working_set.key,
            working_set.epoch,
            _json(working_set.tools),
            working_set.listing,
            working_set.created_at,
            working_set.inputs,
        )
        cursor = self._run(
            _insert("working_sets", ("key", "epoch", "tools", "listing", "created_at", "inputs"))
            + " ON CONFLICT (key) DO UPDATE SET epoch = excluded.epoch, tools = excluded.tools,"
            " listing = excluded.listing, created_at = excluded.created_at, inputs = excluded.inputs"
            " WHERE excluded.epoch > epoch",
            values,
        )
        return cursor.rowcount > 0

    def save_state(self, state: UpstreamState) -> None:
        """Replace what this proxy last said of this upstream."""
        self._run(
            "INSERT OR REPLACE INTO upstream_states (pid, started_at, upstream, state, since, era, tools, restarts,"
            " skipped_lines, last_error, stderr) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*astuple(state)[:-1], _json(state.stderr)),
        )

    def states(self) -> list[UpstreamState]:
        """Of every proxy that has not cleared its own, also of one that was killed; ask the system which pids live."""
        rows = self._rows(f"{_GET_STATES} ORDER BY started_at, pid, upstream")
        return [UpstreamState(*[*row[:-1], _strings.decode(row[-1])]) for row in rows]

    def clear_states(self, pid: int, upstream: str | None = None, started_at: float | None = None) -> None:
        """Forget one proxy's states, or its state of one upstream; `started_at` where the pid may be another's now.

        A proxy does so when it ends, and when it starts: the system may have given it the pid of a dead one.
        """
        self._run(
            "DELETE FROM upstream_states WHERE pid = :pid AND (:upstream IS NULL OR upstream = :upstream)"
            " AND (:started_at IS NULL OR started_at = :started_at)",
            {"pid": pid, "upstream": upstream, "started_at": started_at},
        )

    # Upkeep

    def statistics(self) -> Statistics:
        return Statistics(*self._rows(_STATISTICS)[0])

    def prune(self, before: float) -> int:
        """Delete the log from before a time (seconds since the epoch); returns how many rows went.

        Goes: calls, exposures, discoveries, and sessions that have nothing left. Stays: every miss with what it points
        at, since misses are few and are what is learned from; the catalogue with its versions; exposed names; clients.
        One short transaction after another, so other processes keep writing; the file's room is reused, not returned.
        """
        return sum(self._prune_table(table, before) for table in _OLD)

    def _prune_table(self, table: str, before: float) -> int:
        # The rows' own ids are collected first: the conditions are costly, and need no lock.
        old = f"SELECT rowid FROM {table} WHERE {_OLD[table]} ORDER BY rowid"  # noqa: S608  # constants of this file
        ids = [(rowid,) for (rowid,) in self._rows(old, {"before": before})]
        for start in range(0, len(ids), _PRUNED_AT_ONCE):
            with self.atomic():
                self._run_all(f"DELETE FROM {table} WHERE rowid = ?", ids[start : start + _PRUNED_AT_ONCE])  # noqa: S608
        return len(ids)


def _create_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Only a new file is opened here: closing a descriptor drops the locks this process holds on it through SQLite.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _prepare(connection: sqlite3.Connection, path: Path | Memory) -> None:
    found = schema_version(connection)
    if is_foreign(connection):
        raise StorageError(f"{path}: made by another program (schema {found}); set another storage path")
    if found > len(MIGRATIONS):
        raise StorageError(
            f"{path}: written by a newer foretool (schema {found}, this one knows {len(MIGRATIONS)});"
            " upgrade foretool, or set another storage path"
        )
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_BACKSTOP_PAGES}")
    if found < len(MIGRATIONS):
        _use_write_ahead_log(connection)
        migrate(connection)
    # After the migrations, which may rebuild a table that others reference.
    connection.execute("PRAGMA foreign_keys = ON")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Set once per file, which remembers it; waits its turn by hand, since SQLite does not wait here."""
    deadline = time.monotonic() + _OPENING_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _code(error: Exception) -> int:
    """SQLite's primary result code, or 0."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _explain(error: Exception, path: Path | Memory, busy_ms: int) -> StorageError:
    match _code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            message = f"locked by another process for more than {busy_ms} ms; nothing was written, try again"
            return StorageError(f"{path}: {message}", temporary=True)
        case sqlite3.SQLITE_FULL:
            return StorageError(f"{path}: disk full; nothing was written, free some space", temporary=True)
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_INTERRUPT:
            return StorageError(f"{path}: {error}; nothing was written, try again", temporary=True)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StorageError(
                f"{path}: not a readable SQLite file ({error}); it was left as it is:"
                " move it away to start anew, or put a copy in its place"
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return StorageError(f"{path}: {error}; check that the file and its directory may be written")
        case _:
            return StorageError(f"{path}: {error}; nothing was written")


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return str(_text(json.dumps(msgspec.to_builtins(value), ensure_ascii=False)))


def _is_writable(value: object) -> bool:
    return not isinstance(value, str) or value.isascii() or _text(value) == value


def _writable(values: Sequence[Any] | Mapping[str, Any]) -> Any:
    """With marks in place of halves of surrogate pairs, which JSON may hold and no file can."""
    if isinstance(values, Mapping):
        return {key: _text(value) for key, value in values.items()}
    return [_text(value) for value in values]


def _text(value: object) -> object:
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _changes(before: Mapping[str, tuple[str, ToolId]], after: Mapping[str, tuple[str, ToolId]]) -> Changes:
    return Changes(
        added=tuple(id for name, (_, id) in after.items() if name not in before),
        changed=tuple(id for name, (digest, id) in after.items() if name in before and before[name][0] != digest),
        removed=tuple(id for name, (_, id) in before.items() if name not in after),
    )


def _miss_row(miss: Miss, call: int) -> tuple[Any, ...]:
    return (*_miss_head(miss), _json(miss.history), *_miss_tail(miss), _json(miss.parts), call)


def _call(row: Sequence[Any]) -> Call:
    *head, arguments, discovery, handle, id = row
    session, at, tool, upstream, via, hidden, outcome, took_ms, sent = head
    more = (arguments, discovery, id, handle)
    return Call(session, at, tool, upstream, via, bool(hidden), outcome, took_ms, bool(sent), *more)


def _miss(row: Sequence[Any]) -> Miss:
    split = len(_MISS_HEAD)
    *tail, parts, call, id = row[split + 1 :]
    fields = [*row[:split], _tool_ids.decode(row[split]), *tail, _parts.decode(parts), id, call]
    return Miss(*fields)


def _exposure(row: Sequence[Any]) -> Exposure:
    session, at, policy, epoch, tools, tokens, reason, id = row
    return Exposure(session, at, policy, epoch, _tool_ids.decode(tools), tokens, reason, id)


def _discovery(row: Sequence[Any]) -> Discovery:
    session, at, task, names, sufficiency, level, matches, *rest = row
    return Discovery(session, at, task, _strings.decode(names), sufficiency, level, _matches.decode(matches), *rest)


def _step(row: Sequence[Any]) -> StepRecord:
    *head, tools, fragments, tokens, budget, probability, sufficiency, fallback, cached, error, took_ms, id = row
    lists = (_tool_ids.decode(tools), _strings.decode(fragments))
    figures = (tokens, budget, probability, sufficiency, fallback, bool(cached), error, took_ms)
    return StepRecord(*[*head, *lists, *figures, id])


def _client(row: Sequence[Any]) -> ClientRecord:
    client, version, era, announced, relisted, delays, last_seen = row
    return ClientRecord(client, version, era, announced, relisted, _median(_numbers.decode(delays)), last_seen)


def _median(values: Sequence[float]) -> float:
    """The lower one of an even number, 0 of none; the module `statistics` takes 7 ms to import."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0
