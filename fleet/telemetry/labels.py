"""Texts of strangers as values in traces and metrics: short, visible, and few where each makes a series of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from foretool.fleet.telemetry import conventions
from foretool.server.system.logs import one_line

MOST_TEXT: Final = 200
"""Characters of a name on a span."""
MOST_TOOLS: Final = 200
"""Tools that get a series of their own in metrics, the first that are called."""


def shorten(text: str, most: int = MOST_TEXT) -> str:
    """Return a text as one line of visible characters, cut to a length."""
    # What a half of a surrogate pair would do to a batch: its encoder refuses all of it.
    return one_line(text[:most].encode("utf-8", "replace").decode())


def name_method(method: str) -> str:
    """Return a method of MCP, or the one name for all others."""
    return method if method in conventions.METHODS else conventions.OTHER


def name_error(kind: str) -> str:
    """Return a code of the protocol, or one of the few other failures; one name for all other codes."""
    return kind if kind in conventions.ERRORS else conventions.OTHER


class ToolNames:
    """Keeps the tools apart that metrics name. `exists` tells whether anything has a tool of this name: clients may
    call any name."""

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self._exists = exists
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        """Return the name, or the one name for all others."""
        if name in self._known:
            return name
        if len(self._known) < MOST_TOOLS and len(name) <= MOST_TEXT and self._exists(name):
            self._known.add(name)
            return shorten(name)
        return conventions.OTHER_TOOL
