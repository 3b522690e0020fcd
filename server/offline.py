"""What the proxy would show and find, worked out from config and store without starting anything.

The same `App` that serves, over the same file, but nothing is written and no upstream is started.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import time

from foretool.server.app import App
from foretool.server.clients.exposure import Exposures, View
from foretool.server.config.loader import Config, Profile
from foretool.storage.opening import open_store
from foretool.storage.records import Policy, Usage, WorkingSet
from foretool.storage.stores import Store


@dataclass(frozen=True, slots=True)
class Offline:
    """One reading of the store."""

    app: App
    exposures: Exposures
    store: Store

    def view(self, profile: Profile) -> View:
        """The list of a profile. Under `auto` it is the start of every client's list: growing ones begin alike."""
        policy: Policy = "frozen" if profile.policy == "auto" else profile.policy
        return self.exposures.view(profile, policy, self.app.proxy.unknown_upstreams())

    @property
    def unlisted(self) -> list[str]:
        """Servers of the config whose tools are not known, in its order."""
        unknown = self.app.proxy.unknown_upstreams()
        return [name for name in self.app.config.servers if name in unknown]


@contextmanager
def read(config: Config) -> Iterator[Offline]:
    """Raises `StorageError`. A file that is not there yet is not made."""
    with open_store(config.storage if config.storage.exists() else ":memory:") as store:
        app = App(config, store)
        settings = config.settings
        exposures = Exposures(
            app.catalog, app.search.rank_for_list, _Reading(store), settings.pin, settings.epoch_s, time
        )
        exposures.prior, exposures.base = app.exposures.prior, app.exposures.base
        yield Offline(app, exposures, store)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The store as exposure reads it; the lists it works out are not kept."""

    store: Store

    def usage(self, profile: str | None = None, since: float = 0.0) -> list[Usage]:
        return self.store.calls.usage(profile, since)

    def tasks(self, since: float, limit: int) -> list[str]:
        return self.store.tasks.texts(since, limit)

    def working_set(self, key: str) -> WorkingSet | None:
        return self.store.serving.working_set(key)

    def save_working_set(self, working_set: WorkingSet) -> bool:
        return True
