"""The tables `upstreams`, `tools`, `definitions`, `tool_versions` and `exposed_names`: which tools exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from foretool.storage.records import Tool, ToolId, ToolVersion, UpstreamRecord
from foretool.storage.sql.database import Subject
from foretool.storage.sql.tables import Table

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
_HEADS = """
    SELECT upstreams.name, upstreams.fingerprint, tools.exposed, tools.name, substr(definitions.definition, 1, ?)
        FROM tools JOIN upstreams ON upstreams.id = tools.upstream JOIN definitions ON definitions.id = tools.definition
        ORDER BY tools.upstream, tools.position
"""
_NAMED_TOOLS = """
    SELECT tools.exposed, upstreams.name, tools.name, definitions.definition, schema_hash, tokens
        FROM tools JOIN upstreams ON upstreams.id = tools.upstream JOIN definitions ON definitions.id = tools.definition
        WHERE tools.exposed = ? AND upstreams.name = ? AND upstreams.fingerprint = ?
"""
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

    def tool_heads(self, upstreams: Sequence[tuple[str, str]], size: int) -> list[tuple[str, ToolId, str, bytes]]:
        wanted = set(upstreams)
        rows = self._database.rows(_HEADS, (size,))
        return [(name, tool, own, head) for name, fingerprint, tool, own, head in rows if (name, fingerprint) in wanted]

    def tools_named(self, tools: Iterable[tuple[ToolId, str, str]]) -> list[Tool]:
        return [Tool(*row) for wanted in tools for row in self._database.rows(_NAMED_TOOLS, wanted)]

    def save_upstream(self, upstream: UpstreamRecord, tools: Sequence[Tool]) -> None:
        with self._database.atomic():
            self._database.run(_SAVE_UPSTREAM, _UPSTREAMS.row(upstream))
            key = (upstream.name, upstream.fingerprint)
            (id,) = self._database.rows(f"SELECT id FROM upstreams {_OF_UPSTREAM}", key)[0]  # noqa: S608  # a constant
            before = [tuple(row) for row in self._database.rows(_CURRENT, (id,))]
            if before != [(tool.name, tool.schema_hash, tool.id, len(tool.definition)) for tool in tools]:
                self._replace_tools(id, upstream, tools)
                hashes = {name: schema_hash for name, schema_hash, *_ in before}
                changed = [tool.name for tool in tools if hashes.get(tool.name, tool.schema_hash) != tool.schema_hash]
                for name in changed:
                    self._database.run(_DROP_VERSIONS, {"upstream": upstream.name, "name": name, "id": id})
            self._save_token_counts({tool.schema_hash: tool.tokens for tool in tools if tool.tokens is not None})

    def _replace_tools(self, id: int, upstream: UpstreamRecord, tools: Sequence[Tool]) -> None:
        self._database.run_all(
            # One definition has one hash in both eras, and the form that is known last is kept.
            "INSERT INTO definitions (schema_hash, definition) VALUES (?, ?) ON CONFLICT (schema_hash)"
            " DO UPDATE SET definition = excluded.definition WHERE definitions.definition <> excluded.definition",
            ((tool.schema_hash, tool.definition) for tool in tools),
        )
        self._database.run("DELETE FROM tools WHERE upstream = ?", (id,))
        self._database.run_all(
            "INSERT INTO tools (upstream, name, position, exposed, definition)"
            " SELECT ?, ?, ?, ?, id FROM definitions WHERE schema_hash = ?",
            ((id, tool.name, position, tool.id, tool.schema_hash) for position, tool in enumerate(tools)),
        )
        self._database.run(
            "INSERT INTO tool_versions (upstream, name, definition, first_seen)"
            " SELECT ?, name, definition, ? FROM tools WHERE upstream = ?"
            " ON CONFLICT (upstream, name, definition) DO NOTHING",
            (upstream.name, upstream.listed_at, id),
        )

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

    def save_exposed_names(self, names: Mapping[ToolId, tuple[str, str]]) -> dict[ToolId, tuple[str, str]]:
        with self._database.atomic():
            rows = ((name, self._database.row(_OWNER, (name,))) for name in names)
            known = {name: (row[0], row[1]) for name, row in rows if row is not None}
            self._database.run_all(
                "INSERT INTO exposed_names (exposed, upstream, name) VALUES (?, ?, ?)",
                ((exposed, *tool) for exposed, tool in names.items() if exposed not in known),
            )
        return {exposed: known[exposed] for exposed, tool in names.items() if known.get(exposed, tool) != tool}
