"""The subjects of one store share its transactions."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_records import CALL, MISS, SESSION

from foretool.storage.opening import open_store
from foretool.storage.stores import Store


def test_a_failed_block_writes_nothing(store: Store) -> None:
    with pytest.raises(RuntimeError), store.atomic():
        store.calls.record([CALL])
        store.calls.record([CALL, CALL], [MISS])
        raise RuntimeError
    assert (store.calls.recent(9), store.calls.misses(0)) == ([], [])


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
