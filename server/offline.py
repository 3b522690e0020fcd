"""Works out what a proxy would show and find, from the config and the store, without starting anything.

It builds the same `App` as serving does, but writes nothing and starts no upstream.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from foretool.server.app import App
from foretool.server.config.loader import Config, Profile
from foretool.server.lists.maker import View
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Policy


@contextmanager
def open_offline(config: Config) -> Iterator[App]:
    """Build an application that only reads the store of a config. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        yield App(config, store)


def view(app: App, profile: Profile) -> View:
    """Return the list of a profile. Under `auto` it is the list that every client starts with."""
    policy: Policy = "frozen" if profile.policy == "auto" else profile.policy
    return app.lists.preview(profile, policy)


def suggest_names(app: App, name: str) -> str:
    """Return "; did you mean" with the names closest to an unknown one, or ""."""
    close = app.catalog.meanings.near(name)
    return f"; did you mean {', '.join(close)}?" if close else ""
