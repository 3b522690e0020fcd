"""The tables `working_sets` and `upstream_states`: what running proxies share with each other and with commands."""

from __future__ import annotations

import msgspec
from msgspec.structs import astuple

from foretool.storage.records import ToolId, UpstreamState, WorkingSet
from foretool.storage.sqlite.database import Database, encode_json, insert_into

_tool_ids = msgspec.json.Decoder(tuple[ToolId, ...])
_strings = msgspec.json.Decoder(tuple[str, ...])

_SAVE_WORKING_SET = (
    insert_into("working_sets", ("key", "epoch", "tools", "listing", "created_at", "inputs"))
    + " ON CONFLICT (key) DO UPDATE SET epoch = excluded.epoch, tools = excluded.tools,"
    " listing = excluded.listing, created_at = excluded.created_at, inputs = excluded.inputs"
    " WHERE excluded.epoch > epoch"
)
_SAVE_STATE = (
    "INSERT OR REPLACE INTO upstream_states (pid, started_at, upstream, state, since, era, tools, restarts,"
    " skipped_lines, last_error, stderr) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_GET_STATES = (
    "SELECT pid, started_at, upstream, state, since, era, tools, restarts, skipped_lines, last_error, stderr"
    " FROM upstream_states ORDER BY started_at, pid, upstream"
)
_CLEAR_STATES = (
    "DELETE FROM upstream_states WHERE pid = :pid AND (:upstream IS NULL OR upstream = :upstream)"
    " AND (:started_at IS NULL OR started_at = :started_at)"
)


class Serving:
    """Implements `ServingStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def working_set(self, key: str) -> WorkingSet | None:
        sql = "SELECT key, epoch, tools, listing, created_at, inputs FROM working_sets WHERE key = ?"
        row = self._database.row(sql, (key,))
        return WorkingSet(row[0], row[1], _tool_ids.decode(row[2]), *row[3:]) if row else None

    def save_working_set(self, working_set: WorkingSet) -> bool:
        key, epoch, tools, *rest = astuple(working_set)
        return self._database.run(_SAVE_WORKING_SET, (key, epoch, encode_json(tools), *rest)).rowcount > 0

    def save_state(self, state: UpstreamState) -> None:
        self._database.run(_SAVE_STATE, (*astuple(state)[:-1], encode_json(state.stderr)))

    def states(self) -> list[UpstreamState]:
        return [UpstreamState(*[*row[:-1], _strings.decode(row[-1])]) for row in self._database.rows(_GET_STATES)]

    def clear_states(self, pid: int, upstream: str | None = None, started_at: float | None = None) -> None:
        self._database.run(_CLEAR_STATES, {"pid": pid, "upstream": upstream, "started_at": started_at})
