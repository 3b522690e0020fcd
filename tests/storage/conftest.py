"""An open store of each engine, and the path of one that does not exist yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres import SKIPPED, new_schema

from foretool.storage.opening import open_store
from foretool.storage.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "foretool.db"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest) -> str:
    """Where a store of each engine may be opened."""
    if request.param == "sqlite":
        return ":memory:"
    address = new_schema()
    if address is None:
        pytest.skip(SKIPPED)
    return address


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with open_store(place) as store:
        yield store
