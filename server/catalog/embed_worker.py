"""The child process that embeds and ends, so that its memory goes back to the system:

    python -m foretool.server.catalog.embed_worker NAME CACHE

reads one JSON string a line, answers with one line of JSON (`{"dimension": 384}`) and then the vectors as raw float32
in the same order. CACHE is the folder of prepared models, or empty. The address and the key of an endpoint come in the
environment, `FORETOOL_ENCODER_URL` and `FORETOOL_ENCODER_KEY`, because everybody can read a command line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from foretool.retrieval.encoders import Encoder, EncoderError, Endpoint, find
from foretool.retrieval.encoders.base import BATCH
from foretool.server.catalog.opening import open_encoder

MISSING_STATUS = 3
URL, KEY = "FORETOOL_ENCODER_URL", "FORETOOL_ENCODER_KEY"


def embed_lines(name: str, cache: str, lines: Iterable[str]) -> Iterator[bytes]:
    """Yield the header, then the vectors batch by batch, for lines that each hold one JSON string."""
    rest = iter(lines)
    endpoint = Endpoint(os.environ.get(URL, ""), os.environ.get(KEY, ""))
    encoder: Encoder | None = None
    while batch := [json.loads(line) for line in islice(rest, BATCH)]:
        started = encoder is not None
        weights = find(name, endpoint)[0].untrained
        encoder = encoder or open_encoder(weights, Path(cache) if cache else None, key=endpoint.key)
        vectors = encoder.documents(batch)
        if not started:
            yield json.dumps({"dimension": vectors.shape[1]}).encode() + b"\n"
        yield vectors.tobytes()


if __name__ == "__main__":
    os.nice(10)
    try:
        for data in embed_lines(sys.argv[1], sys.argv[2], sys.stdin):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except EncoderError as missing:
        sys.stderr.write(f"{missing}\n")
        sys.exit(MISSING_STATUS)
