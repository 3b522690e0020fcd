"""Deletes what is older than it may be, a little at a time, and gives the room back to the file.

What is deleted: calls, misses, discoveries, lists that clients received, prompts, steps, sessions, what they add up to,
flows, clients, vectors, lists that are served, models that were never served, and servers that have not listed their
tools since.

What stays: how often each tool was called and missed (numbers alone), the names of tools, which keep their meaning for
ever, approvals, the audit log, models with their bytes, and demonstrations, which the user imported.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from itertools import islice
from typing import Final

from foretool.storage.records import PERIOD_S
from foretool.storage.sql.calls import CallStore, mend_marks
from foretool.storage.sql.costs import uncount_calls
from foretool.storage.sql.database import Database, Subject, encode_json
from foretool.storage.sql.tables import row_key, take_turn

_BATCH: Final = 500
"""Rows deleted in one transaction, which takes a few milliseconds."""
_PAUSE_S: Final = 0.02
"""Between two of them, so that other writers get their turn."""
MOST_QUERIES: Final = 20_000
"""How many vectors of queries are kept, some 30 MB; replays and learning read the latest tasks."""
_CROSSING: Final = 1000
"""Oldest calls and misses that may still refer to a record that was deleted before them."""

_QUERIES: Final = "replace(encoder, '#query', '') <> encoder"
_LEAST_USED: Final = (
    f"SELECT rowid FROM vectors WHERE {_QUERIES} AND used_at <"  # noqa: S608  # a constant of this file
    f" (SELECT used_at FROM vectors WHERE {_QUERIES} ORDER BY used_at DESC LIMIT 1 OFFSET {MOST_QUERIES - 1})"
    " LIMIT {batch}"
)
# `calls` has no index on its time, but its oldest rows come first.
_OLD: Final = (
    ("calls", "SELECT id FROM (SELECT id, at FROM calls ORDER BY id LIMIT {batch}) AS oldest WHERE at < :before"),
    ("misses", "SELECT id FROM misses WHERE at < :before LIMIT {batch}"),
    ("discoveries", "SELECT id FROM discoveries WHERE at < :before LIMIT {batch}"),
    ("exposures", "SELECT id FROM exposures WHERE at < :before LIMIT {batch}"),
    ("prompts", "SELECT id FROM prompts WHERE at < :before LIMIT {batch}"),
    ("steps", "SELECT id FROM steps WHERE at < :before LIMIT {batch}"),
    (
        "sessions",
        "SELECT rowid FROM sessions WHERE started_at < :before AND coalesce(ended_at, 0) < :before LIMIT {batch}",
    ),
    (
        "session_people",
        "SELECT rowid FROM session_people WHERE at < :before"
        " AND NOT EXISTS (SELECT 1 FROM sessions WHERE key = session_people.session) LIMIT {batch}",
    ),
    ("costs", f"SELECT rowid FROM costs WHERE period < :before / {PERIOD_S} LIMIT {{batch}}"),  # noqa: S608
    (
        "catalog_tokens",
        "SELECT rowid FROM catalog_tokens WHERE at < (SELECT max(at) FROM catalog_tokens AS latest"
        " WHERE at < :before) LIMIT {batch}",
    ),
    ("clients", "SELECT rowid FROM clients WHERE last_seen < :before LIMIT {batch}"),
    ("flows", "SELECT rowid FROM flows WHERE last_at < :before LIMIT {batch}"),
    ("vectors", "SELECT rowid FROM vectors WHERE used_at < :before LIMIT {batch}"),
    ("vectors", _LEAST_USED),
    ("working_sets", "SELECT rowid FROM working_sets WHERE created_at < :before LIMIT {batch}"),
    (
        "artifacts",
        "SELECT id FROM artifacts WHERE created_at < :before AND active = 0 AND length(data) = 0"
        " AND id < (SELECT max(id) FROM artifacts AS other WHERE other.kind = artifacts.kind) LIMIT {batch}",
    ),
    (
        "tools",
        "SELECT tools.rowid FROM tools JOIN upstreams ON upstreams.id = tools.upstream"
        " WHERE listed_at < :before LIMIT {batch}",
    ),
    (
        "upstreams",
        "SELECT id FROM upstreams WHERE listed_at < :before"
        " AND NOT EXISTS (SELECT 1 FROM tools WHERE tools.upstream = upstreams.id) LIMIT {batch}",
    ),
    (
        "tool_versions",
        "SELECT rowid FROM tool_versions WHERE first_seen < :before"
        " AND NOT EXISTS (SELECT 1 FROM upstreams WHERE upstreams.name = tool_versions.upstream) LIMIT {batch}",
    ),
)
"""Tables in the order in which they are emptied, each with the query that finds a batch of its old rows."""
_UNUSED: Final = (
    (
        "lists",
        "SELECT id FROM lists WHERE NOT EXISTS (SELECT 1 FROM exposures WHERE exposures.list = lists.id) LIMIT {batch}",
    ),
    (
        "definitions",
        "SELECT id FROM definitions WHERE NOT EXISTS (SELECT 1 FROM tools WHERE tools.definition = definitions.id)"
        " AND NOT EXISTS (SELECT 1 FROM tool_versions WHERE tool_versions.definition = definitions.id) LIMIT {batch}",
    ),
)
"""Tables whose rows are shared by others, each with the query that finds rows that nothing refers to."""


class RetentionStore(Subject):
    """How long records are kept."""

    def take_turn(self, now: float, until: int) -> bool:
        """Reserve pruning for one process until then; return False if another process has reserved it."""
        return take_turn(self._database, "retention_until", now, until)

    def touch_vectors(self, digests: Collection[bytes], now: float, before: float) -> None:
        """Note that the vectors of these texts, used last before some time, are still used; from any thread."""
        used = iter(digests)
        with self._database.own() as database:
            # Part by part, so that no other writer waits for all of them.
            while part := tuple(islice(used, _BATCH)):
                database.write_all(
                    "UPDATE vectors SET used_at = ? WHERE digest = ? AND used_at < ?",
                    ((now, digest, before) for digest in part),
                )

    def prune(self, before: float, most: int = 1_000_000) -> int:
        """Delete about `most` older records, in small batches, from any thread; return how many rows were deleted.

        Counts of calls and misses, names of tools, approvals, models that were served and demonstrations stay.
        """
        with self._database.own() as database:
            return prune(database, before, most)


def prune(database: Database, before: float, most: int) -> int:
    """Delete what is older than a time, batch by batch. Returns how many rows were deleted."""
    CallStore(database).fold_usage()
    deleted = 0
    for table, query in (*_OLD, *_UNUSED):
        deleted += _delete_found(database, table, query, {"before": before}, most - deleted)
        if deleted >= most:
            break
    if deleted:
        with database.atomic():
            mend_references(database, _CROSSING)
        database.give_back_room()
    return deleted


def delete_unused(database: Database) -> None:
    """Delete lists and definitions that nothing refers to."""
    for table, query in _UNUSED:
        _delete_found(database, table, query, {}, 1_000_000)


def _delete_found(database: Database, table: str, query: str, values: dict[str, float], most: int) -> int:
    total = 0
    wanted = f"SELECT CAST(value AS bigint) FROM ({database.json_strings}) AS keys"  # noqa: S608  # a constant
    delete = f"DELETE FROM {table} WHERE {row_key(table)} IN ({wanted})"  # noqa: S608  # a constant of this file
    # The rows of a batch are found outside of the transaction that deletes them.
    while total < most and (keys := [key for (key,) in database.rows(query.format(batch=_BATCH), values)]):
        with database.atomic():
            database.run(delete, (encode_json(keys),))
            if table == "calls":
                uncount_calls(database, keys)
        total += len(keys)
        time.sleep(_PAUSE_S)
    return total


def mend_references(database: Database, oldest: int = -1) -> None:
    """Let no record refer to a deleted one, whose id may be given again: of the oldest so many rows, or of all."""
    if not database.gives_ids_again:
        return
    for table, column, target in (
        ("calls", "discovery", "discoveries"),
        ("misses", "discovery", "discoveries"),
        ("misses", "exposure", "exposures"),
        ("misses", "call", "calls"),
    ):
        database.run(
            f"UPDATE {table} SET {column} = 0 WHERE id IN (SELECT id FROM {table} ORDER BY id LIMIT ?)"  # noqa: S608
            f" AND {column} > 0 AND NOT EXISTS (SELECT 1 FROM {target} WHERE {target}.id = {table}.{column})",
            (oldest,),
        )
    mend_marks(database)
