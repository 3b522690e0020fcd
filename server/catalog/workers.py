"""Child processes that do heavy work and end, so that their memory goes back to the system.

    python -m foretool.server.catalog.workers count
    python -m foretool.server.catalog.workers embed NAME CACHE
    python -m foretool.server.catalog.workers prepare NAME CACHE
    python -m foretool.server.catalog.workers check

`count` reads one JSON string a line and answers one number of tokens a line, in the same order. `embed` reads the same
and answers with one line of JSON (`{"dimension": 384}`), then the vectors as raw float32 in the same order. `prepare`
reads the adapter of a trained encoder and leaves the prepared model in CACHE, the folder of prepared models; for
`embed`, CACHE may be empty. `check` says `[]` when it is ready, then reads a JSON list of a schema and a value a line
and answers with a JSON list of what is wrong. The address and the key of an endpoint come in the environment,
`FORETOOL_ENCODER_URL` and `FORETOOL_ENCODER_KEY`, because everybody can read a command line.

A worker that misses the tokenizer or the encoder says so on stderr, answers nothing and exits with status 3.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from foretool.server.system.processes import worker_command

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

    from foretool.retrieval.encoders import Encoder

COMMAND: Final = worker_command("foretool.server.catalog.workers")
MISSING_STATUS: Final = 3
URL, KEY = "FORETOOL_ENCODER_URL", "FORETOOL_ENCODER_KEY"
COUNTED_AT_ONCE: Final = 256
"""How many texts are counted at once."""
CHECK_BYTES: Final = 1024 * 1024 * 1024
CHECK_S: Final = 60
"""The most address space that `check` may have, and the most processor time for one line."""
MOST_ERRORS, MOST_PATH, MOST_MESSAGE = 5, 120, 300
"""How many errors are told, and the most characters of each: where it is, and what is wrong."""


def count(stdin: BinaryIO) -> Iterator[bytes]:
    """Yield the number of tokens of each text, a number a line."""
    from foretool.retrieval import tokens

    for batch in _read_batches(stdin, COUNTED_AT_ONCE):
        yield b"".join(b"%d\n" % number for number in tokens.count(batch))


def embed(stdin: BinaryIO, name: str, cache: str) -> Iterator[bytes]:
    """Yield the header, then the vectors batch by batch."""
    from foretool.retrieval.encoders import Endpoint, find
    from foretool.retrieval.encoders.base import BATCH
    from foretool.server.catalog.encoders import open_encoder

    os.nice(10)
    endpoint = Endpoint(os.environ.get(URL, ""), os.environ.get(KEY, ""))
    encoder: Encoder | None = None
    for batch in _read_batches(stdin, BATCH):
        started = encoder is not None
        weights = find(name, endpoint)[0].for_tools
        encoder = encoder or open_encoder(weights, Path(cache) if cache else None, key=endpoint.key)
        vectors = encoder.documents(batch)
        if not started:
            yield json.dumps({"dimension": vectors.shape[1]}).encode() + b"\n"
        yield vectors.tobytes()


def prepare(stdin: BinaryIO, name: str, cache: str) -> Iterator[bytes]:
    """Make the prepared model; yield nothing."""
    from foretool.retrieval.encoders.adapted import prepare_model
    from foretool.retrieval.encoders.weights import BY_NAME

    (weights,) = (each for each in BY_NAME if each.name == name)
    prepare_model(weights, stdin.read(), Path(cache))
    return iter(())


def check(stdin: BinaryIO, *, limited: bool = True) -> Iterator[bytes]:
    """Yield what is wrong with each value by its schema, a JSON list a line; [] if the schema cannot be used.

    `limited`: let this process have only so much memory and time."""
    import jsonschema_rs

    if limited:
        _limit_memory()
    yield b"[]\n"
    for line in iter(stdin.readline, b""):
        if limited:
            _limit_time()
        try:
            schema, value = json.loads(line)
            errors = most_errors(jsonschema_rs.validator_for(schema, offline=True).iter_errors(value))
        except (ValueError, RecursionError, jsonschema_rs.ValidationError):
            errors = []
        yield json.dumps(errors).encode() + b"\n"


def _limit_memory() -> None:
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (CHECK_BYTES, CHECK_BYTES))


def _limit_time() -> None:
    """End this process if the next check takes too long: the proxy may have been killed meanwhile."""
    import resource

    with contextlib.suppress(OSError, ValueError):
        used = resource.getrusage(resource.RUSAGE_SELF)
        most = int(used.ru_utime + used.ru_stime) + CHECK_S
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


def most_errors(errors: Iterable[ValidationError]) -> list[str]:
    """Return the first errors of a validation, a short text each."""
    return [_describe_error(error) for error in islice(errors, MOST_ERRORS)]


def _describe_error(error: ValidationError) -> str:
    path = ".".join(map(str, error.instance_path)) or "arguments"
    return f"{_shorten(path, MOST_PATH)}: {_shorten(error.message, MOST_MESSAGE)}"


def _shorten(text: str, most: int) -> str:
    """Cut a text that quotes a value: the value may have megabytes."""
    return text if len(text) <= most else f"{text[: most - 25]} ... {text[-20:]}"


def _read_batches(lines: Iterable[bytes], size: int) -> Iterator[list[str]]:
    rest = iter(lines)
    while batch := [json.loads(line) for line in islice(rest, size)]:
        yield batch


if __name__ == "__main__":
    from foretool.retrieval.encoders import EncoderError
    from foretool.retrieval.tokens import TokenizerMissing

    work, *options = sys.argv[1:]
    works: dict[str, Callable[..., Iterator[bytes]]] = {
        "count": count, "embed": embed, "prepare": prepare, "check": check,
    }  # fmt: skip
    try:
        for answer in works[work](sys.stdin.buffer, *options):
            sys.stdout.buffer.write(answer)
            sys.stdout.buffer.flush()
    except (EncoderError, TokenizerMissing) as missing:
        sys.stderr.write(f"{missing}\n")
        sys.exit(MISSING_STATUS)
