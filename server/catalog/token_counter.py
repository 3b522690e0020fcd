"""Has the tokens of new definitions and instructions counted by a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final, Protocol

from foretool.retrieval.tokens import estimate
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.workers import COMMAND
from foretool.server.system.processes import WORKER_FOLDER, worker_environment
from foretool.server.transports.tasks import Steps, in_slices
from foretool.storage.records import Tool
from foretool.storage.stores import CatalogStore, StorageError

COUNTED_AT_ONCE: Final = 2000
"""Tools that are counted in one go: preparing so many for the counter takes some 40 ms on the loop."""

COUNT_S: Final = 60.0
"""Longest wait for the counter to count a batch."""

log = logging.getLogger("foretool.tokens")


class CountedTexts(Protocol):
    """Other texts whose tokens are counted, by digest."""

    def uncounted(self) -> dict[str, str]: ...

    def count(self, tokens: Mapping[str, int]) -> None: ...


class TokenCounter:
    """Counts what the catalog estimates so far. The tokenizer is too big to keep, so a child process loads it."""

    def __init__(self, catalog: Catalog, store: CatalogStore, texts: Callable[[], CountedTexts | None]) -> None:
        """`texts`: returns the instructions once somebody has searched, None before."""
        self._catalog = catalog
        self._store = store
        self._texts = texts

    async def count(self) -> None:
        """Count the next batch, if there is one."""
        texts = self._texts()
        tools = list(islice(self._catalog.find_uncounted(), COUNTED_AT_ONCE))
        others = texts.uncounted() if texts is not None else {}
        if not tools and not others:
            return
        wanted = await in_slices(self._write(tools)) + list(others.values())
        counts = await self._count(wanted)
        if counts is None:
            # The estimates stay until the next start: the same texts would fail again.
            estimates = [estimate(text) for text in wanted]
            self._take_in([tool.schema_hash for tool in tools], estimates, texts, others)
            return
        tokens = self._take_in([tool.schema_hash for tool in tools], counts, texts, others)
        with contextlib.suppress(StorageError):
            self._store.save_token_counts(tokens)

    def _write(self, tools: Sequence[Tool]) -> Steps[list[str]]:
        texts: list[str] = []
        for tool in tools:
            yield
            texts.append(bytes(self._catalog.definition(tool)).decode())
        return texts

    def _take_in(
        self, hashes: list[str], counts: list[int], texts: CountedTexts | None, others: Mapping[str, str]
    ) -> dict[str, int]:
        """Replace estimates; return the tokens of tools by schema hash."""
        tokens = dict(zip(hashes, counts, strict=False))
        if texts is not None and others:
            texts.count(dict(zip(others, counts[len(hashes) :], strict=True)))
        self._catalog.set_token_counts(tokens)
        return tokens

    async def _count(self, texts: list[str]) -> list[int] | None:
        """Return the tokens of each text, None if the counter fails."""
        lines = b"".join(json.dumps(text).encode() + b"\n" for text in texts)
        pipe = asyncio.subprocess.PIPE
        reason = "it answered too little"
        try:
            counter = await asyncio.create_subprocess_exec(
                *COMMAND, "count", stdin=pipe, stdout=pipe, stderr=pipe, cwd=WORKER_FOLDER, env=worker_environment()
            )
            try:
                async with asyncio.timeout(COUNT_S):
                    output, _ = await counter.communicate(lines)
            finally:
                if counter.returncode is None:
                    counter.kill()
                    await counter.wait()
            counts = [int(line) for line in output.split()]
            if len(counts) == len(texts):
                return counts
        except (OSError, ValueError, RuntimeError, TimeoutError) as error:
            reason = type(error).__name__
        log.warning("tokens are estimated: the counter did not count (%s)", reason)
        return None
