"""The tables `working_sets`, `upstream_states` and `failures`: what running proxies share with each other and with
commands."""

from __future__ import annotations

from typing import Final

from foretool.storage.records import Failure, UpstreamState, WorkingSet
from foretool.storage.sql.database import Subject
from foretool.storage.sql.tables import STRINGS, TOOL_IDS, Table

_WORKING_SETS = Table("working_sets", WorkingSet, {"tools": TOOL_IDS, "named": TOOL_IDS})
_STATES = Table("upstream_states", UpstreamState, {"stderr": STRINGS}, said=("last_error", "stderr"))

_FAILURES = Table("failures", Failure, said=("reason",))
KEPT_S: Final = 30 * 86_400.0
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
            old = (failure.server, failure.last_at - KEPT_S)
            self._database.run("DELETE FROM failures WHERE server = ? AND last_at < ?", old)
            self._database.run(_SAVE_FAILURE, _FAILURES.row(failure))

    def clear_failure(self, server: str, entry: str) -> None:
        """Delete what is known of this entry: the server works."""
        self._database.run("DELETE FROM failures WHERE server = ? AND entry = ?", (server, entry))
