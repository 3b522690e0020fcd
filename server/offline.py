"""Works out what a proxy would show and find, from the config and the store, without starting anything.

It builds the same `App` as serving does, but writes nothing and starts no upstream.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from foretool.server.app import App
from foretool.server.catalog.catalog import Catalog
from foretool.server.config.loader import Config, Profile
from foretool.server.lists.maker import View
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Policy, Tool
from foretool.storage.store import Store


@contextmanager
def open_offline(config: Config) -> Iterator[App]:
    """Build an application that only reads the store of a config. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        yield App(config, store)


def view(app: App, profile: Profile) -> View:
    """Return the list that the next client of a profile gets. Under `auto` it is the list that every client starts
    with."""
    policy: Policy = "frozen" if profile.policy == "auto" else profile.policy
    return app.lists.foresee(profile, policy)


def suggest_names(app: App, name: str) -> str:
    """Return "; did you mean" with the names closest to an unknown one, or ""."""
    close = app.catalog.meanings.near(name)
    return f"; did you mean {', '.join(close)}?" if close else ""


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
    # Not at the top: most commands look up no wordings.
    from foretool.retrieval import known_tools
    from foretool.retrieval.corpus import digest
    from foretool.retrieval.document import document, embedded_text

    read = document(tool, catalog.texts.about(tool.upstream))
    key = digest(embedded_text(read))
    if found := next((each for each in store.wordings.all() if each.digest == key and each.texts), None):
        return ReadWordings(found.texts, found.model)
    shipped = known_tools.shipped_wordings(read) if with_shipped else ()
    return ReadWordings(shipped, "") if shipped else None
