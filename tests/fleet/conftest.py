"""A place for a store of a database server."""

from __future__ import annotations

import pytest
from postgres import SKIPPED, new_schema


@pytest.fixture
def address() -> str:
    """The address of an empty schema."""
    return new_schema() or pytest.skip(SKIPPED)
