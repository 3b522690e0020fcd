"""Checks that hostile messages break no promise of the proxy, by the hundred thousand.

    python -m bench.proxy.hostile_messages [--messages 100000] [--sides NAMES] [--seed N]

This runs the property of `tests/scenarios/test_hostile.py` with as many messages as wanted and a new seed at each run.
The messages come from clients (stdio, HTTP) and upstreams (stdio, HTTP, HTTP+SSE), all in memory. The output is one
JSON object per side: messages, seconds, and the memory of the process after each round. A broken promise ends the run
with the smallest conversation that breaks it. The benchmark needs hypothesis, as the tests do.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import processes
from bench.options import make_parser, split_names

TESTS = Path(__file__).parents[2] / "tests"
ROUND = 4000
"""Messages between two readings of the memory."""


def measure(side: str, messages: int, seed: int) -> dict[str, Any]:
    """Send the messages in rounds, each with its own seed."""
    import test_hostile  # type: ignore[import-not-found]

    said, rounds, started, memory = 0, 0, time.monotonic(), []
    while said < messages:
        conversations = max(1, min(ROUND, messages - said) // test_hostile.MESSAGES)
        said += test_hostile.property_of(side, conversations, seed + rounds)()
        rounds += 1
        gc.collect()
        memory.append(processes.memory_mib(os.getpid())[0])
    return {
        "test": "hostile",
        "side": side,
        "messages": said,
        "seed": seed,
        "seconds": round(time.monotonic() - started, 1),
        "rss_mib": memory,
        "load": processes.load_average(),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print a row per side."""
    # The tests have the conversations and the strategies.
    sys.path[:0] = [str(TESTS), str(TESTS / "support"), str(TESTS / "scenarios")]
    import test_hostile

    sys.set_int_max_str_digits(0)  # as the tests do
    parser = make_parser("bench.proxy.hostile_messages", __doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="of all sides together; default %(default)s")
    parser.add_argument("--sides", default=",".join(test_hostile.SIDES), help="default: all")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="default: another at each run")
    arguments = parser.parse_args(argv)
    sides = split_names(parser, "--sides", arguments.sides, test_hostile.SIDES)
    for side in sides:
        print(json.dumps(measure(side, arguments.messages // len(sides), arguments.seed)), flush=True)


if __name__ == "__main__":
    main()
