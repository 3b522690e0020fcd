"""Counts the tokens of new definitions and instructions, a few milliseconds at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final, Protocol

from foretool.retrieval.tokens import open_ranks
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.definitions import write_definition
from foretool.server.transports.tasks import in_slices
from foretool.storage.engine import StorageError
from foretool.storage.sql.catalog import CatalogStore
from foretool.storage.steps import Steps

COUNTED_AT_ONCE: Final = 2000
"""Tools that are counted before their counts are used, in some 2 s."""
SAVED_AT_ONCE: Final = 200
"""Counts that one transaction writes."""


class CountedTexts(Protocol):
    """Texts besides definitions of tools whose tokens are counted, by digest."""

    def uncounted(self) -> dict[str, str]: ...

    def count(self, tokens: Mapping[str, int]) -> None: ...


class TokenCounter:
    """Counts what the catalog estimates so far."""

    def __init__(self, catalog: Catalog, store: CatalogStore, texts: Callable[[], CountedTexts | None]) -> None:
        """`texts`: returns the instructions once somebody has searched, None before."""
        self._catalog = catalog
        self._store = store
        self._texts = texts

    async def count(self) -> None:
        """Count the next batch, if there is one."""
        texts = self._texts()
        if texts is not None and (others := texts.uncounted()):
            texts.count(await in_slices(_count(others.items())))
        if tools := list(islice(self._catalog.find_uncounted(), COUNTED_AT_ONCE)):
            written = ((tool.schema_hash, bytes(write_definition(tool)).decode()) for tool in tools)
            tokens = await in_slices(_count(written))
            await in_slices(self._catalog.set_token_counts(tokens))
            with suppress(StorageError):
                await in_slices(self._save(tokens))

    def _save(self, tokens: Mapping[str, int]) -> Steps[None]:
        rest = iter(tokens.items())
        while part := dict(islice(rest, SAVED_AT_ONCE)):
            yield
            self._store.save_token_counts(part)


def _count(texts: Iterable[tuple[str, str]]) -> Steps[dict[str, int]]:
    """Count the tokens of texts by their keys."""
    ranks, found = open_ranks(), dict[str, int]()
    for key, text in texts:
        found[key] = 0
        for tokens in ranks.count_pieces(text):
            yield
            found[key] += tokens
    return found
