"""Embeddings are kept by encoder and text, and shared by processes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from stored_records import connection_of

from foretool.storage.opening import open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "foretool.sqlite3"


def test_what_an_encoder_has_not_embedded_is_told_to_any_thread(tmp_path: Path) -> None:
    for path in (tmp_path / "foretool.sqlite3", ":memory:"):
        with open_store(path) as store, ThreadPoolExecutor(1) as threads:
            many = {number.to_bytes(4, "big"): b"1111" for number in range(1_200)}
            store.vectors.save("m", many)
            wanted = {*many, b"new"}
            assert threads.submit(store.vectors.missing, "m", wanted).result() == {b"new"}
            assert threads.submit(store.vectors.missing, "other", wanted).result() == wanted
            assert threads.submit(store.vectors.load, "m", wanted).result() == many
            threads.submit(store.retention.touch_vectors, wanted, 9e9, 9e9).result()
            assert connection_of(store).execute("SELECT DISTINCT used_at FROM vectors").fetchall() == [(9e9,)]
