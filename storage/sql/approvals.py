"""The table `approvals`: definitions of servers that were approved, wait for a decision, or were refused."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import astuple

from foretool.storage.records import Approval, Definition, DefinitionHead, DefinitionKind, FirstSight, HeldHead
from foretool.storage.sql.database import Subject
from foretool.storage.sql.tables import Table, raise_counter, read_counter
from foretool.storage.steps import Steps

KEPT_APPROVALS: Final = 8
"""How many approved versions of one definition are kept, the newest ones."""
_KEPT_BLOCKS: Final = 32
"""How many refused versions of one definition are kept; one that was forgotten is held again."""

_DEFINITIONS = Table("approvals", Definition, is_checked=True)
_COLUMNS = ", ".join((*Definition.__struct_fields__, "decision"))
_MARKS = ", ".join("?" * len(_COLUMNS.split(", ")))
_INSERT = f"INSERT INTO approvals ({_COLUMNS}) VALUES ({_MARKS})"  # noqa: S608  # constants of this file
_NOT_COPIED = {"server": "?", "exposed": "''"}
_TAKE_OVER = f"""
    INSERT INTO approvals ({_COLUMNS}) SELECT {", ".join(_NOT_COPIED.get(each, each) for each in _COLUMNS.split(", "))}
        FROM approvals WHERE server = ? AND state != 'held' AND kind NOT IN ('begun', 'shown') ON CONFLICT DO NOTHING
"""  # noqa: S608  # constants of this file
_REACHED_SO = """
    SELECT upstreams.name FROM upstreams JOIN approvals ON approvals.server = upstreams.name
        AND approvals.kind = 'launch' AND approvals.name = '' AND approvals.hash = upstreams.fingerprint
        WHERE upstreams.fingerprint = ? AND approvals.state = 'approved'
        ORDER BY approvals.decision DESC, approvals.seen_at DESC, upstreams.name
"""
_BLOCKED_TOOLS = "SELECT name FROM approvals WHERE server = ? AND kind = 'tool' AND state = 'blocked'"
_EXPOSE = "UPDATE approvals SET exposed = ? WHERE server = ? AND kind = 'tool' AND name = ? AND state = 'blocked'"
_APPROVE = _INSERT + (
    " ON CONFLICT (server, kind, name, hash) DO UPDATE SET version = excluded.version,"
    " state = CASE WHEN approvals.state = 'held' THEN 'approved' ELSE approvals.state END"
)
_REFUSED = """
    SELECT server, exposed, name FROM approvals WHERE kind = ? AND state != 'approved' AND effect != 'kept'
        AND NOT (effect = 'new' AND EXISTS (SELECT 1 FROM approvals AS other WHERE other.server = approvals.server
            AND other.kind = approvals.kind AND other.name = approvals.name AND other.state = 'approved'))
"""
# That a server has a list is nothing to decide; an earlier version kept it as held.
_UNDECIDED = "state != 'approved' AND kind NOT IN ('prompt_list', 'resource_list', 'template_list')"
# SQLite takes `idx_approvals_undecided` only where `!= 'approved'` stands in the query.
_HELD = f"SELECT server, kind, name, hash, effect FROM approvals WHERE state = 'held' AND {_UNDECIDED}"  # noqa: S608
_IN_ORDER = "ORDER BY server || '', kind, name, rowid"
"""The expression keeps SQLite from walking the table in this order to spare a sort of a few rows."""
_HELD_AFTER = (
    "SELECT rowid, kind, name, hash FROM approvals WHERE server = ? AND kind = ? AND rowid > ? AND state = 'held'"
    " AND state != 'approved' ORDER BY rowid LIMIT ?"
)
_DROP_HELD = "DELETE FROM approvals WHERE server = ? AND kind = ? AND name = ? AND hash = ? AND state = 'held'"
_HOLD = _INSERT + (
    " ON CONFLICT (server, kind, name, hash) DO UPDATE SET fingerprint = excluded.fingerprint,"
    " effect = excluded.effect, version = excluded.version WHERE approvals.state = 'held'"
)
_HEADS = "SELECT name, hash, state FROM approvals WHERE server = ? AND kind = ?"
_HEADS_AFTER = f"{_HEADS} AND (name, hash) > (?, ?)"
_BY_NAME = "ORDER BY name, hash LIMIT ?"
_BEGUN = "SELECT 1 FROM approvals WHERE server = ? AND kind = 'begun' AND name = ?"
_BEGIN = f"{_INSERT} ON CONFLICT (server, kind, name, hash) DO UPDATE SET value = excluded.value"
_STILL_OURS = "UPDATE approvals SET seen_at = ? WHERE server = ? AND kind = 'begun' AND name = ? AND value = ?"
_END_OF_FIRST = "DELETE FROM approvals WHERE server = ? AND kind = 'begun' AND name = ?"
_OF_FIRST: Final[dict[str, tuple[DefinitionKind, ...]]] = {
    "launch": ("tool", "instructions"),
    "prompt_list": ("prompt",),
    "resource_list": ("resource",),
    "template_list": ("template",),
    "skill_list": ("skill",),
}
"""What is seen first together with a definition of this kind, and has no first sight of its own."""
_WRITTEN_AFTER = (
    "SELECT name, hash, kind, state, fingerprint FROM approvals WHERE server = ? AND kind = ? AND (name, hash) > (?, ?)"
    " AND decision = 0 ORDER BY name, hash LIMIT ?"
)
_DROP_WRITTEN = "DELETE FROM approvals WHERE server = ? AND kind = ? AND name = ? AND hash = ? AND decision = 0"
WRITTEN_AT_ONCE = 100
"""Definitions that one transaction writes where a server has more."""
_READ_AT_ONCE = 500
"""Definitions that one step reads."""
_KEY = "server = :server AND kind = :kind AND name = :name AND hash = :hash"
_NEWEST_FIRST = "ORDER BY decision DESC, seen_at DESC, rowid DESC"
_TRIM = f"""
    DELETE FROM approvals WHERE rowid IN (SELECT rowid FROM approvals
        WHERE server = ? AND kind = ? AND name = ? AND state = ? {_NEWEST_FIRST} LIMIT -1 OFFSET ?)
"""  # noqa: S608  # constants of this file

# What the catalog keeps follows each decision. `tools` holds what was served when the server listed last.
_ADD_VALUE = "INSERT INTO definitions (schema_hash, definition) VALUES (:hash, :value) ON CONFLICT DO NOTHING"
_VALUE = "(SELECT id FROM definitions WHERE schema_hash = :hash)"
_SERVE_TOOL = f"""
    INSERT INTO tools (upstream, name, position, exposed, definition)
        SELECT id, :name, (SELECT coalesce(max(position), -1) + 1 FROM tools WHERE upstream = upstreams.id), :exposed,
            {_VALUE} FROM upstreams WHERE name = :server AND fingerprint = :fingerprint
        ON CONFLICT (upstream, name) DO UPDATE SET definition = excluded.definition
"""  # noqa: S608  # constants of this file
_ADD_VERSION = f"""
    INSERT INTO tool_versions (upstream, name, definition, first_seen)
        VALUES (:server, :name, {_VALUE}, :seen_at) ON CONFLICT DO NOTHING
"""  # noqa: S608  # constants of this file
_REMOVE_TOOL = f"""
    DELETE FROM tools WHERE name = :name AND definition = {_VALUE}
        AND upstream IN (SELECT id FROM upstreams WHERE name = :server)
"""  # noqa: S608  # constants of this file
_END_OF_REVIEW = (
    "DELETE FROM approvals WHERE server = ? AND kind = 'shown' AND NOT EXISTS"
    " (SELECT 1 FROM approvals AS other WHERE other.server = approvals.server AND other.state = 'held')"
)
_SET_VERSION = "UPDATE approvals SET version = :version WHERE server = :server AND kind = 'launch'"
_SERVE_TEXT = "UPDATE upstreams SET instructions = :text WHERE name = :server AND fingerprint = :fingerprint"
_REMOVE_TEXT = "UPDATE upstreams SET instructions = '' WHERE name = :server AND instructions = :text"


class ApprovalStore(Subject):
    """The definitions of servers that were approved, wait for a decision, or were refused.

    Several versions of one definition may be approved.
    """

    @property
    def version(self) -> int:
        """Rises with every decision; 0 before the first."""
        return read_counter(self._database, "approvals") or 0

    def decided_since(self, version: int) -> set[str]:
        """Return the servers about which something was decided after `version`."""
        return {name for (name,) in self._database.rows("SELECT server FROM approvals WHERE decision > ?", (version,))}

    def heads(
        self, server: str, kind: DefinitionKind, after: tuple[str, str] | None = None, most: int = -1
    ) -> list[DefinitionHead]:
        """Return the kept definitions of one kind of a server, ordered by name and hash. `after`: only those behind
        this name and hash; `most`: how many at most, -1 for all."""
        sql, values = (_HEADS, (server, kind)) if after is None else (_HEADS_AFTER, (server, kind, *after))
        return [DefinitionHead(*row) for row in self._database.rows(f"{sql} {_BY_NAME}", (*values, most))]

    def approved(self, server: str, kind: DefinitionKind, name: str = "") -> list[Definition]:
        """Return the approved versions of one definition, the newest approval first."""
        where = f"WHERE server = ? AND kind = ? AND name = ? AND state = 'approved' {_NEWEST_FIRST}"
        return _DEFINITIONS.find_all(self._database, where, (server, kind, name))

    def add_first(self, definitions: Sequence[Definition]) -> Steps[FirstSight]:
        """Keep what was seen first of a server, in steps of some milliseconds; keep nothing if the server already has a
        definition of the kind of the first one. Two proxies may race; the first one decides what was seen first.

        Of many definitions the first comes last, which says that all are there.

        All of them are of one list, whatever happens meanwhile: what was written of another list, by a process that was
        killed or by one that still runs, is removed, except what somebody has decided about.
        """
        first, *others = definitions
        digest = yield from _digest(definitions)
        with self._database.atomic():
            if self._is_seen(first.server, first.kind):
                return "known"
            is_begun = self._database.row(_BEGUN, (first.server, first.kind)) is not None
            if not is_begun and len(others) <= WRITTEN_AT_ONCE:
                self._insert(f"{_INSERT} ON CONFLICT DO NOTHING", definitions)
                return "kept"
            # From here on a process that writes another list finds that this one has taken its place.
            begun = Definition(first.server, "begun", first.kind, "", digest, "approved", time.time())
            self._insert(_BEGIN, [begun])
        if is_begun and (found := (yield from self._remove_others(first, digest, definitions))) is not None:
            return found
        while len(others) > WRITTEN_AT_ONCE:
            with self._database.atomic():
                if (found := self._find_trouble(first, digest)) is not None:
                    return found
                self._insert(f"{_INSERT} ON CONFLICT DO NOTHING", others[-WRITTEN_AT_ONCE:])
            del others[-WRITTEN_AT_ONCE:]
            yield
        with self._database.atomic():
            if (found := self._find_trouble(first, digest)) is not None:
                return found
            self._insert(f"{_INSERT} ON CONFLICT DO NOTHING", [first, *others])
            self._database.run(_END_OF_FIRST, (first.server, first.kind))
        return "kept"

    def _is_seen(self, server: str, kind: DefinitionKind) -> bool:
        sql = "SELECT 1 FROM approvals WHERE server = ? AND kind = ? LIMIT 1"
        return self._database.row(sql, (server, kind)) is not None

    def _find_trouble(self, first: Definition, digest: bytes) -> FirstSight | None:
        """Return why no more may be written of a first list; None if it is still the one that is being written. Call it
        inside `atomic`: no other process writes another list until the end of the transaction."""
        if self._database.run(_STILL_OURS, (time.time(), first.server, first.kind, digest)):
            return None
        return "known" if self._is_seen(first.server, first.kind) else "lost"

    def _remove_others(
        self, first: Definition, digest: bytes, definitions: Sequence[Definition]
    ) -> Steps[FirstSight | None]:
        """Remove what was written of other lists, except what somebody has decided about; return why not, if so."""
        ours: set[tuple[str, ...]] = set()
        for place, each in enumerate(definitions, 1):
            ours.add((each.name, each.hash, each.kind, each.state, each.fingerprint))
            if not place % _READ_AT_ONCE:
                yield
        for kind in _OF_FIRST.get(first.kind, ()):
            last = ("", "")
            while page := self._database.rows(_WRITTEN_AFTER, (first.server, kind, *last, WRITTEN_AT_ONCE)):
                last = page[-1][:2]
                with self._database.atomic():
                    if (found := self._find_trouble(first, digest)) is not None:
                        return found
                    others = ((first.server, kind, *row[:2]) for row in page if tuple(row) not in ours)
                    self._database.run_all(_DROP_WRITTEN, others)
                yield
        return None

    def reached_so(self, launch: str) -> list[str]:
        """Return the servers that were last reached in the approved way of this hash, the latest first."""
        return [name for (name,) in self._database.rows(_REACHED_SO, (launch,))]

    def take_over(self, server: str, earlier: str, exposed: Mapping[str, str]) -> bool:
        """Give a server that was never seen what was decided about another one; return whether it has that now. What
        is held is left out, because the server lists it again. `exposed`: what its tools are called now."""
        with self._database.atomic():
            if self._is_seen(server, "launch") or self._database.row(_BEGUN, (server, "launch")) is not None:
                return False
            self._database.run(_TAKE_OVER, (server, earlier))
            blocked = (name for (name,) in self._database.rows(_BLOCKED_TOOLS, (server,)))
            self._database.run_all(_EXPOSE, [(exposed.get(name, ""), server, name) for name in blocked])
            return self._is_seen(server, "launch")

    def approve_listed(self, definitions: Sequence[Definition]) -> None:
        """Approve definitions without a decision of the user; those that were blocked stay blocked."""
        with self._database.atomic():
            self._insert(_APPROVE, definitions, self.version)
            self._trim(definitions)

    def hold(
        self, server: str, kinds: Collection[DefinitionKind], definitions: Sequence[Definition], name: str = ""
    ) -> Steps[None]:
        """Replace what is held of these kinds of a server; what was approved or blocked meanwhile stays as it is.

        Whoever reads between two steps, of some milliseconds each, sees a part of it. `name`: the one definition that
        this is about, "" for all of these kinds.
        """
        kept = {(each.kind, each.name, each.hash) for each in definitions}
        is_small = all(len(self._held_after(server, kind)) < WRITTEN_AT_ONCE for kind in kinds)
        if is_small and len(definitions) <= WRITTEN_AT_ONCE:
            with self._database.atomic():
                for kind in kinds:
                    self._drop_held(server, self._held_after(server, kind), kept, name)
                self._insert(_HOLD, definitions)
            return
        for kind in kinds:
            place = 0
            while page := self._held_after(server, kind, place):
                place = page[-1][0]
                with self._database.atomic():
                    self._drop_held(server, page, kept, name)
                yield
        for start in range(0, len(definitions), WRITTEN_AT_ONCE):
            with self._database.atomic():
                self._insert(_HOLD, definitions[start : start + WRITTEN_AT_ONCE])
            yield

    def _held_after(self, server: str, kind: DefinitionKind, place: int = 0) -> list[tuple[Any, ...]]:
        """Return the place, kind, name and hash of the next definitions of a kind that are held."""
        return self._database.rows(_HELD_AFTER, (server, kind, place, WRITTEN_AT_ONCE))

    def _drop_held(
        self, server: str, held: Sequence[tuple[Any, ...]], kept: Collection[tuple[DefinitionKind, str, str]], name: str
    ) -> None:
        """Drop what is held of a page unless it is kept; of one definition alone, if that is named."""
        dropped = (key for _, *key in held if tuple(key) not in kept and name in ("", key[1]))
        self._database.run_all(_DROP_HELD, ((server, *key) for key in dropped))

    def held(self, server: str | None = None) -> list[HeldHead]:
        """Return what is held, of one server or of all, by server, kind and name."""
        wanted = ("", ()) if server is None else ("AND server = ?", (server,))
        sql = f"{_HELD} {wanted[0]} {_IN_ORDER}"
        return [HeldHead(*row) for row in self._database.rows(sql, wanted[1])]

    def undecided(self, server: str | None = None) -> list[Definition]:
        """Return what is held or blocked, of one server or of all, by server, kind and name."""
        wanted = ("", ()) if server is None else ("AND server = ?", (server,))
        where = f"WHERE {_UNDECIDED} {wanted[0]} {_IN_ORDER}"
        return _DEFINITIONS.find_all(self._database, where, wanted[1])

    def refused(self, kind: DefinitionKind) -> list[tuple[str, str, str]]:
        """Return server, exposed name and own name of each definition that is held or blocked and of which no earlier
        version is served."""
        return [(server, exposed, name) for server, exposed, name in self._database.rows(_REFUSED, (kind,))]

    def decide(self, definitions: Sequence[Definition], approval: Approval) -> list[Definition]:
        """Approve, block or hold exactly these versions, in one transaction; return those that are not kept any more.

        What the catalog keeps of the server follows in the same transaction: an approved definition takes the place of
        the one that was served, a blocked one is removed.
        """
        with self._database.atomic():
            raise_counter(self._database, "approvals")
            gone = [each for each in definitions if not self._decide_one(each, approval)]
            self._trim(definitions)
            for server in {each.server for each in definitions}:
                self._database.run(_END_OF_REVIEW, (server,))
        return gone

    def _decide_one(self, definition: Definition, approval: Approval) -> bool:
        # What is kept counts, not what the caller says of it: another proxy may have seen it with other settings.
        kept = _DEFINITIONS.find(self._database, f"WHERE {_KEY}", _row(definition))
        if kept is None:
            return False
        row = {**_row(kept), "state": approval, "decision": self.version, "seen_at": time.time()}
        sql = f"UPDATE approvals SET state = :state, decision = :decision, seen_at = :seen_at WHERE {_KEY}"  # noqa: S608
        self._database.run(sql, row)
        if approval == "approved" and kept.version:
            self._database.run(_SET_VERSION, row)
        row["text"] = kept.value.decode(errors="replace")
        if kept.kind == "tool":
            self._database.run(_ADD_VALUE, row)
            for sql in (_SERVE_TOOL, _ADD_VERSION) if approval == "approved" else (_REMOVE_TOOL,):
                self._database.run(sql, row)
        elif kept.kind == "instructions":
            self._database.run(_SERVE_TEXT if approval == "approved" else _REMOVE_TEXT, row)
        return True

    def note_shown(self, server: str, hashes: Collection[str]) -> None:
        """Record which undecided definitions of a server a person has looked at, by hash."""
        with self._database.atomic():
            self._database.run("DELETE FROM approvals WHERE server = ? AND kind = 'shown'", (server,))
            value = "\n".join(sorted(hashes)).encode()
            self._insert(_INSERT, [Definition(server, "shown", "", "", value, "approved", time.time())])

    def shown(self, server: str) -> frozenset[str] | None:
        """Return the hashes that a person has looked at; None if nobody has since the last was decided."""
        found = self.approved(server, "shown")
        return frozenset(found[0].value.decode().split()) if found else None

    def _insert(self, sql: str, definitions: Iterable[Definition], decision: int = 0) -> None:
        self._database.run_all(sql, [(*astuple(each), decision) for each in definitions])

    def _trim(self, definitions: Iterable[Definition]) -> None:
        for key in {(each.server, each.kind, each.name) for each in definitions}:
            self._database.run(_TRIM, (*key, "approved", KEPT_APPROVALS))
            self._database.run(_TRIM, (*key, "blocked", _KEPT_BLOCKS))


def _row(definition: Definition) -> dict[str, object]:
    return {field: getattr(definition, field) for field in definition.__struct_fields__}


def _digest(definitions: Iterable[Definition]) -> Steps[bytes]:
    """Return a digest of a first list: its definitions in their order, and what becomes of them."""
    digest = hashlib.sha256()
    for place, each in enumerate(definitions, 1):
        digest.update(repr((each.kind, each.name, each.hash, each.state, each.fingerprint)).encode())
        if not place % _READ_AT_ONCE:
            yield
    return digest.hexdigest().encode()
