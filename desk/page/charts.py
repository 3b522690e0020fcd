"""Where the parts of a drawing stand, in units of an SVG; the templates write the SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from foretool.retrieval.graph import Edge

ROW: Final = 34
WIDTH: Final = 820
BOX: Final = 240
_LONGEST: Final = 30
"""Letters of a name that fit a box."""


class Box(Struct, frozen=True):
    """A named box; its line leads from `x1, y1` to `x2, y2` and is as strong as the edge is sure."""

    name: str
    shown: str
    x: float
    y: float
    x1: float = 0.0
    y1: float = 0.0
    x2: float = 0.0
    y2: float = 0.0
    sure: float = 0.0


class Drawing(Struct, frozen=True):
    """A tool in the middle, what it needs at the left, what it feeds at the right."""

    width: int
    height: int
    middle: Box
    left: Sequence[Box]
    right: Sequence[Box]
    box: int = BOX
    row: int = ROW


def draw_neighbours(tool: str, needs: Sequence[Edge], feeds: Sequence[Edge]) -> Drawing | None:
    """Return the picture of a tool among those it needs and feeds; None if there are none."""
    if not needs and not feeds:
        return None
    rows = max(len(needs), len(feeds), 1)
    height = rows * ROW + 8
    middle = Box(tool, _shorten(tool), (WIDTH - BOX) / 2, (height - ROW) / 2 + 4)
    center = middle.y + (ROW - 8) / 2
    left = [
        Box(edge.before, _shorten(edge.before), 0, y, BOX, y + (ROW - 8) / 2, middle.x, center, edge.confidence)
        for edge, y in zip(needs, _places(len(needs), height), strict=True)
    ]
    right = [
        Box(edge.after, _shorten(edge.after), WIDTH - BOX, y, middle.x + BOX, center, WIDTH - BOX, y + (ROW - 8) / 2,
            edge.confidence)
        for edge, y in zip(feeds, _places(len(feeds), height), strict=True)
    ]  # fmt: skip
    return Drawing(WIDTH, height, middle, left, right)


def _places(count: int, height: int) -> list[float]:
    """Return where each of some boxes begins, spread around the middle."""
    start = (height - count * ROW) / 2 + 4
    return [start + place * ROW for place in range(count)]


def _shorten(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


class Bin(Struct, frozen=True):
    """The answers whose promise lay in one tenth."""

    low: float
    high: float
    count: int
    promised: float
    """Mean of what was promised."""
    held: float
    """The share of which it came true."""
    bound: tuple[float, float]
    """The 95 % interval of `held`."""


BINS: Final = 10


def sort_into_bins(outcomes: Sequence[tuple[float, float]]) -> list[tuple[float, float, list[tuple[float, float]]]]:
    """Return the tenths that have any outcomes (probability, and 1 or 0), each with its outcomes."""
    found: dict[int, list[tuple[float, float]]] = {}
    for probability, true in outcomes:
        found.setdefault(min(int(probability * BINS), BINS - 1), []).append((probability, true))
    return [(place / BINS, (place + 1) / BINS, own) for place, own in sorted(found.items())]
