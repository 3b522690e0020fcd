"""Says under which fingerprint the store has the tools of each server of a config."""

from __future__ import annotations

from collections.abc import Iterable

from foretool.server.config.servers import Server, fingerprint, likeness
from foretool.storage.store import Store


def find_known(store: Store, servers: Iterable[Server]) -> dict[str, str]:
    """Return by name the fingerprint under which the store has each server: its own, else the latest of a server of
    this name that runs the same, else its own, of which nothing is known. May raise `StorageError`."""
    own = {server.name: (server.name, fingerprint(server), likeness(server)) for server in servers}
    return {name: key[1] for name, key in own.items()} | store.catalog.known_as(own.values())
