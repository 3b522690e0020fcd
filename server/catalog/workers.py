"""Child processes that do heavy work and end, so that their memory goes back to the system.

    python -m foretool.server.catalog.workers count [RANKS]
    python -m foretool.server.catalog.workers embed NAME

`count` reads one JSON string a line and answers one number of tokens a line, in the same order; then it writes the file
of ranks that is named (`retrieval.token_ranks`). `embed` opens the encoder and writes a line of JSON
(`{"dimension": 384}`). Then it reads the same as `count`, and answers with the vectors as raw float32 in the same
order; an empty line has it embed what came so far. The address and the key of an endpoint come in the environment,
`FORETOOL_ENCODER_URL` and `FORETOOL_ENCODER_KEY`, because everybody can read a command line.

A worker that misses the tokenizer or the encoder says so on stderr, answers nothing and exits with status 3.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from foretool.server.system.processes import worker_command

COMMAND: Final = worker_command("foretool.server.catalog.workers")
_MISSING_STATUS: Final = 3
URL, KEY = "FORETOOL_ENCODER_URL", "FORETOOL_ENCODER_KEY"
_AT_ONCE: Final = 200
"""So many texts are embedded with the priority of other programs: the first search of a new machine waits for them."""
COUNTED_AT_ONCE: Final = 256
"""How many texts are counted at once."""


def count(stdin: BinaryIO, ranks: str = "") -> Iterator[bytes]:
    """Yield the number of tokens of each text, a number a line; then write the file of ranks, if it is named."""
    from foretool.retrieval import token_ranks, tokens

    for batch in _read_batches(stdin, COUNTED_AT_ONCE):
        yield b"".join(b"%d\n" % number for number in tokens.count_tokens(batch))
    if ranks:
        with contextlib.suppress(OSError):  # on a full disk answers are estimated
            token_ranks.write_ranks(Path(ranks))


def embed(stdin: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the header, then the vectors batch by batch."""
    from foretool.retrieval.encoders import Endpoint, resolve_weights
    from foretool.retrieval.encoders.base import BATCH
    from foretool.server.catalog.encoders import open_any_encoder

    endpoint = Endpoint(os.environ.get(URL, ""), os.environ.get(KEY, ""))
    weights = resolve_weights(name, endpoint)[0].for_tools
    encoder = open_any_encoder(weights, key=endpoint.key)
    dimension = 0 if weights.is_slow else encoder.queries(["warm"]).shape[1]
    if dimension:
        yield _header(dimension)
    embedded = 0
    for batch in _read_batches(stdin, BATCH):
        if embedded <= _AT_ONCE < embedded + len(batch):
            os.nice(10)
        embedded += len(batch)
        vectors = encoder.documents(batch)
        if not dimension:
            dimension = vectors.shape[1]
            yield _header(dimension)
        yield vectors.tobytes()


def _header(dimension: int) -> bytes:
    return json.dumps({"dimension": dimension}).encode() + b"\n"


def _read_batches(lines: Iterable[bytes], size: int) -> Iterator[list[str]]:
    batch: list[str] = []
    for line in lines:
        if line.strip():
            batch.append(json.loads(line))
        if batch and (len(batch) == size or not line.strip()):
            yield batch
            batch = []
    if batch:
        yield batch


if __name__ == "__main__":
    from foretool.retrieval.encoders import EncoderError
    from foretool.retrieval.tokens import TokenizerMissing

    work, *options = sys.argv[1:]
    works: dict[str, Callable[..., Iterator[bytes]]] = {"count": count, "embed": embed}
    try:
        for answer in works[work](sys.stdin.buffer, *options):
            sys.stdout.buffer.write(answer)
            sys.stdout.buffer.flush()
    except (EncoderError, TokenizerMissing) as missing:
        sys.stderr.write(f"{missing}\n")
        sys.exit(_MISSING_STATUS)
