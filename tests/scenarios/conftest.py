"""Homes of replicas."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of replicas and their database."""
    # Not pytest's own: the path of the database's socket has to be short.
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        for name in ("HOME", "XDG_STATE_HOME"):
            monkeypatch.setenv(name, folder)
        yield Path(folder)
