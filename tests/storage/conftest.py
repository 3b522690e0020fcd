"""An open store in memory, and the path of one that does not exist yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from foretool.storage.opening import open_store
from foretool.storage.stores import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "foretool.db"


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(":memory:") as store:
        yield store
