"""Ends runs of learning at random moments, and says what the next run had to do again.

    python -m bench.growth.ended DATA [--set ultratool] [--tasks 100] [--ends 12] [--most-s 20] [--encoder none]

A log is written as in `bench.growth.learning`, and `foretool learn` runs over it again and again. Each run is ended by
TERM and KILL in turns after a random share of `--most-s` seconds of its processor time, until one has run through; the
one after the last end is not ended. A row a run: what ended it and when, the methods that it took over from the runs
before, those that it finished itself, and the processor time until it began to learn. `again` names the methods that an
earlier run had finished already; a run that loses nothing has none.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from bench import processes
from bench.datasets import Json
from bench.growth import tables
from bench.growth.learning import fill, read_set, repeat
from bench.options import add_json, make_parser
from foretool.learning.run import RUN
from foretool.server.config import loader as configs
from foretool.server.learning_schedule import LEARNING
from foretool.storage.opening import open_store

SEED: Final = 11
LEAST_S: Final = 0.3
"""The earliest end, CPU seconds."""
LOOK_S: Final = 0.02
"""Pause between two looks at a run."""


def finished(path: Path) -> list[tuple[int, str]]:
    """Return number and kind of what runs over a store have finished, the oldest first."""
    with open_store(configs.load(path).storage) as store:
        return [(each.number, each.kind) for each in reversed(store.artifacts.history()) if each.kind != RUN]


def is_complete(path: Path) -> bool:
    """Tell whether a run has come to its end."""
    with open_store(configs.load(path).storage) as store:
        return bool(store.artifacts.history(RUN, 1))


def has_begun(path: Path) -> bool:
    """Tell whether somebody learns from a store."""
    with open_store(configs.load(path).storage) as store:
        lead = store.lead(LEARNING)
        if lead.take():
            lead.release()
            return False
        return True


def learn_until(path: Path, cpu_s: float | None, ending: signal.Signals) -> Json:
    """Run `foretool learn`, and end it after so much processor time; None: let it run through."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "foretool", "learn", "--json", "--config", str(path)]
    began, used = 0.0, 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **single}) as child:
        assert child.stdout
        while cpu_s is not None and child.poll() is None:
            with suppress(OSError, IndexError):
                used = processes.cpu_s(child.pid)
            if not began and has_begun(path):
                began = used
            if used >= cpu_s:
                child.send_signal(ending)
                break
            time.sleep(LOOK_S)
        said = child.stdout.read()
    return {
        "ended by": ending.name if child.returncode else "nothing",
        "after CPU s": round(used, 1) if child.returncode else "",
        "begun after CPU s": round(began, 2) if began else "",
        "said": json.loads(said) if not child.returncode else None,
    }


def rows(path: Path, ends: int, most_s: float, least_s: float = LEAST_S) -> Iterator[Json]:
    """Yield one row a run, until one runs through; the last run is not ended."""
    draw = random.Random(SEED)
    known: list[tuple[int, str]] = []
    for number in range(ends + 1):
        ending = signal.SIGTERM if number % 2 else signal.SIGKILL
        row = learn_until(path, draw.uniform(least_s, most_s) if number < ends else None, ending)
        now = finished(path)
        new = [kind for _, kind in now[len(known) :]]
        before = {kind for _, kind in known}
        row |= {
            "taken over": len(before),
            "finished": " ".join(new) or "-",
            "again": " ".join(kind for kind in new if kind in before) or "-",
        }
        known = now
        if is_complete(path):
            yield row | {"ended by": "nothing"}  # the signal came too late
            return
        yield row


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments, end runs, and print what each of them found and did."""
    parser = make_parser("bench.growth.ended", __doc__)
    parser.add_argument("data", type=Path, help="folder of the data sets")
    parser.add_argument("--set", default="ultratool", help="default %(default)s")
    parser.add_argument("--tasks", type=int, default=100, help="tasks on record; default %(default)s")
    parser.add_argument("--ends", type=int, default=12, help="runs that are ended; default %(default)s")
    parser.add_argument("--most-s", type=float, default=20.0, help="latest end, CPU seconds; default %(default)s")
    parser.add_argument("--encoder", default="none", help="as in the config; default %(default)s")
    add_json(parser)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        tools, given, _ = read_set(arguments.data / arguments.set)
        path = fill(Path(name), tools, repeat(given, arguments.tasks), arguments.encoder)
        found = []
        for number, row in enumerate(rows(path, arguments.ends, arguments.most_s), 1):
            row.pop("said")
            if arguments.json:
                print(json.dumps({"run": number, **row}), flush=True)
            else:
                tables.say(json.dumps({"run": number, **row}))
            found.append(row)
        if not arguments.json:
            print(_table(found))


def _table(found: Sequence[Json]) -> str:
    heads = list(found[0])
    lines = [f"| run | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    lines += [f"| {number} | {' | '.join(map(str, row.values()))} |" for number, row in enumerate(found, 1)]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
