"""Has the tokens of new definitions and instructions counted by a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from foretool.retrieval.tokens import estimate
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.workers import COMMAND
from foretool.server.system.processes import WORKER_FOLDER, worker_environment
from foretool.storage.stores import CatalogStore, StorageError

COUNTED_AT_ONCE: Final = 2000
"""Tools that are counted in one go: preparing so many for the counter takes some 40 ms on the loop."""

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
        tools, others = self._catalog.find_uncounted()[:COUNTED_AT_ONCE], texts.uncounted() if texts is not None else {}
        if not tools and not others:
            return
        wanted = [bytes(self._catalog.definition(tool)).decode() for tool in tools] + list(others.values())
        counts = await self._count(wanted)
        tokens = {tool.schema_hash: count for tool, count in zip(tools, counts, strict=False)}
        if texts is not None and others:
            texts.count(dict(zip(others, counts[len(tools) :], strict=False)))
        self._catalog.set_token_counts(tokens)
        with contextlib.suppress(StorageError):
            self._store.save_token_counts(tokens)

    async def _count(self, texts: list[str]) -> list[int]:
        lines = b"".join(json.dumps(text).encode() + b"\n" for text in texts)
        pipe = asyncio.subprocess.PIPE
        try:
            counter = await asyncio.create_subprocess_exec(
                *COMMAND, "count", stdin=pipe, stdout=pipe, stderr=pipe, cwd=WORKER_FOLDER, env=worker_environment()
            )
            output, _ = await counter.communicate(lines)
            return [int(line) for line in output.split()]
        except (OSError, ValueError, RuntimeError) as error:
            log.warning("tokens are estimated: the counter did not run (%s)", type(error).__name__)
            return [estimate(text) for text in texts]
