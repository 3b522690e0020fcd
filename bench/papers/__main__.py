"""Reads the arguments, runs the benchmark of one paper, and prints one line or one JSON object per row."""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import papers

PAPERS = ("dtdr", "tgr", "masstool", "ports")
Row = dict[str, Any]


def told(rows: Iterable[Row]) -> Iterator[Row]:
    """Each row with the minutes since the one before it, and the most memory so far."""
    before = time.monotonic()
    for row in rows:
        now = time.monotonic()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield {**row, "minutes": round((now - before) / 60, 2), "peak_mib": round(peak)}
        before = now


def shown(value: Any) -> str:
    """A cell: intervals as `a-b`, nothing as a dash."""
    if isinstance(value, list | tuple):
        return "-".join(shown(each) for each in value)
    return f"{value:.3f}" if isinstance(value, float) else "-" if value is None else str(value)


def line(row: Row) -> str:
    """A row for people: set, method, n, then what it found."""
    rest = "  ".join(f"{key} {shown(value)}" for key, value in row.items() if key not in ("set", "method", "n"))
    return f"{row['set']:<22} {row['method']:<44} n {row['n']:<6} {rest}"


def main(argv: Sequence[str] | None = None) -> None:
    """See `bench.papers`."""
    parser = argparse.ArgumentParser(prog="python -m bench.papers", description=papers.__doc__)
    parser.add_argument("paper", choices=PAPERS)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="the folder of data sets")
    parser.add_argument("--queries", default="dev.jsonl", metavar="FILE", help="file of each set to score")
    parser.add_argument("--sets", help="comma-separated; default: all that the paper's table needs and that are there")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="keeps embeddings and scores between runs")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    paper = importlib.import_module(f"bench.papers.{arguments.paper}")
    sets = arguments.sets.split(",") if arguments.sets else None
    for row in told(paper.rows(arguments.data, arguments.queries, sets, arguments.cache)):
        print(json.dumps(row, ensure_ascii=False) if arguments.json else line(row), flush=True)


if __name__ == "__main__":
    main()
