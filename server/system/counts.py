"""Counts and names in plain English."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: `1 tool`, `2 discoveries`, `3 misses`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}es" if noun.endswith(("s", "ch")) else f"{count:,} {noun}s"


def name_some(names: Sequence[str], most: int = sys.maxsize) -> str:
    """Write the first names, and how many more there are: `git and time`, `git, time and 2 more`."""
    said = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return " and ".join(filter(None, (", ".join(said[:-1]), *said[-1:])))
