"""Says under which fingerprint the store has the tools of each server of a config."""

from __future__ import annotations

from collections.abc import Iterable

from foretool.server.config.servers import Server, fingerprint, likeness
from foretool.storage.store import Store


def find_known(store: Store, servers: Iterable[Server]) -> dict[str, str]:
    """Return by name the fingerprint under which the store has each server: its own, else the latest of a server of
    this name that runs the same, else its own, of which nothing is known. Where the user approves what is seen first,
    it is the server's own: another program of that name is not approved yet. May raise `StorageError`."""
    known, alike = dict[str, str](), list[tuple[str, str, str]]()
    for server in servers:
        known[server.name] = fingerprint(server)
        if not server.entry.approve_new:
            alike.append((server.name, known[server.name], likeness(server)))
    return known | store.catalog.known_as(alike)
