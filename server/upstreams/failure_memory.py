"""Remembers in the store which servers cannot be used, and why, so that nobody waits for them in vain again.

A failure belongs to one entry of the config, is kept until the server lists its tools, and is due for another try after
as long again as the server has failed already. Until then commands do not start it. A proxy tries it in the background,
ever more rarely where only the user can mend it, and at once after a command has seen it work.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from foretool.server.config.codes import FOR_THE_USER
from foretool.server.config.servers import Server, digest_entry
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.storage.engine import StorageError
from foretool.storage.records import Failure
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.server.upstreams.causes import Cause

_LEAST_S: Final = 300.0
_MOST_S: Final = 86_400.0
"""Bounds of the pause before somebody waits for a failed server again."""
_OPEN_S: Final = 60.0
_LASTING_S: Final = 3600.0
"""Longest pauses between two tries of a proxy in the background: where the cause may pass by itself, such as a network
that is away, and where the user has to do something."""
_LOOK_S: Final = 5.0
"""Pause between two looks whether somebody else has seen a failed server work."""


def known_failures(store: Store, entries: Mapping[str, str]) -> list[Failure]:
    """Return the failures on record of these servers. `entries`: by server, the digest of its entry; a failure of an
    earlier entry does not count. Raises `StorageError`."""
    return [each for each in store.serving.failures() if entries.get(each.server) == each.entry]


class FailureMemory:
    """Keeps which servers of a config fail, in the store, so that other processes and later runs know it."""

    def __init__(self, store: Store, upstreams: UpstreamRegistry) -> None:
        self._store = store
        self._upstreams = upstreams
        self._entries: dict[str, str] = {}
        """By server: the digest of its entry."""
        self._changed: set[str] = set()
        """Servers of which the store does not say yet what we know."""
        self._saved: set[str] = set()
        """Servers of which the store has a failure, as far as we know."""
        self._look_at = 0.0

    def load(self, servers: Iterable[Server]) -> None:
        """Record what the store knows against these servers."""
        self._entries |= {server.name: digest_entry(server) for server in servers}
        names = {server.name for server in servers}
        for failure in self._read():
            if failure.server in names:
                self._upstreams.mark_failed(failure)
                self._saved.add(failure.server)

    def _read(self) -> list[Failure]:
        with contextlib.suppress(StorageError):  # a store that cannot be read knows none
            return known_failures(self._store, self._entries)
        return []

    def note(self, name: str, cause: Cause) -> None:
        """Note that a server cannot be used. `cause` holds no secrets."""
        if (entry := self._entries.get(name)) is None:
            return
        now, before = time.time(), self._upstreams.failure(name)
        first_at, times = (before.first_at, before.times) if before is not None else (now, 0)
        failing_s = max(now - first_at, 0.0)
        due_at = now + min(max(failing_s, _LEAST_S), _MOST_S)
        self._upstreams.mark_failed(Failure(name, entry, cause.code, cause.line, first_at, now, times + 1, due_at))
        if (upstream := self._upstreams.get(name)) is not None:
            upstream.lines.least_pause_s = min(failing_s, _LASTING_S if cause.code in FOR_THE_USER else _OPEN_S)
        self._changed.add(name)

    def clear(self, name: str) -> None:
        """Note that a server has listed its tools."""
        self._upstreams.clear_failure(name)
        if name in self._saved or name in self._changed:
            self._changed.add(name)
        if (upstream := self._upstreams.get(name)) is not None:
            upstream.lines.least_pause_s = 0.0

    def write(self) -> None:
        """Bring the store up to date. May raise `StorageError`; the rest is written another time."""
        for name in list(self._changed):
            failure = self._upstreams.failure(name)
            if failure is not None:
                self._store.serving.save_failure(failure)
                self._saved.add(name)
            elif name in self._entries:
                self._store.serving.clear_failure(name, self._entries[name])
                self._saved.discard(name)
            self._changed.discard(name)

    def follow_others(self) -> None:
        """Try servers again at once that a command or another proxy has seen work since they failed here."""
        known = [each.server for each in self._upstreams.failures() if each.server not in self._changed]
        now = asyncio.get_running_loop().time()
        if not known or now < self._look_at:
            return
        self._look_at = now + _LOOK_S
        kept = {each.server for each in self._read()}
        for name in known:
            if name in self._saved and name not in kept:
                self._saved.discard(name)
                self._upstreams.try_again(name)
