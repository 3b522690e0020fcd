"""Has the tokens of new definitions and instructions counted by a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from foretool.retrieval.token_ranks import NAME, RankFile, TokenRanks
from foretool.retrieval.tokens import estimate
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.definitions import write_definition
from foretool.server.catalog.workers import COMMAND
from foretool.server.system.processes import WORKER_FOLDER, worker_environment
from foretool.server.transports.tasks import in_slices
from foretool.storage.engine import StorageError
from foretool.storage.records import Tool
from foretool.storage.sql.catalog import CatalogStore
from foretool.storage.steps import Steps

COUNTED_AT_ONCE: Final = 2000
"""Tools that are counted in one go: preparing so many for the counter takes some 40 ms on the loop."""

COUNTED_HERE: Final = 20_000
"""Texts of so many characters together are counted without the counter, 15 ms in slices: it takes half a second of a
processor to start."""

SENT_AT_ONCE: Final = 50
"""Texts that are written to the counter before other work gets its turn."""
SAVED_AT_ONCE: Final = 200
"""Counts that one transaction writes."""

COUNT_S: Final = 60.0
"""Longest wait for the counter to count a batch."""

log = logging.getLogger("foretool.tokens")


class CountedTexts(Protocol):
    """Texts besides definitions of tools whose tokens are counted, by digest."""

    def uncounted(self) -> dict[str, str]: ...

    def count(self, tokens: Mapping[str, int]) -> None: ...


class TokenCounter:
    """Counts what the catalog estimates so far. The tokenizer is too big to keep, so a child process loads it, and
    leaves a file of ranks with which a few texts are counted here."""

    def __init__(
        self,
        catalog: Catalog,
        store: CatalogStore,
        texts: Callable[[], CountedTexts | None],
        folder: Path | None = None,
    ) -> None:
        """`texts`: returns the instructions once somebody has searched, None before. `folder`: of the file of ranks;
        None where nothing is kept."""
        self._catalog = catalog
        self._store = store
        self._texts = texts
        self._path = folder / NAME if folder is not None else None
        self._ranks: TokenRanks | None = None
        self._has_failed = False
        """The counter could not write the file of ranks, and is not asked again."""

    def count_text(self, text: str) -> int | None:
        """Return the tokens of a text: None until the ranks are there, an estimate where they will never be."""
        if (ranks := self._open_ranks()) is not None:
            return ranks.count(text)
        return estimate(text) if self._path is None or self._has_failed else None

    def _open_ranks(self) -> TokenRanks | None:
        if self._ranks is None and self._path is not None:
            with contextlib.suppress(OSError, ValueError):
                self._ranks = TokenRanks(RankFile(self._path))
        return self._ranks

    async def count(self) -> None:
        """Count the next batch, if there is one."""
        texts = self._texts()
        tools = list(islice(self._catalog.find_uncounted(), COUNTED_AT_ONCE))
        others = texts.uncounted() if texts is not None else {}
        if not tools and not others and not self._ranks_wanted():
            return
        wanted = [*await in_slices(self._write(tools)), *others.values()]
        ranks = self._open_ranks() if sum(map(len, wanted)) <= COUNTED_HERE else None
        counts = await (self._count(wanted) if ranks is None else in_slices(_count_all(ranks, wanted)))
        # The estimates stay until the next start where the counter fails: the same texts would fail again.
        known = counts if counts is not None else await in_slices(_estimate_all(wanted))
        if texts is not None and others:
            texts.count(dict(zip(others, known[len(tools) :], strict=True)))
        tokens = dict(zip((tool.schema_hash for tool in tools), known, strict=False))
        self._catalog.set_token_counts(tokens)
        if counts is not None:
            with contextlib.suppress(StorageError):
                await in_slices(self._save(tokens))

    def _ranks_wanted(self) -> tuple[str, ...]:
        """Return the argument with which the counter writes the file of ranks, if there is none yet."""
        if self._path is None or self._ranks is not None or self._has_failed or not len(self._catalog):
            return ()
        return () if self._path.exists() else (str(self._path),)

    def _write(self, tools: Sequence[Tool]) -> Steps[list[str]]:
        texts: list[str] = []
        for tool in tools:
            yield
            texts.append(bytes(write_definition(tool)).decode())
        return texts

    def _save(self, tokens: Mapping[str, int]) -> Steps[None]:
        rest = iter(tokens.items())
        while part := dict(islice(rest, SAVED_AT_ONCE)):
            yield
            self._store.save_token_counts(part)

    async def _count(self, texts: Sequence[str]) -> list[int] | None:
        """Return the tokens of each text, None if the counter fails."""
        pipe = asyncio.subprocess.PIPE
        reason = "it answered too little"
        ranks = self._ranks_wanted()
        try:
            command = (*COMMAND, "count", *ranks)
            counter = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=WORKER_FOLDER, env=worker_environment()
            )
            try:
                async with asyncio.timeout(COUNT_S):
                    output = await _ask(counter, texts)
            finally:
                if counter.returncode is None:
                    counter.kill()
                    await counter.wait()
                self._has_failed = self._has_failed or bool(self._ranks_wanted() and ranks)
            counts = [int(line) for line in output.split()]
            if len(counts) == len(texts):
                return counts
        except (OSError, ValueError, RuntimeError, TimeoutError) as error:
            reason = type(error).__name__
        log.warning("tokens are estimated: the counter did not count (%s)", reason)
        return None


def _count_all(ranks: TokenRanks, texts: Sequence[str]) -> Steps[list[int]]:
    found: list[int] = []
    for text in texts:
        yield
        found.append(ranks.count(text))
    return found


def _estimate_all(texts: Sequence[str]) -> Steps[list[int]]:
    found: list[int] = []
    for text in texts:
        yield
        found.append(estimate(text))
    return found


async def _ask(counter: asyncio.subprocess.Process, texts: Sequence[str]) -> bytes:
    assert counter.stdout is not None
    assert counter.stderr is not None
    output, *_ = await asyncio.gather(counter.stdout.read(), counter.stderr.read(), _send(counter, texts))
    await counter.wait()
    return output


async def _send(counter: asyncio.subprocess.Process, texts: Sequence[str]) -> None:
    """Write each text as a line of JSON, as fast as the counter reads them."""
    assert counter.stdin is not None
    rest = iter(texts)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # what it has answered says enough
        while part := list(islice(rest, SENT_AT_ONCE)):
            counter.stdin.write(b"".join(json.dumps(text).encode() + b"\n" for text in part))
            await counter.stdin.drain()
            await asyncio.sleep(0)
    counter.stdin.close()
