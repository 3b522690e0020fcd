"""The tables `sessions`, `exposures`, `lists` and `clients`: who was connected, and the tool lists they received."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Any, Final

from msgspec.json import Decoder

from foretool.storage.records import (
    ClientRecord,
    ConversationCost,
    Era,
    Exposure,
    Failure,
    SessionRecord,
    ToolId,
    UpstreamState,
    WorkingSet,
)
from foretool.storage.sql.database import Database, Said, Subject, encode_json
from foretool.storage.sql.tables import STRINGS, TOOL_IDS, Marks, Repeats, Table, read_kept

MOST_CLIENTS = 1000
"""Clients in the ledger, by name, version and era. Above that those without a measurement go first, then the oldest."""
_KEPT_OUTCOMES = 16
"""Latest announcements kept for each client, so that a client which changed is soon treated as it behaves now."""
_KEPT_DELAYS = 31
"""Re-list delays kept for each client, from which the median is taken."""

_SESSIONS = Table("sessions", SessionRecord, said=("client", "version"))
_numbers = Decoder(list[float])

_ADD_SESSION = """
    INSERT INTO sessions (key, client, version, era, transport, profile, started_at, ended_at, first_call)
    SELECT ?, ?, ?, ?, ?, ?, ?, ?, {} + 1 WHERE true ON CONFLICT (key) DO NOTHING
"""
_ADD_EXPOSURE = (
    "INSERT INTO exposures (session, at, policy, epoch, list, tokens, reason)"
    " SELECT ?, ?, ?, ?, id, ?, ? FROM lists WHERE hash = ?"
)
_FIND_EXPOSURE = (
    "SELECT id FROM exposures WHERE at = ? AND session = ? AND reason = ? AND epoch = ? AND tokens = ?"
    " ORDER BY id DESC LIMIT 1"
)
GET_EXPOSURES = (
    "SELECT session, at, policy, epoch, lists.tools, tokens, reason, exposures.id"
    " FROM exposures JOIN lists ON lists.id = exposures.list"
)
_SEE_CLIENT = (
    "INSERT INTO clients (client, version, era, announced, relisted, delays, last_seen)"
    " VALUES (?, ?, ?, 0, 0, '[]', ?)"
    " ON CONFLICT (client, version, era) DO UPDATE SET last_seen = excluded.last_seen"
    " WHERE excluded.last_seen > clients.last_seen"
)
_DROP_CLIENTS = (
    "DELETE FROM clients WHERE rowid IN (SELECT rowid FROM clients"
    " ORDER BY CASE WHEN announced > 0 THEN 1 ELSE 0 END DESC, last_seen DESC LIMIT -1 OFFSET ?)"
)
_OF_CLIENT = "WHERE client = ? AND version = ? AND era = ?"
_GET_CLIENTS = """
    SELECT client, version, era, announced, relisted, delays, last_seen, recent, tries, late,
        (SELECT max(whole_tokens) FROM clients AS other WHERE other.client = clients.client),
        (SELECT max(code_sessions) FROM clients AS other WHERE other.client = clients.client)
    FROM clients
"""
# A version that is new takes over what was measured of the others.
_GET_CONVERSATIONS = """
    WITH given AS (
        SELECT session, max(tokens) AS tokens, sum(CASE WHEN policy = 'full' THEN 1 ELSE 0 END) AS whole FROM exposures
        WHERE reason IN ('list', 'growth', 'epoch') GROUP BY session
    ), searched AS (SELECT session, count(*) AS times FROM discoveries GROUP BY session)
    SELECT client, given.tokens, coalesce(times, 0)
    FROM sessions JOIN given ON given.session = key LEFT JOIN searched ON searched.session = key
    WHERE whole = 0 AND (times > 0 OR key IN (SELECT session FROM calls))
    ORDER BY started_at DESC, sessions.rowid DESC LIMIT ?
"""


class SessionStore(Subject):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._repeated = Repeats(database, _exposure_key, self._find_exposure)

    def begin(self, session: SessionRecord) -> None:
        """Keep a session before its first call, and that its client was seen; a known key stays as it is."""
        with self._database.atomic():
            self._database.run(_ADD_SESSION.format(self._database.newest_sql("calls")), _SESSIONS.row(session))
            self._database.run(
                _SEE_CLIENT, (Said(session.client), Said(session.version), session.era, session.started_at)
            )
            self._database.run(_DROP_CLIENTS, (MOST_CLIENTS,))

    def name_person(self, session: str, person: str, *, learns: bool, at: float) -> None:
        """Record whose a session is and whether it may be learned from, unless that is on record."""
        self._database.run(
            "INSERT INTO session_people (session, person, learns, at) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (session) DO NOTHING",
            (session, person, int(learns), at),
        )

    def unnamed(self, keys: Collection[str]) -> set[str]:
        """Return which of these sessions belong to a person who was forgotten."""
        among = f"session IN ({self._database.json_strings})"
        sql = f"SELECT session FROM session_people WHERE {among} AND person = ''"  # noqa: S608
        return {session for (session,) in self._database.rows(sql, (encode_json(list(keys)),))}

    def name_again(self, session: SessionRecord, person: str) -> None:
        """Record whose a session is after it was forgotten and went on. Nothing of it is learned from."""
        with self._database.atomic():
            self.begin(session)
            self._database.run(
                "UPDATE session_people SET person = ? WHERE session = ? AND person = ''", (person, session.key)
            )

    def people(self) -> dict[str, tuple[str, bool]]:
        """Return by session, where known, whose it is and whether it may be learned from."""
        rows = self._database.rows("SELECT session, person, learns FROM session_people")
        return {session: (person, bool(learns)) for session, person, learns in rows}

    def end(self, key: str, at: float) -> None:
        self._database.run("UPDATE sessions SET ended_at = ? WHERE key = ?", (at, key))

    def reopen(self, key: str) -> None:
        self._database.run("UPDATE sessions SET ended_at = NULL WHERE key = ?", (key,))

    def beginning_with(self, digits: str) -> list[SessionRecord]:
        """Return the sessions whose keys, which are hex digits, begin with these, the latest first."""
        order = "ORDER BY started_at DESC, rowid DESC"
        return _SESSIONS.find_all(self._database, f"WHERE key >= ? AND key < ? {order}", (digits, digits + "g"))

    def get(self, key: str) -> SessionRecord | None:
        return _SESSIONS.find(self._database, "WHERE key = ?", (key,))

    def recent(self, limit: int = -1) -> list[SessionRecord]:
        return _SESSIONS.find_all(self._database, "ORDER BY started_at DESC, rowid DESC LIMIT ?", (limit,))

    def ended(self, keys: Collection[str]) -> set[str]:
        strings = self._database.json_strings
        sql = f"SELECT key FROM sessions WHERE key IN ({strings}) AND ended_at IS NOT NULL"  # noqa: S608
        return {key for (key,) in self._database.rows(sql, (encode_json(list(keys)),))}

    def first_at(self) -> float | None:
        first: float | None = self._database.rows("SELECT min(started_at) FROM sessions")[0][0]
        return first

    def add_exposure(self, exposure: Exposure) -> int:
        if not self._repeated.leave_out([exposure]):
            return self._find_exposure(exposure)
        with self._database.atomic():
            digest = intern_list(self._database, exposure.tools)
            head = (exposure.session, exposure.at, exposure.policy, exposure.epoch)
            return self._database.insert(_ADD_EXPOSURE, (*head, exposure.tokens, exposure.reason, digest))

    def _find_exposure(self, exposure: Exposure) -> int:
        row = self._database.row(_FIND_EXPOSURE, _exposure_key(exposure))
        return int(row[0]) if row else 0

    def exposure(self, id: int) -> Exposure | None:
        row = self._database.row(f"{GET_EXPOSURES} WHERE exposures.id = ?", (id,))
        return read_exposure(row) if row else None

    def exposures(self, session: str) -> list[Exposure]:
        """Return the exposures of one session, the oldest first."""
        rows = self._database.rows(f"{GET_EXPOSURES} WHERE session = ? ORDER BY exposures.id", (session,))
        return [read_exposure(row) for row in rows]

    def conversations(self, limit: int) -> list[ConversationCost]:
        """Return the costs of the latest sessions that called or searched, without those of policy `full`."""
        return [ConversationCost(*row) for row in self._database.rows(_GET_CONVERSATIONS, (limit,))]


class ClientLedger(Subject):
    """What each client, by name and version, does after a list has changed."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._marks = Marks(database, "relists")

    def add_relist(self, seen: ClientRecord) -> None:
        """Add what was seen to a client's counts; `relist_ms` is the delay of one re-list."""
        if self._marks.is_done(seen):
            return
        key = (Said(seen.client), Said(seen.version), seen.era)
        with self._database.atomic():
            self._marks.leave()
            self._database.run(_SEE_CLIENT, (*key, seen.last_seen))
            kept, recent = self._database.rows(f"SELECT delays, recent FROM clients {_OF_CLIENT}", key)[0]  # noqa: S608
            delays = read_kept(_numbers.decode, kept, "clients")
            outcomes = (recent + "1" * seen.relisted + "0" * (seen.announced - seen.relisted))[-_KEPT_OUTCOMES:]
            if seen.relisted:
                delays = [*delays, seen.relist_ms][-_KEPT_DELAYS:]
            self._database.run(
                "UPDATE clients SET announced = announced + ?, relisted = relisted + ?, delays = ?,"  # noqa: S608  # a constant
                f" recent = ?, tries = tries + ?, late = late + ? {_OF_CLIENT}",
                (seen.announced, seen.relisted, encode_json(delays), outcomes, seen.tries, seen.late, *key),
            )

    def set_whole(self, name: str, tokens: int) -> None:
        """Record up to how many tokens a list of all tools is cheaper for a client than searching. Applies to every
        version of the client."""
        self._database.run("UPDATE clients SET whole_tokens = ? WHERE client = ?", (tokens, Said(name)))

    def set_code_sessions(self, name: str, sessions: int) -> None:
        """Record in how many more sessions a client, of any version, gets all tools because code calls them."""
        self._database.run("UPDATE clients SET code_sessions = ? WHERE client = ?", (sessions, Said(name)))

    def spend_code_session(self, name: str) -> None:
        """Subtract 1 from the sessions of `set_code_sessions`; 0 stays 0."""
        self._database.run(
            "UPDATE clients SET code_sessions = code_sessions - 1 WHERE client = ? AND code_sessions > 0", (Said(name),)
        )

    def get(self, name: str, version: str, era: Era) -> ClientRecord | None:
        row = self._database.row(f"{_GET_CLIENTS} {_OF_CLIENT}", (Said(name), Said(version), era))
        return _read_client(row) if row else None

    def all(self) -> list[ClientRecord]:
        rows = self._database.rows(f"{_GET_CLIENTS} ORDER BY last_seen DESC, client, version")
        return [_read_client(row) for row in rows]


def intern_list(database: Database, tools: Sequence[ToolId]) -> bytes:
    """Keep a list of tools once, however many clients were given it; return its hash."""
    written = encode_json(tools)
    digest = hashlib.sha256(written.encode()).digest()
    database.run("INSERT INTO lists (hash, tools) VALUES (?, ?) ON CONFLICT (hash) DO NOTHING", (digest, written))
    return digest


def _exposure_key(exposure: Exposure) -> tuple[float | str | int, ...]:
    return exposure.at, exposure.session, exposure.reason, exposure.epoch, exposure.tokens


def read_exposure(row: Sequence[Any]) -> Exposure:
    """Return the exposure of a row that `GET_EXPOSURES` found."""
    session, at, policy, epoch, tools, tokens, reason, id = row
    return Exposure(session, at, policy, epoch, read_kept(TOOL_IDS.decode, tools, "lists"), tokens, reason, id)


def _read_client(row: Sequence[Any]) -> ClientRecord:
    client, version, era, announced, relisted, delays, last_seen, recent, tries, late, whole, code = row
    median = _median(read_kept(_numbers.decode, delays, "clients"))
    return ClientRecord(client, version, era, announced, relisted, median, last_seen, recent, tries, late, whole, code)


def _median(values: Sequence[float]) -> float:
    """Return the lower median, or 0 without values; the module `statistics` takes 7 ms to import."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0


# The tables `working_sets`, `upstream_states` and `failures`: what running proxies share with each other and with
# commands.


_WORKING_SETS = Table("working_sets", WorkingSet, {"tools": TOOL_IDS, "named": TOOL_IDS})
_STATES = Table("upstream_states", UpstreamState, {"stderr": STRINGS}, said=("last_error", "stderr"))

_FAILURES = Table("failures", Failure, said=("reason",))
_KEPT_S: Final = 30 * 86_400.0
"""A failure of an entry that nobody has tried for so long is forgotten: it was edited."""

_SAVE_WORKING_SET = (
    _WORKING_SETS.insert + " ON CONFLICT (key) DO UPDATE SET epoch = excluded.epoch, tools = excluded.tools,"
    " listing = excluded.listing, created_at = excluded.created_at, inputs = excluded.inputs, named = excluded.named"
    " WHERE excluded.epoch > working_sets.epoch"
)
_SAVE_STATE = _STATES.upsert("machine", "pid", "upstream")
_SAVE_FAILURE = _FAILURES.upsert("server", "entry")
_CLEAR_STATES = (
    "DELETE FROM upstream_states WHERE machine = :machine AND pid = :pid"
    " AND (:upstream IS NULL OR upstream = :upstream) AND (:started_at IS NULL OR started_at = :started_at)"
)


class ServingStore(Subject):
    """What running proxies share: the list of each profile, and the state of their upstreams."""

    def working_set(self, key: str) -> WorkingSet | None:
        return _WORKING_SETS.find(self._database, "WHERE key = ?", (key,))

    def save_working_set(self, working_set: WorkingSet) -> bool:
        """Replace the list of its key; return False if the store has this epoch or a later one, which then counts."""
        return self._database.run(_SAVE_WORKING_SET, _WORKING_SETS.row(working_set)) > 0

    def save_state(self, state: UpstreamState) -> None:
        self._database.run(_SAVE_STATE, _STATES.row(state))

    def tell_once(self, notice: str) -> bool:
        """Return whether this notice was never told to the users of this store; it counts as told from now on."""
        told = "INSERT INTO counters (name, value) VALUES (?, 1) ON CONFLICT (name) DO NOTHING"
        return self._database.run(told, (f"told: {notice}",)) > 0

    def states(self) -> list[UpstreamState]:
        """Return the states of every proxy that has not cleared them; a killed one does not, so check its pid."""
        return _STATES.find_all(self._database, "ORDER BY started_at, machine, pid, upstream")

    def note_seen(self, machine: str, pid: int, at: float) -> None:
        """Keep in a proxy's states that it runs, for other machines, which cannot look at its process."""
        self._database.run("UPDATE upstream_states SET seen_at = ? WHERE machine = ? AND pid = ?", (at, machine, pid))

    def clear_states(
        self, pid: int, upstream: str | None = None, started_at: float | None = None, machine: str = ""
    ) -> None:
        """Delete one proxy's states, or its state of one upstream; give `started_at` if the pid may be reused.

        A proxy does so when it ends, and when it starts: the system may have given it the pid of a dead one.
        """
        values = {"machine": machine, "pid": pid, "upstream": upstream, "started_at": started_at}
        self._database.run(_CLEAR_STATES, values)

    def failures(self) -> list[Failure]:
        """Return why servers could not be used when they were last tried, of all configs that share this store."""
        return _FAILURES.find_all(self._database, "ORDER BY server, last_at")

    def save_failure(self, failure: Failure) -> None:
        """Keep why a server could not be used, in place of what was known of this entry."""
        with self._database.atomic():
            old = (failure.server, failure.last_at - _KEPT_S)
            self._database.run("DELETE FROM failures WHERE server = ? AND last_at < ?", old)
            self._database.run(_SAVE_FAILURE, _FAILURES.row(failure))

    def clear_failure(self, server: str, entry: str) -> None:
        """Delete what is known of this entry: the server works."""
        self._database.run("DELETE FROM failures WHERE server = ? AND entry = ?", (server, entry))
