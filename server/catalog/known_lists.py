"""Says under which fingerprint the store has the tools of each server of a config."""

from __future__ import annotations

from collections.abc import Iterable

from foretool.server.config.servers import Server, fingerprint, likeness
from foretool.storage.store import Store


def find_known(store: Store, servers: Iterable[Server]) -> dict[str, str]:
    """Return for each server, by name, under which fingerprint its last known list is stored: its own; else that of the
    latest server of this name that runs the same program; else its own, under which nothing is stored. May raise
    `StorageError`. Where the user approves what is seen first, only its own counts: a program under another fingerprint
    has not been approved."""
    known, alike = dict[str, str](), list[tuple[str, str, str]]()
    for server in servers:
        known[server.name] = fingerprint(server)
        if not server.entry.approve_new:
            alike.append((server.name, known[server.name], likeness(server)))
    return known | store.catalog.known_as(alike)
