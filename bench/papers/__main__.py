"""Reads the arguments, runs the benchmark of one paper, and prints one line or one JSON object per row."""

from __future__ import annotations

import importlib
import resource
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench import papers
from bench.options import add_json, make_parser
from bench.reports import Row, print_row

PAPERS = ("dtdr", "tgr", "masstool", "ports")


def with_cost(rows: Iterable[Row]) -> Iterator[Row]:
    """Each row with the minutes since the row before it, and the peak of memory so far."""
    before = time.monotonic()
    for row in rows:
        now = time.monotonic()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield {**row, "minutes": round((now - before) / 60, 2), "peak_mib": round(peak)}
        before = now


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print as rows come."""
    parser = make_parser("bench.papers", papers.__doc__)
    parser.add_argument("paper", choices=PAPERS)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="the folder of data sets")
    parser.add_argument("--queries", default="dev.jsonl", metavar="FILE", help="file of each set to score")
    parser.add_argument("--sets", help="comma-separated; default: all that the paper's table needs and that are there")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="keeps embeddings and scores between runs")
    add_json(parser)
    arguments = parser.parse_args(argv)
    paper = importlib.import_module(f"bench.papers.{arguments.paper}")
    sets = arguments.sets.split(",") if arguments.sets else None
    for row in with_cost(paper.rows(arguments.data, arguments.queries, sets, arguments.cache)):
        print_row(row, arguments.json, width=44)


if __name__ == "__main__":
    main()
