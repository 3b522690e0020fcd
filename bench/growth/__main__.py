"""Makes the tables of growth again, in slices: `python -m bench.growth OUT [--data DATA] [--only learning]`.

Each size of each subject is one slice, and what it found is kept in OUT. No slice begins after `--minutes`; the same
command goes on with those that are missing, and prints the tables of what there is. The longest slice (100,000 tasks of
`learning`) takes some five minutes of two cores, all of them about half an hour, in which the processors work for half
of it. A slice that was ended is measured again from its start.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench import processes
from bench.datasets import Json
from bench.growth import (
    catalogue,
    changing,
    learning,
    ledger,
    payloads,
    prediction,
    sessions,
    tables,
    windows,
)
from bench.options import make_parser, split_names

SIZES: Final = {
    "ledger": (10_000, 100_000, 1_000_000),
    "payloads": (1, 10, 50, 100),
    "sessions": (10, 30, 100),
    "windows": (1, 3, 10),
    "changing": (10, 50, 200),
    "prediction": (100, 1_000, 4_000),
    "catalogue": (500, 5_000, 20_000, 44_000),
    "learning": (100, 1_000, 10_000, 100_000),
}
HEADS: Final = {
    "ledger": "calls", "payloads": "MB", "sessions": "legacy sessions", "windows": "windows",
    "changing": "servers that change", "prediction": "tasks", "catalogue": "tools", "learning": "tasks",
}  # fmt: skip
MOST_MIB: Final = 256.0
"""The setting `max_message_mib` of the proxy that passes payloads on."""
CALLS: Final = 1_000
"""Calls of each kind with a model and without."""


class Slice(NamedTuple):
    """One size of one subject."""

    subject: str
    size: int
    measure: Callable[[], Iterator[tuple[int, Mapping[str, float | str]]]]


def slices(only: Sequence[str], data: Path | None) -> Iterator[Slice]:
    """Yield what can be measured here, the small sizes of each subject first."""
    for subject in only:
        for size in SIZES[subject]:
            if subject == "ledger":
                yield Slice(subject, size, lambda size=size: ledger.rows([size], (), tables.say))  # type: ignore[misc]
            elif subject == "payloads":
                yield Slice(subject, size, lambda size=size: payloads.rows([size], MOST_MIB, ()))  # type: ignore[misc]
            elif subject == "sessions":
                yield Slice(subject, size, lambda size=size: sessions.rows([size]))  # type: ignore[misc]
            elif subject == "windows":
                yield Slice(subject, size, lambda size=size: windows.rows([size]))  # type: ignore[misc]
            elif subject == "changing":
                yield Slice(subject, size, lambda size=size: changing.rows([size]))  # type: ignore[misc]
            elif subject == "prediction":
                yield Slice(subject, size, lambda size=size: _predict(size))  # type: ignore[misc]
            elif data is not None and subject == "catalogue":
                yield Slice(subject, size, lambda size=size: catalogue.rows(data / "mcp_catalogs", [size]))  # type: ignore[misc]
            elif data is not None:
                yield Slice(subject, size, lambda size=size: learning.rows(data / "ultratool", [size]))  # type: ignore[misc]


def _predict(size: int) -> Iterator[tuple[int, Json]]:
    return prediction.rows([size], processes.installed(None), CALLS, prediction.Manner())


def read(folder: Path, subject: str) -> dict[int, Json]:
    """Return what earlier slices of a subject found, by size."""
    path = folder / f"{subject}.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {int(row["size"]): row["found"] for row in map(json.loads, lines)}


def run(folder: Path, found: Sequence[Slice], minutes: float) -> int:
    """Run the slices that are missing until the time is over; return how many are left. One that fails is left, and the
    others go on."""
    folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * minutes
    missing = [each for each in found if each.size not in read(folder, each.subject)]
    failed = 0
    for place, each in enumerate(missing):
        if time.monotonic() >= until:
            return failed + len(missing) - place
        tables.say(f"{each.subject} at {each.size:,}")
        try:
            rows = list(each.measure())
        except Exception:  # noqa: BLE001  # the others are measured whatever broke this one
            traceback.print_exc()
            failed += 1
            continue
        with (folder / f"{each.subject}.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"size": size, "found": row}) + "\n" for size, row in rows)
    return failed


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments, measure what is missing, and print what there is."""
    parser = make_parser("bench.growth", __doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder that keeps what the slices found")
    parser.add_argument(
        "--data", type=Path, help="folder of the data sets; without it learning and catalogue are left out"
    )
    parser.add_argument("--only", default=",".join(SIZES), help="comma-separated subjects; default %(default)s")
    parser.add_argument("--minutes", type=float, default=5.0, help="no slice begins later; default %(default)s")
    arguments = parser.parse_args(argv)
    only = split_names(parser, "--only", arguments.only, SIZES)
    left = run(arguments.out, list(slices(only, arguments.data)), arguments.minutes)
    for subject in only:
        if rows := sorted(read(arguments.out, subject).items()):
            print(tables.table(HEADS[subject], rows), end="\n\n")
    if left:
        tables.say(f"{left} slice{' is' if left == 1 else 's are'} left; run the same command again")
    sys.exit(1 if left else 0)


if __name__ == "__main__":
    main()
