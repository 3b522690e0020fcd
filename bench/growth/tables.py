"""Tables of growth: one row a figure, one column a size, and the exponent by which the figure grows with the size."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from math import log

Row = Mapping[str, float | str]


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """Return n of figure ~ size^n by least squares on logarithms; None for fewer than two figures above 0."""
    known = [(log(size), log(value)) for size, value in points if size > 0 and value > 0]
    if len(known) < 2:
        return None
    mean_x = sum(x for x, _ in known) / len(known)
    mean_y = sum(y for _, y in known) / len(known)
    spread = sum((x - mean_x) ** 2 for x, _ in known)
    return sum((x - mean_x) * (y - mean_y) for x, y in known) / spread if spread else None


def table(head: str, found: Sequence[tuple[int, Row]]) -> str:
    """Return a Markdown table with a row for each figure of the rows."""
    names = list(dict.fromkeys(name for _, row in found for name in row))
    lines = [f"| {head} | {' | '.join(f'{size:,}' for size, _ in found)} | ~n |", "|---" * (len(found) + 2) + "|"]
    for name in names:
        values = [(size, row.get(name, "")) for size, row in found]
        grows = exponent([(size, value) for size, value in values if isinstance(value, int | float)])
        cells = (f"{value:.3g}" if isinstance(value, float) else str(value) for _, value in values)
        lines.append(f"| {name} | {' | '.join(cells)} | {'-' if grows is None else f'{grows:.1f}'} |")
    return "\n".join(lines)


def say(text: str) -> None:
    """Print to stderr: the table alone goes to stdout."""
    print(text, file=sys.stderr, flush=True)
