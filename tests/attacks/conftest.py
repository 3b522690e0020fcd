"""Conversations run on a clock that jumps: see `fakes.SwiftLoop`."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import SwiftLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SwiftLoop}
