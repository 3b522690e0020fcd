"""Counts the rows of a file, and deletes the old part of its log."""

from __future__ import annotations

from foretool.storage.records import Statistics
from foretool.storage.sqlite.database import Database

_PRUNED_AT_ONCE = 2000
"""Rows deleted per transaction: a few ms, so that a proxy that writes meanwhile does not run into its `busy_ms`."""

_STATISTICS = """
    SELECT (SELECT count(*) FROM upstreams), (SELECT count(*) FROM tools), (SELECT count(*) FROM tool_versions),
        (SELECT count(*) FROM sessions), (SELECT count(*) FROM exposures), (SELECT count(*) FROM discoveries),
        (SELECT count(*) FROM calls), (SELECT count(*) FROM misses), (SELECT count(*) FROM clients),
        (SELECT page_count * page_size FROM pragma_page_count, pragma_page_size)
"""

# Rows that a kept miss refers to stay with it. The newest row stays too: SQLite gives out the id after the highest that
# exists, so an emptied table would count from 1 again, and old references would come to mean other rows.
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


def count_rows(database: Database) -> Statistics:
    """Count the rows of each subject."""
    return Statistics(*database.rows(_STATISTICS)[0])


def prune_log(database: Database, before: float) -> int:
    """Delete log rows older than `before`, one short transaction after another; return how many rows went."""
    return sum(_prune_table(database, table, before) for table in _OLD)


def _prune_table(database: Database, table: str, before: float) -> int:
    # The rows' own ids are collected first: the conditions are costly, and need no lock.
    old = f"SELECT rowid FROM {table} WHERE {_OLD[table]} ORDER BY rowid"  # noqa: S608  # constants of this file
    ids = [(rowid,) for (rowid,) in database.rows(old, {"before": before})]
    for start in range(0, len(ids), _PRUNED_AT_ONCE):
        database.write_all(f"DELETE FROM {table} WHERE rowid = ?", ids[start : start + _PRUNED_AT_ONCE])  # noqa: S608
    return len(ids)
