"""Keeps the vectors of what was searched with, beside those of the tools.

A search has paid for its vectors. Replays and learning read the same texts again, and embed only those that the store
lacks: without this a replay of 1,000 tasks embeds 2,393 texts (`docs/benchmarks.md`). Only texts that are on record as
they were searched with are kept, so `foretool forget` finds their vectors, and text that is not recorded, or recorded
without its secrets, leaves none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from foretool.retrieval.ranking import split_needs
from foretool.server.catalog.embedding import Embedder
from foretool.server.catalog.search import Search
from foretool.server.discovery.arguments import Arguments
from foretool.server.hints.prompt_hook import searched_lines
from foretool.storage.records import Prompt
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.retrieval.model_format import Reading

_LOOKS: Final = 5
"""A text that is in no record after so many looks, a second apart, was not recorded."""
_BACK_S: Final = 30.0
"""How old a record may be whose text is looked for."""
_MOST_READ: Final = 64
"""How many of the latest searches and prompts are looked at."""


class QueryVectors:
    """Saves the vectors of recorded prompts and searches; looks for new ones about once a second."""

    def __init__(self, store: Store, search: Search, embedder: Embedder, clock: Callable[[], float]) -> None:
        self._store = store
        self._search = search
        self._embedder = embedder
        self._clock = clock
        self._keys: tuple[str, ...] = ()
        """By encoder, under what the store keeps its vectors."""
        self._waiting: dict[str, tuple[Reading, int]] = {}
        """By text, its vectors and how often it was looked for."""

    async def tick(self) -> None:
        """Keep the vectors of texts that were recorded since the last look. May raise `StorageError`."""
        if self._keys != (keys := self._embedder.query_keys):
            self._waiting.clear()  # other encoders gave them
            self._keys = keys
        for text, reading in self._search.take_readings().items() if keys else ():
            self._waiting[text] = reading, 0
        if not self._waiting:
            return
        try:
            for texts in self._recorded():
                self._save([text for text in dict.fromkeys(texts) if text in self._waiting])
                await asyncio.sleep(0)  # a record may have 20,000 characters
        finally:
            aged = ((text, (reading, looks + 1)) for text, (reading, looks) in self._waiting.items())
            self._waiting = {text: (reading, looks) for text, (reading, looks) in aged if looks < _LOOKS}

    def _recorded(self) -> Iterator[list[str]]:
        """Yield what encoders read of each of the latest records."""
        since = self._clock() - _BACK_S
        for search in self._store.discoveries.events(since, limit=_MOST_READ):
            yield texts_of_search(search.text)
        for prompt in self._store.tasks.prompts(since, _MOST_READ):
            yield texts_of_prompt(prompt.text)

    def _save(self, texts: list[str]) -> None:
        from foretool.retrieval.corpus import digest_query

        for place, key in enumerate(self._keys if texts else ()):
            vectors = {digest_query(text): self._waiting[text][0][place].tobytes() for text in texts}
            self._store.vectors.save(key, vectors)
        for text in texts:
            del self._waiting[text]


def texts_of_prompt(prompt: str) -> list[str]:
    """Return what an encoder reads of a prompt."""
    return _read(searched_lines(Prompt(0.0, prompt)))


def texts_of_search(task: str) -> list[str]:
    """Return what an encoder reads of the words of a search."""
    return _read(Arguments(task=task).lines)


def _read(lines: tuple[str, ...]) -> list[str]:
    from foretool.retrieval.clauses import split_task

    return split_task(split_needs(lines))
