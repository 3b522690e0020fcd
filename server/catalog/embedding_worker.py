"""The process that embeds tools and then ends, so that its memory goes back to the system.

    python -m foretool.server.catalog.embedding_worker NAME

The process opens the encoder and writes a line of JSON (`{"dimension": 384}`). Then it reads one JSON string a line,
and answers with the vectors as raw float32 in the same order; an empty line has it embed what came so far. It ends when
its input does. The address and the key of an endpoint come in the environment, `FORETOOL_ENCODER_URL` and
`FORETOOL_ENCODER_KEY`, because everybody can read a command line. A process that misses the encoder says so on stderr,
answers nothing and exits with status 3.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import BinaryIO, Final, NamedTuple, Self

from foretool.server.system.processes import WORKER_FOLDER, worker_command, worker_environment

COMMAND: Final = worker_command("foretool.server.catalog.embedding_worker")
_MISSING_STATUS: Final = 3
_URL, _KEY = "FORETOOL_ENCODER_URL", "FORETOOL_ENCODER_KEY"
_AT_ONCE: Final = 200
"""So many texts are embedded with the priority of other programs: the first search of a new machine waits for them."""


# The process as the proxy sees it


class WorkerChoice(NamedTuple):
    encoder: str
    """As `resolve_weights` takes it."""
    url: str
    key: str


class EmbeddingWorker:
    def __init__(self, process: asyncio.subprocess.Process, choice: WorkerChoice) -> None:
        assert process.stdin and process.stdout and process.stderr
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self.choice = choice
        self._stderr = asyncio.create_task(process.stderr.read())
        self._header: bytes | None = None

    @classmethod
    async def start(cls, choice: WorkerChoice) -> Self:
        """Start the process. Raises `OSError`."""
        pipe = asyncio.subprocess.PIPE
        environment = worker_environment(**{_URL: choice.url, _KEY: choice.key})
        command = (*COMMAND, choice.encoder)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=WORKER_FOLDER, env=environment
        )
        return cls(process, choice)

    async def open(self) -> bool:
        """Wait until the encoder is open; returns whether it is. One behind an endpoint, or on torch,
        opens with the first texts."""
        if self._header is None:
            self._header = await self._stdout.readline()
        return bool(self._header)

    async def embed(self, texts: Mapping[bytes, str]) -> AsyncIterator[tuple[bytes, bytes]]:
        """Embed texts, given by hash; yields each hash with its vector. Raises `EncoderError`."""
        writing = asyncio.create_task(self._write(texts.values()))
        try:
            is_open = await self.open()
            size = 4 * int(json.loads(self._header or b"")["dimension"]) if is_open else 0
            for digest in texts if size else ():
                yield digest, await self._stdout.readexactly(size)
        except (asyncio.IncompleteReadError, ValueError):
            size = 0
        finally:
            writing.cancel()
        if not size:
            await self._explain()

    async def _write(self, texts: Iterable[str]) -> None:
        with contextlib.suppress(ConnectionError):
            for text in texts:
                self._stdin.write(json.dumps(text).encode() + b"\n")
                await self._stdin.drain()
            self._stdin.write(b"\n")  # what came so far is embedded now

    async def _explain(self) -> None:
        """Raise `EncoderError` with what the process said last."""
        from foretool.retrieval.encoders import EncoderError

        said = await self.stop()
        told = said.splitlines()[-1] if said else "its process was ended"
        raise EncoderError(told if told.startswith("encoder ") else f"encoder {self.choice.encoder!r}: {told}")

    async def stop(self) -> str:
        """End the process; returns what it wrote to stderr."""
        # At the end of its output it ends by itself; killing it then would lose its last words.
        if not self._stdout.at_eof():
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        said = (await self._stderr).decode(errors="replace").strip()
        await self._process.wait()
        self._stdin.close()
        return said


# What the process does


def embed(stdin: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the header, then the vectors batch by batch."""
    from foretool.retrieval.encoders import Endpoint, resolve_weights
    from foretool.retrieval.encoders.base import BATCH
    from foretool.server.catalog.encoders import open_any_encoder

    endpoint = Endpoint(os.environ.get(_URL, ""), os.environ.get(_KEY, ""))
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

    try:
        for answer in embed(sys.stdin.buffer, sys.argv[1]):
            sys.stdout.buffer.write(answer)
            sys.stdout.buffer.flush()
    except EncoderError as missing:
        sys.stderr.write(f"{missing}\n")
        sys.exit(_MISSING_STATUS)
