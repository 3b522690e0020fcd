"""The tables `upstreams`, `tools`, `definitions`, `tool_versions`, `exposed_names` and `catalog_summaries`: which tools
exist."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from foretool.storage.records import Tool, ToolId, ToolVersion, UpstreamRecord
from foretool.storage.sql.database import Subject
from foretool.storage.sql.tables import Table

T = TypeVar("T")

_UPSTREAMS = Table("upstreams", UpstreamRecord, said=("server_info", "instructions"))

_SAVE_UPSTREAM = (
    _UPSTREAMS.insert + " ON CONFLICT (name, fingerprint) DO UPDATE SET era = excluded.era,"
    " server_info = excluded.server_info, instructions = excluded.instructions, capabilities = excluded.capabilities,"
    " listed_at = excluded.listed_at, lacks = excluded.lacks"
)
_OF_UPSTREAM = "WHERE name = ? AND fingerprint = ?"
_GET_UPSTREAM = f"{_UPSTREAMS.select.replace('SELECT', 'SELECT id,', 1)} {_OF_UPSTREAM}"
_TOOLS = """
    SELECT tools.exposed, tools.name, definitions.definition, definitions.schema_hash, definitions.tokens
        FROM tools JOIN definitions ON definitions.id = tools.definition
        WHERE tools.upstream = ? ORDER BY tools.position
"""
_TOOLS_AFTER = """
    SELECT listed.position, listed.exposed, listed.name, definitions.definition, definitions.schema_hash,
            definitions.tokens
        FROM (SELECT tools.position, tools.exposed, tools.name, tools.definition
                FROM tools JOIN upstreams ON upstreams.id = tools.upstream
                WHERE upstreams.name = ? AND upstreams.fingerprint = ? AND tools.position > ?
                ORDER BY tools.position LIMIT ?) AS listed
            JOIN definitions ON definitions.id = listed.definition
        ORDER BY listed.position
"""
_TOOL_EXPOSED = """
    SELECT upstreams.fingerprint, tools.exposed, upstreams.name, tools.name, definitions.definition,
            definitions.schema_hash, definitions.tokens
        FROM exposed_names JOIN upstreams ON upstreams.name = exposed_names.upstream
            JOIN tools ON tools.upstream = upstreams.id AND tools.name = exposed_names.name
            JOIN definitions ON definitions.id = tools.definition
        WHERE exposed_names.exposed = ?
"""
_NAMED = """
    SELECT tools.exposed, tools.name, definitions.schema_hash
        FROM upstreams JOIN tools ON tools.upstream = upstreams.id JOIN definitions ON definitions.id = tools.definition
            JOIN exposed_names ON exposed_names.exposed = tools.exposed AND exposed_names.upstream = upstreams.name
                AND exposed_names.name = tools.name
        WHERE upstreams.name = ? AND upstreams.fingerprint = ? ORDER BY tools.position
"""
_NAMES_AFTER = "SELECT rowid, exposed, upstream, name FROM exposed_names WHERE rowid > ? ORDER BY rowid LIMIT ?"
_SAVE_SUMMARY = (
    "INSERT INTO catalog_summaries (inputs, changes, summary) VALUES (?, ?, ?)"
    " ON CONFLICT (inputs) DO UPDATE SET changes = excluded.changes, summary = excluded.summary"
)
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
_CURRENT = (
    "SELECT tools.name, definitions.schema_hash, tools.exposed, length(definitions.definition) FROM tools"
    " JOIN definitions ON definitions.id = tools.definition WHERE tools.upstream = ? ORDER BY tools.position"
)
_VERSIONS = (
    "SELECT schema_hash, definitions.definition, tokens, first_seen FROM tool_versions"
    " JOIN definitions ON definitions.id = tool_versions.definition"
    " WHERE upstream = ? AND name = ? ORDER BY first_seen, tool_versions.rowid"
)


class Catalog(Subject):
    """Implements `CatalogStore`."""

    def load(self, upstreams: Sequence[tuple[str, str]]) -> list[tuple[UpstreamRecord, list[Tool]]]:
        with self._database.snapshot():
            found = (self._database.row(_GET_UPSTREAM, key) for key in upstreams)
            return [(_UPSTREAMS.read(row[1:]), self._tools(row[0], row[1])) for row in found if row]

    def _tools(self, id: int, upstream: str) -> list[Tool]:
        return [Tool(exposed, upstream, *rest) for exposed, *rest in self._database.rows(_TOOLS, (id,))]

    def records(self, upstreams: Sequence[tuple[str, str]]) -> list[UpstreamRecord]:
        with self._database.snapshot():
            found = (self._database.row(_GET_UPSTREAM, key) for key in upstreams)
            return [_UPSTREAMS.read(row[1:]) for row in found if row]

    def tools_after(self, upstream: str, fingerprint: str, place: int, most: int) -> list[tuple[int, Tool]]:
        rows = self._database.rows(_TOOLS_AFTER, (upstream, fingerprint, place, most))
        return [(at, Tool(exposed, upstream, *rest)) for at, exposed, *rest in rows]

    def tool_exposed(self, name: ToolId) -> list[tuple[str, Tool]]:
        return [(row[0], Tool(*row[1:])) for row in self._database.rows(_TOOL_EXPOSED, (name,))]

    def named_tools(self, upstream: str, fingerprint: str) -> list[tuple[ToolId, str, str]]:
        rows = self._database.rows(_NAMED, (upstream, fingerprint))
        return [(exposed, name, schema_hash) for exposed, name, schema_hash in rows]

    def changes(self) -> int | None:
        row = self._database.row("SELECT value FROM counters WHERE name = 'catalog'")
        return int(row[0]) if row is not None else None

    def summary(self, inputs: str) -> bytes | None:
        sql = (
            "SELECT summary FROM catalog_summaries JOIN counters ON counters.value = catalog_summaries.changes"
            " WHERE counters.name = 'catalog' AND inputs = ?"
        )
        row = self._database.row(sql, (inputs,))
        return bytes(row[0]) if row is not None else None

    def save_summary(self, inputs: str, changes: int, summary: bytes) -> None:
        with self._database.atomic():
            self._database.run("DELETE FROM catalog_summaries WHERE changes <> ?", (changes,))
            self._database.run(_SAVE_SUMMARY, (inputs, changes, summary))

    def tool_heads(self, upstreams: Sequence[tuple[str, str]], size: int) -> list[tuple[str, ToolId, str, bytes]]:
        wanted = set(upstreams)
        rows = self._database.rows(_HEADS, (size,))
        return [(name, tool, own, head) for name, fingerprint, tool, own, head in rows if (name, fingerprint) in wanted]

    def tools_named(self, tools: Iterable[tuple[str, str, str]]) -> list[Tool]:
        return [Tool(*row) for wanted in tools for row in self._database.rows(_NAMED_TOOLS, wanted)]

    def save_upstream(self, upstream: UpstreamRecord, tools: Sequence[Tool]) -> None:
        with self._database.atomic():
            for _ in self.save_in_steps(upstream, tools):
                pass

    def save_in_steps(self, upstream: UpstreamRecord, tools: Sequence[Tool]) -> Iterator[None]:
        key = (upstream.name, upstream.fingerprint)
        row = self._database.row(f"SELECT id FROM upstreams {_OF_UPSTREAM}", key)  # noqa: S608  # a constant
        before = self._listed(row[0]) if row else {}
        redefined = [tool for tool in tools if before.get(tool.name, ())[::2] != _head(tool)[::2]]
        for part in _parts(redefined):
            yield
            with self._database.atomic():
                self._add_definitions(upstream, part)
        yield
        with self._database.atomic():
            self._swap_tools(upstream, tools, redefined)
        counts = [(tool.schema_hash, tool.tokens) for tool in tools if tool.tokens is not None]
        for counted in _parts(counts):
            yield
            self.save_token_counts(dict(counted))

    def _listed(self, id: int) -> dict[str, tuple[str, ToolId, int]]:
        """Return the list of an upstream: by name the hash, the exposed name and the length of each definition."""
        return {name: (hash, exposed, size) for name, hash, exposed, size in self._database.rows(_CURRENT, (id,))}

    def _add_definitions(self, upstream: UpstreamRecord, tools: Sequence[Tool]) -> None:
        """Add definitions, and that the upstream has had them."""
        # One definition has one hash in both eras, and the form that is known last is kept.
        self._database.run_all(_ADD_DEFINITION, ((tool.schema_hash, tool.definition) for tool in tools))
        versions = ((upstream.name, tool.name, upstream.listed_at, tool.schema_hash) for tool in tools)
        self._database.run_all(_ADD_VERSION, versions)

    def _swap_tools(self, upstream: UpstreamRecord, tools: Sequence[Tool], redefined: Sequence[Tool]) -> None:
        """Replace the list of an upstream; only what has changed is written. `redefined`: new or with a new
        definition."""
        self._database.run(_SAVE_UPSTREAM, _UPSTREAMS.row(upstream))
        key = (upstream.name, upstream.fingerprint)
        (id,) = self._database.rows(f"SELECT id FROM upstreams {_OF_UPSTREAM}", key)[0]  # noqa: S608  # a constant
        before = {name: (place, *rest) for place, (name, rest) in enumerate(self._listed(id).items())}
        rows = [(tool.name, place, *_head(tool)) for place, tool in enumerate(tools)]
        now = {name: tuple(rest) for name, *rest in rows}
        gone = ((id, name) for name, rest in before.items() if now.get(name) != rest)
        self._database.run_all("DELETE FROM tools WHERE upstream = ? AND name = ?", gone)
        put = [
            (id, name, place, exposed, schema_hash)
            for name, place, schema_hash, exposed, size in rows
            if before.get(name) != (place, schema_hash, exposed, size)
        ]
        self._database.run_all(_PUT_TOOL, put)
        if put and len(self._listed(id)) < len(tools):  # somebody has removed definitions that nobody had yet
            self._add_definitions(upstream, tools)
            self._database.run_all(_PUT_TOOL + " ON CONFLICT (upstream, name) DO NOTHING", put)
        for tool in redefined:
            if tool.name in before:
                self._database.run(_DROP_VERSIONS, {"upstream": upstream.name, "name": tool.name, "id": id})

    def changed_tools(self) -> set[tuple[str, str]]:
        sql = "SELECT upstream, name FROM tool_versions GROUP BY upstream, name HAVING count(*) > 1"
        return {(upstream, name) for upstream, name in self._database.rows(sql)}

    def versions(self, upstream: str, name: str) -> list[ToolVersion]:
        return [ToolVersion(*row) for row in self._database.rows(_VERSIONS, (upstream, name))]

    def save_token_counts(self, tokens: Mapping[str, int]) -> None:
        with self._database.atomic():
            self._save_token_counts(tokens)

    def _save_token_counts(self, tokens: Mapping[str, int]) -> None:
        self._database.run_all(
            "UPDATE definitions SET tokens = ? WHERE schema_hash = ? AND (tokens IS NULL OR tokens <> ?)",
            ((count, schema_hash, count) for schema_hash, count in tokens.items()),
        )

    def exposed_names(self) -> dict[ToolId, tuple[str, str]]:
        rows = self._database.rows("SELECT exposed, upstream, name FROM exposed_names ORDER BY rowid")
        return {exposed: (upstream, name) for exposed, upstream, name in rows}

    def exposed_names_after(self, place: int, most: int) -> list[tuple[int, ToolId, str, str]]:
        return [(at, *rest) for at, *rest in self._database.rows(_NAMES_AFTER, (place, most))]

    def save_exposed_names(self, names: Mapping[ToolId, tuple[str, str]]) -> dict[ToolId, tuple[str, str]]:
        with self._database.atomic():
            rows = ((name, self._database.row(_OWNER, (name,))) for name in names)
            known = {name: (row[0], row[1]) for name, row in rows if row is not None}
            self._database.run_all(
                "INSERT INTO exposed_names (exposed, upstream, name) VALUES (?, ?, ?)",
                ((exposed, *tool) for exposed, tool in names.items() if exposed not in known),
            )
        return {exposed: known[exposed] for exposed, tool in names.items() if known.get(exposed, tool) != tool}


def _head(tool: Tool) -> tuple[str, ToolId, int]:
    """Return what `_CURRENT` reads of a tool besides its name."""
    return tool.schema_hash, tool.id, len(tool.definition)


def _parts(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield items in parts that one transaction writes."""
    rest = iter(items)
    while part := list(islice(rest, SAVED_AT_ONCE)):
        yield part
