"""The tables `upstreams`, `tools`, `definitions`, `tool_versions` and `exposed_names`: which tools exist."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from secrets import token_hex
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from foretool.storage.engine import StorageError
from foretool.storage.records import Tool, ToolId, ToolVersion, UpstreamRecord
from foretool.storage.sql.database import Subject
from foretool.storage.sql.tables import Table, read_counter
from foretool.storage.steps import Steps, finish

T = TypeVar("T")

_UPSTREAMS = Table("upstreams", UpstreamRecord, said=("server_info", "instructions"))

_SAVE_UPSTREAM = (
    _UPSTREAMS.insert + " ON CONFLICT (name, fingerprint) DO UPDATE SET era = excluded.era,"
    " server_info = excluded.server_info, instructions = excluded.instructions, capabilities = excluded.capabilities,"
    " listed_at = excluded.listed_at, lacks = excluded.lacks, likeness = excluded.likeness"
)
_OF_UPSTREAM = "WHERE name = ? AND fingerprint = ?"
_GET_UPSTREAM = f"{_UPSTREAMS.select.replace('SELECT', 'SELECT id,', 1)} {_OF_UPSTREAM}"
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
    SELECT tools.exposed, upstreams.name, tools.name, definitions.definition, schema_hash, tokens
        FROM tools JOIN upstreams ON upstreams.id = tools.upstream JOIN definitions ON definitions.id = tools.definition
        WHERE tools.name = ? AND upstreams.name = ? AND upstreams.fingerprint = ?
"""
_ADD_DEFINITION = (
    "INSERT INTO definitions (schema_hash, definition) VALUES (?, ?) ON CONFLICT (schema_hash)"
    " DO UPDATE SET definition = excluded.definition WHERE definitions.definition <> excluded.definition"
)
_PUT_TOOL = (
    "INSERT INTO tools (upstream, name, position, exposed, definition)"
    " SELECT ?, ?, ?, ?, id FROM definitions WHERE schema_hash = ?"
)
_ADD_VERSION = (
    "INSERT INTO tool_versions (upstream, name, definition, first_seen)"
    " SELECT ?, ?, id, ? FROM definitions WHERE schema_hash = ? ON CONFLICT (upstream, name, definition) DO NOTHING"
)
_GET_ID = f"SELECT id FROM upstreams {_OF_UPSTREAM}"  # noqa: S608  # a constant
_READ_AT_ONCE = 500
"""Tools whose hashes one step reads or compares."""
CHANGED_AT_ONCE = 500
"""Tools of a list that are changed in one transaction; a list of which more has changed is written beside it."""
SAVED_AT_ONCE = 100
"""Definitions, or counts of tokens, that one transaction writes where a list is saved in steps."""
_OWNER = "SELECT upstream, name FROM exposed_names WHERE exposed = ?"
KEPT_VERSIONS = 20
"""Definitions that are kept of each tool, the latest, so that a server which changes its list all the time fills no
disk; the present one stays in any case."""
_DROP_VERSIONS = f"""
    DELETE FROM tool_versions WHERE upstream = :upstream AND name = :name
        AND first_seen < (SELECT min(first_seen) FROM (SELECT first_seen FROM tool_versions
            WHERE upstream = :upstream AND name = :name ORDER BY first_seen DESC LIMIT {KEPT_VERSIONS}) AS latest)
        AND definition NOT IN (SELECT definition FROM tools WHERE upstream = :id AND name = :name)
"""  # noqa: S608  # constants of this file
_CURRENT_AFTER = (
    "SELECT tools.name, tools.position, definitions.schema_hash, tools.exposed, length(definitions.definition)"
    " FROM tools JOIN definitions ON definitions.id = tools.definition"
    " WHERE tools.upstream = ? AND tools.name > ? ORDER BY tools.name LIMIT ?"
)
_RENAME = "UPDATE upstreams SET fingerprint = ? WHERE id = ?"
_BESIDE = " beside "
"""Stands behind the fingerprint of a list that nobody reads: it is being written, or another one has replaced it."""
LEFT_S = 600.0
"""A list whose writing has begun so long ago was left by a process that has ended."""
_LEFT = "SELECT id FROM upstreams WHERE name = ? AND fingerprint LIKE ? AND listed_at < ?"
_KNOWN_AS = (
    "SELECT fingerprint FROM upstreams WHERE name = ?"
    " AND (fingerprint = ? OR (likeness = ? AND fingerprint NOT LIKE ?))"
    " ORDER BY CASE WHEN fingerprint = ? THEN 0 ELSE 1 END, listed_at DESC LIMIT 1"
)
_DELETE_SOME = (
    "DELETE FROM tools WHERE upstream = ? AND name IN (SELECT name FROM tools WHERE upstream = ? ORDER BY name LIMIT ?)"
)
_VERSIONS = (
    "SELECT schema_hash, definitions.definition, tokens, first_seen FROM tool_versions"
    " JOIN definitions ON definitions.id = tool_versions.definition"
    " WHERE upstream = ? AND name = ? ORDER BY first_seen, tool_versions.rowid"
)


class CatalogStore(Subject):
    """Upstreams, their tools, and the names under which tools are exposed."""

    def load(self, upstreams: Sequence[tuple[str, str]]) -> list[tuple[UpstreamRecord, list[Tool]]]:
        """Return what is known of these upstreams (name, fingerprint), in this order, from one state of the store.

        An upstream that was never saved is left out. Tools come in the order in which the upstream listed them; each
        `id` is the name under which it was last exposed, which other settings may have changed since.
        """
        with self._database.snapshot():
            found = (self._database.row(_GET_UPSTREAM, key) for key in upstreams)
            return [(_UPSTREAMS.read(row[1:]), self._tools(row[0], row[1])) for row in found if row]

    def known_as(self, upstreams: Iterable[tuple[str, str, str]]) -> dict[str, str]:
        """Return by name the fingerprint under which each of these upstreams (name, fingerprint, likeness) was saved:
        its own, else the latest of the same likeness. One that was never saved is left out."""
        found = {}
        for name, fingerprint, likeness in upstreams:
            wanted = (name, fingerprint, likeness, f"%{_BESIDE}%", fingerprint)
            if (row := self._database.row(_KNOWN_AS, wanted)) is not None:
                found[name] = row[0]
        return found

    def names(self) -> set[str]:
        """Return the names of all upstreams that have ever listed their tools and are on record."""
        return {name for (name,) in self._database.rows("SELECT DISTINCT name FROM upstreams")}

    def _tools(self, id: int, upstream: str) -> list[Tool]:
        return [Tool(exposed, upstream, *rest) for exposed, *rest in self._database.rows(_TOOLS, (id,))]

    def changes(self) -> int | None:
        """Return a number that rises whenever a tool or an exposed name comes, goes or changes, whoever writes it; None
        where nobody counts."""
        return read_counter(self._database, "catalog")

    def tool_heads(self, upstreams: Sequence[tuple[str, str]], size: int) -> list[tuple[str, ToolId, str, bytes]]:
        """Return upstream, exposed name, own name and the first `size` bytes of the definition of every tool of these
        upstreams (name, fingerprint); for a caller who wants a few of very many tools."""
        wanted = set(upstreams)
        rows = self._database.rows(_HEADS, (size,))
        return [(name, tool, own, head) for name, fingerprint, tool, own, head in rows if (name, fingerprint) in wanted]

    def tools_named(self, tools: Iterable[tuple[str, str, str]]) -> list[Tool]:
        """Return the known ones of these tools (own name, upstream, fingerprint), in this order."""
        return [Tool(*row) for wanted in tools for row in self._database.rows(_NAMED_TOOLS, wanted)]

    def save_upstream(self, upstream: UpstreamRecord, tools: Sequence[Tool]) -> Steps[None]:
        """Replace what is known of an upstream and its tools (names are unique); earlier definitions are kept.

        Each step of some milliseconds has a transaction of its own; one of them puts the whole new list in the place of
        the old one. Whoever stops before it has changed nothing that anybody reads.
        """
        before, changes = yield from self._listed(upstream)
        difference = yield from _compare(before, tools)
        for part in _parts(difference.redefined):
            yield
            with self._database.atomic():
                self._add_definitions(upstream, part)
        yield
        if difference.is_large:
            yield from self._replace_list(upstream, tools)
        else:
            with self._database.atomic():
                if changes is None or changes != self.changes():  # somebody has written a list or a name meanwhile
                    before, _ = finish(self._listed(upstream))
                    difference = finish(_compare(before, tools))
                self._change_list(upstream, tools, difference)
        yield from self._drop_versions(upstream, [tool.name for tool in difference.redefined if tool.name in before])
        counts = [(tool.schema_hash, tool.tokens) for tool in tools if tool.tokens is not None]
        for counted in _parts(counts):
            yield
            self.save_token_counts(dict(counted))

    def _id(self, upstream: UpstreamRecord) -> int | None:
        row = self._database.row(_GET_ID, (upstream.name, upstream.fingerprint))
        return int(row[0]) if row else None

    def _listed(self, upstream: UpstreamRecord) -> Steps[tuple[Listed, int | None]]:
        """Return in steps how an upstream's list is kept, and what `changes` was before."""
        changes, id = self.changes(), self._id(upstream)
        found: Listed = {}
        page: list[tuple[Any, ...]] = []
        while id is not None and (not found or len(page) == _READ_AT_ONCE):
            page = self._database.rows(_CURRENT_AFTER, (id, page[-1][0] if page else "", _READ_AT_ONCE))
            found |= {name: (place, hash, exposed, size) for name, place, hash, exposed, size in page}
            if not page:
                break
            if len(page) == _READ_AT_ONCE:
                yield
        return found, changes

    def _add_definitions(self, upstream: UpstreamRecord, tools: Sequence[Tool]) -> None:
        # One definition has one hash in both eras, and the form that is known last is kept.
        self._database.run_all(_ADD_DEFINITION, ((tool.schema_hash, tool.definition) for tool in tools))
        versions = ((upstream.name, tool.name, upstream.listed_at, tool.schema_hash) for tool in tools)
        self._database.run_all(_ADD_VERSION, versions)

    def _change_list(self, upstream: UpstreamRecord, tools: Sequence[Tool], difference: ListDifference) -> None:
        self._database.run(_SAVE_UPSTREAM, _UPSTREAMS.row(upstream))
        id = self._id(upstream)
        self._database.run_all(
            "DELETE FROM tools WHERE upstream = ? AND name = ?", ((id, name) for name in difference.gone)
        )
        self._put(id, difference.put)
        if difference.put and self._count(id) < len(tools):  # somebody has removed definitions that nobody had yet
            self._put_again(upstream, id, difference.put)

    def _put(self, id: int | None, tools: Sequence[tuple[int, Tool]], also: str = "") -> None:
        """Write tools of a list, each with its place."""
        rows = ((id, tool.name, place, tool.id, tool.schema_hash) for place, tool in tools)
        self._database.run_all(_PUT_TOOL + also, rows)

    def _put_again(self, upstream: UpstreamRecord, id: int | None, tools: Sequence[tuple[int, Tool]]) -> None:
        """Write those tools of a list that lacked their definitions."""
        self._add_definitions(upstream, [tool for _, tool in tools])
        self._put(id, tools, " ON CONFLICT (upstream, name) DO NOTHING")

    def _count(self, id: int | None) -> int:
        return int(self._database.rows("SELECT count(*) FROM tools WHERE upstream = ?", (id,))[0][0])

    def _replace_list(self, upstream: UpstreamRecord, tools: Sequence[Tool]) -> Steps[None]:
        """Write a list beside the one that is read, under a fingerprint that nobody asks for, and then put it in its
        place: one transaction of tens of thousands of rows would stop the caller for a second."""
        beside = replace(upstream, fingerprint=f"{upstream.fingerprint}{_BESIDE}{token_hex(8)}")
        self._database.run(_SAVE_UPSTREAM, _UPSTREAMS.row(beside))
        id = self._id(beside)
        for part in _parts(enumerate(tools)):
            with self._database.atomic():
                self._put(id, part)
            yield
        if self._count(id) < len(tools):  # somebody has removed definitions that nobody had yet
            for part in _parts(enumerate(tools)):
                with self._database.atomic():
                    self._put_again(upstream, id, part)
                yield
        with self._database.atomic():
            if (old := self._id(upstream)) is not None:
                self._database.run(_RENAME, (f"{upstream.fingerprint}{_BESIDE}{token_hex(8)}", old))
            if not self._database.run(_RENAME, (upstream.fingerprint, id)):
                raise StorageError(
                    f"the new list of {upstream.name!r} was deleted while it was written", temporary=True
                )
            self._database.run("UPDATE counters SET value = value + 1 WHERE name = 'catalog'")
        rows = self._database.rows(
            _LEFT, (upstream.name, f"{upstream.fingerprint}{_BESIDE}%", upstream.listed_at - LEFT_S)
        )
        for left in {*(each for (each,) in rows), *([old] if old is not None else [])}:
            while self._database.run(_DELETE_SOME, (left, left, SAVED_AT_ONCE)):
                yield
            self._database.run("DELETE FROM upstreams WHERE id = ?", (left,))

    def _drop_versions(self, upstream: UpstreamRecord, names: Sequence[str]) -> Steps[None]:
        """Delete the oldest definitions of tools that have had many."""
        id = self._id(upstream)
        for part in _parts(names):
            yield
            with self._database.atomic():
                for name in part:
                    self._database.run(_DROP_VERSIONS, {"upstream": upstream.name, "name": name, "id": id})

    def changed_tools(self) -> set[tuple[str, str]]:
        """Return upstream and name of each tool that has had more than one definition."""
        sql = "SELECT upstream, name FROM tool_versions GROUP BY upstream, name HAVING count(*) > 1"
        return {(upstream, name) for upstream, name in self._database.rows(sql)}

    def versions(self, upstream: str, name: str) -> list[ToolVersion]:
        """Return every definition that a tool has had, the oldest first."""
        return [ToolVersion(*row) for row in self._database.rows(_VERSIONS, (upstream, name))]

    def save_token_counts(self, tokens: Mapping[str, int]) -> None:
        """Keep token counts by schema hash, for every upstream with that definition; ignore unknown hashes."""
        with self._database.atomic():
            self._save_token_counts(tokens)

    def _save_token_counts(self, tokens: Mapping[str, int]) -> None:
        self._database.run_all(
            "UPDATE definitions SET tokens = ? WHERE schema_hash = ? AND (tokens IS NULL OR tokens <> ?)",
            ((count, schema_hash, count) for schema_hash, count in tokens.items()),
        )

    def exposed_names(self) -> dict[ToolId, tuple[str, str]]:
        """Return every exposed name ever given, with the upstream and the tool's own name."""
        rows = self._database.rows("SELECT exposed, upstream, name FROM exposed_names ORDER BY rowid")
        return {exposed: (upstream, name) for exposed, upstream, name in rows}

    def save_exposed_names(self, names: Mapping[ToolId, tuple[str, str]]) -> dict[ToolId, tuple[str, str]]:
        """Keep names for ever; return those that another tool already has, with that tool: these were not saved.

        Two proxies with different settings may race; the first keeps the name, so its meaning never changes.
        """
        with self._database.atomic():
            rows = ((name, self._database.row(_OWNER, (name,))) for name in names)
            known = {name: (row[0], row[1]) for name, row in rows if row is not None}
            self._database.run_all(
                "INSERT INTO exposed_names (exposed, upstream, name) VALUES (?, ?, ?)",
                ((exposed, *tool) for exposed, tool in names.items() if exposed not in known),
            )
        return {exposed: known[exposed] for exposed, tool in names.items() if known.get(exposed, tool) != tool}


Listed = dict[str, tuple[int, str, ToolId, int]]
"""By name, the place, the hash, the exposed name and the length of the definition of each tool of a list."""


class ListDifference(Struct, frozen=True):
    redefined: list[Tool]
    """New, or with a new definition."""
    put: list[tuple[int, Tool]]
    """What has to be written, each with its place."""
    gone: list[str]
    """The names of what has to be deleted."""

    @property
    def is_large(self) -> bool:
        return max(len(self.put), len(self.gone)) > CHANGED_AT_ONCE


def _compare(before: Listed, tools: Sequence[Tool]) -> Steps[ListDifference]:
    found = ListDifference([], [], [])
    stay = set()
    for place, tool in enumerate(tools):
        size, kept = len(tool.definition), before.get(tool.name)
        if kept is None or (kept[1], kept[3]) != (tool.schema_hash, size):
            found.redefined.append(tool)
        if kept == (place, tool.schema_hash, tool.id, size):
            stay.add(tool.name)
        else:
            found.put.append((place, tool))
        if place % _READ_AT_ONCE == _READ_AT_ONCE - 1:
            yield
    found.gone.extend(name for name in before if name not in stay)
    return found


def _parts(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield items in parts that one transaction writes."""
    rest = iter(items)
    while part := list(islice(rest, SAVED_AT_ONCE)):
        yield part
