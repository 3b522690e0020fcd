"""The process that embeds tools, as the proxy sees it: it gets texts on stdin and answers with vectors (`workers.py`).

It ends when its input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import NamedTuple, Self

from foretool.server.system.processes import WORKER_FOLDER, worker_environment


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
        from foretool.server.catalog.workers import COMMAND, KEY, URL

        pipe = asyncio.subprocess.PIPE
        environment = worker_environment(**{URL: choice.url, KEY: choice.key})
        command = (*COMMAND, "embed", choice.encoder)
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
