"""A count with its noun, in plain English."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: `1 tool`, `2 discoveries`, `3 misses`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}es" if noun.endswith(("s", "ch")) else f"{count:,} {noun}s"
