"""Works out what a proxy would show and find, from the config and the store, without starting anything.

It builds the same `App` as serving does, but writes nothing and starts no upstream.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from foretool.server.app import App
from foretool.server.clients.exposure import View
from foretool.server.config.loader import Config, Profile
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Policy
from foretool.storage.stores import Store


@dataclass(frozen=True, slots=True)
class Offline:
    """An application that only reads its store."""

    app: App
    store: Store

    def view(self, profile: Profile) -> View:
        """Return the list of a profile. Under `auto` it is the list that every client starts with."""
        policy: Policy = "frozen" if profile.policy == "auto" else profile.policy
        return self.app.exposures.preview(profile, policy)

    @property
    def unlisted(self) -> list[str]:
        """Servers whose tools are not known, in the order of the config."""
        unknown = self.app.upstreams.unlisted()
        return [name for name in self.app.config.servers if name in unknown]

    def suggest(self, name: str) -> str:
        """Return "; did you mean" with the names closest to an unknown one, or ""."""
        close, _ = self.app.catalog.near(name)
        return f"; did you mean {', '.join(close)}?" if close else ""


@contextmanager
def read(config: Config) -> Iterator[Offline]:
    """Build the application over the store of a config. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        yield Offline(App(config, store), store)
