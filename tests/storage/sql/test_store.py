"""The subjects of one store share its transactions, and their records are counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stored_records import CALL, SESSION, rows

from foretool.storage.opening import open_store
from foretool.storage.sql import calls, catalog, discoveries, sessions
from foretool.storage.store import Store


def test_a_failed_inner_block_keeps_the_writes_of_the_outer_one(store: Store) -> None:
    with store.atomic():
        store.calls.record([CALL])
        with pytest.raises(RuntimeError), store.atomic():
            store.calls.record([CALL])
            raise RuntimeError
        store.calls.record([CALL])
    assert len(store.calls.recent(9)) == 2


def test_other_stores_see_a_block_only_when_it_ends(path: Path) -> None:
    with open_store(path) as store, open_store(path) as other:
        with store.atomic():
            store.sessions.begin(SESSION)
            store.calls.record([CALL])
            assert (other.sessions.recent(), other.calls.recent(9)) == ([], [])
        assert (len(other.sessions.recent()), len(other.calls.recent(9))) == (1, 1)


EXACT: dict[str, set[str]] = {
    "calls": {"session", "tool", "upstream", "via", "outcome"},
    "misses": {"session", "tool", "noticed", "cause", "history", "recovered", "parts"},
    "usage": {"tool"},
    "flows": {"before", "after", "field", "parameter"},
    "upstreams": {"name", "fingerprint", "era", "capabilities", "lacks", "likeness"},
    "discoveries": {"session", "level", "matches"},
    "prompts": {"owner"},
    "steps": {"session", "tools", "fallback"},
    "working_sets": {"key", "tools", "named", "inputs"},
    "upstream_states": {"machine", "upstream", "state", "era"},
    "failures": {"server", "entry", "code"},
    "sessions": {"key", "era", "transport", "profile"},
    "kept_calls": {"ident", "owner", "session", "tool", "upstream", "task", "era", "machine"},
}
"""Text columns that must stay what they are: keys, names of tools, closed sets. Their writers clean the exceptions."""


def test_every_text_column_is_cleaned_or_is_known_to_be_exact(path: Path) -> None:
    tables: list[Any] = [calls.CALLS, calls.MISSES, calls._USAGE, calls._FLOWS, catalog._UPSTREAMS]
    tables += [discoveries._DISCOVERIES, discoveries.PROMPTS, discoveries._STEPS]
    tables += [calls._KEPT, sessions._WORKING_SETS, sessions._STATES, sessions._FAILURES, sessions._SESSIONS]
    with open_store(path):
        for table in tables:
            name = table.select.rpartition(" FROM ")[2]
            columns = {column: kind for _, column, kind, *_ in rows(path, f"PRAGMA table_info({name})")}
            texts = {column for column, kind in columns.items() if kind == "TEXT"}
            assert texts - table.said == EXACT[name], name
