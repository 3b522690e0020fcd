"""The wordings with which searches read a tool beside its own words, and where they are from."""

from __future__ import annotations

from msgspec import Struct

from foretool.retrieval import known_tools
from foretool.retrieval.corpus import digest
from foretool.retrieval.document import document, embedded_text
from foretool.server.catalog.catalog import Catalog
from foretool.storage.records import Tool
from foretool.storage.store import Store


class ReadWordings(Struct, frozen=True):
    """The wordings with which searches read a tool."""

    texts: tuple[str, ...]
    model: str
    """Who made them; "" where they come with foretool."""

    @property
    def origin(self) -> str:
        """Where they are from, in words that go on after "wordings"."""
        return f"made by {self.model}" if self.model else "that come with foretool"


def find_wordings(catalog: Catalog, store: Store, tool: Tool, *, with_shipped: bool) -> ReadWordings | None:
    """Return what searches read beside a tool's own words: what a model has answered about the tool as it is now, or
    else what comes with foretool."""
    read = document(tool, catalog.texts.about(tool.upstream))
    key = digest(embedded_text(read))
    if found := next((each for each in store.wordings.all() if each.digest == key and each.texts), None):
        return ReadWordings(found.texts, found.model)
    shipped = known_tools.shipped_wordings(read) if with_shipped else ()
    return ReadWordings(shipped, "") if shipped else None
