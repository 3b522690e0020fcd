"""The child process that counts tokens and ends: the tokenizer is too big for a server to keep.

    python -m foretool.server.catalog.count_worker

reads one JSON string a line and answers one number a line, in the same order. Without the tokenizer's package it says
so on stderr, answers nothing and exits with status 3; the server then estimates.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice

from foretool.retrieval.tokens import TokenizerMissing, count

MISSING_STATUS = 3
BATCH = 256
"""How many texts are counted at once."""


def count_lines(lines: Iterable[str]) -> Iterator[int]:
    """Count the tokens of lines that each hold one JSON string."""
    rest = iter(lines)
    while batch := [json.loads(line) for line in islice(rest, BATCH)]:
        yield from count(batch)


if __name__ == "__main__":
    try:
        for tokens in count_lines(sys.stdin):
            sys.stdout.write(f"{tokens}\n")
    except TokenizerMissing as missing:
        sys.stderr.write(f"{missing}\n")
        sys.exit(MISSING_STATUS)
