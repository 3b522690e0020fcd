"""Rows of figures: means with their 95 % intervals, times, and the lines that are printed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bench.metrics import quantile
from foretool.learning.results import interval, paired_difference

Row = dict[str, Any]


def rounded(values: Sequence[float], digits: int = 4) -> list[float]:
    """Each of the values with so many digits."""
    return [round(value, digits) for value in values]


def mean_row(name: str, values: Sequence[float], digits: int = 4) -> Row:
    """The mean of a figure under `name`, and its interval under `name_interval`."""
    return {name: round(fmean(values), digits), f"{name}_interval": rounded(interval(values), digits)}


def mean_rows(values: Mapping[str, Sequence[float]]) -> Row:
    """`mean_row` of several figures."""
    return {key: value for name, each in values.items() for key, value in mean_row(name, each).items()}


def difference(ours: Sequence[float], theirs: Sequence[float], digits: int = 4) -> list[float]:
    """The mean difference on the same queries, and the two ends of its interval."""
    low, mean, high = paired_difference(ours, theirs, digits)
    return [mean, low, high]


def times_row(milliseconds: Sequence[float], shares: Sequence[int] = (50, 95), digits: int = 2) -> Row:
    """Quantiles of times in milliseconds, for instance `p50_ms` and `p95_ms`."""
    return {f"p{share}_ms": round(quantile(milliseconds, share / 100), digits) for share in shares}


def area_under_curve(right: ArrayLike, wrong: ArrayLike, digits: int = 3) -> float:
    """The probability that one of the right has the higher value than one of the wrong; equals count half."""
    above, below = np.asarray(right)[:, None], np.asarray(wrong)[None, :]
    if not above.size or not below.size:
        return float("nan")
    return round(float((above > below).mean() + 0.5 * (above == below).mean()), digits)


def print_row(row: Row, as_json: bool, width: int = 8) -> None:
    """Print a row as one JSON object, or as one line for people; `width` of the method's name in the line."""
    print(json.dumps(row, ensure_ascii=False) if as_json else line_of(row, width), flush=True)


def line_of(row: Row, width: int = 8) -> str:
    """Set, method and number of queries where the row has them, then each other figure behind its name, followed by its
    interval."""
    head = f"{row['set']:<18} {row.get('method', ''):<{width}} n={row.get('n', '-')!s:<5} " if "set" in row else ""
    figures = {
        key: value for key, value in row.items() if key not in ("set", "method", "n") and value not in (None, "")
    }
    parts = []
    for key, value in figures.items():
        if key.removesuffix("_interval") not in figures or not key.endswith("_interval"):
            interval_of = figures.get(f"{key}_interval", "")
            parts.append(f"{key} {cell_of(value)}" + (f" {cell_of(interval_of)}" if interval_of else ""))
    return head + "  ".join(parts)


def cell_of(value: Any) -> str:
    """A figure as text; the parts of a list stand between brackets."""
    if isinstance(value, list | tuple):
        return f"[{' '.join(map(cell_of, value))}]"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
