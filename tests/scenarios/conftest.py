"""Conversations run on a clock that jumps: see `fakes.SwiftLoop`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import SwiftLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SwiftLoop}


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of replicas and their database."""
    # Not pytest's own: the path of the database's socket has to be short.
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        for name in ("HOME", "XDG_STATE_HOME"):
            monkeypatch.setenv(name, folder)
        yield Path(folder)
