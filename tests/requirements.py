"""What is promised, and where each promise comes from; tests name the promises they hold us to.

`test_requirements.py` checks both directions: every promise has a test, every test's promise is listed here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

SPEC = "MCP specification 2026-07-28"
LEGACY_SPEC = "MCP specification 2025-11-25"

MANIFEST: Final[dict[str, tuple[str, str]]] = {}


def requirement(*ids: str) -> Callable[[Any], Any]:
    """Marks a test as one of the promises `ids`."""
    return pytest.mark.requirement(*ids)
