"""Tells open pages that something has changed, by server-sent events.

A change is seen in the files: the config, the storage file and its log; a database is asked. So a page learns of calls
of every proxy, and nobody has to tell it.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from foretool.storage.places import ServerAddress, StorePlace

_LOOK_S: Final = 1.0
"""How often the files are looked at."""
_LEAST_S: Final = 5.0
"""A page hears of changes at most this often: at each it reads its content again."""
_PING_S: Final = 15.0
MOST: Final = 16
"""Pages that are told at the same time."""
_PING: Final = b": nothing new\n\n"
RETRY: Final = b"retry: 5000\n\n"

Stamp = tuple[tuple[int, int] | None, ...]


def look(paths: Callable[[], list[Path]]) -> Stamp:
    """Return modification time and size of each file; None for one that is not there."""
    found: list[tuple[int, int] | None] = []
    for path in paths():
        try:
            state = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((state.st_mtime_ns, state.st_size))
    return tuple(found)


class FileChanges:
    """Tells open pages when something changed, as server-sent events: a file, or what `ask` returns. At most `MOST`
    pages are served."""

    def __init__(self, paths: Callable[[], list[Path]], ask: Callable[[], object] = lambda: None) -> None:
        """`ask` returns what differs after something has changed that shows in no file; it may block."""
        self._paths = paths
        self._ask = ask
        self.open = 0

    @property
    def is_full(self) -> bool:
        return self.open >= MOST

    def mark(self) -> str:
        """Return a digest of the present state, which differs after each change. May block."""
        return hashlib.sha256(repr((look(self._paths), self._ask())).encode()).hexdigest()[:16]

    async def follow(self, since: str = "", look_s: float = _LOOK_S, least_s: float = _LEAST_S) -> AsyncIterator[bytes]:
        """Yield one event for each change after the mark `since`, by default after now, and a comment where there is
        none for long. The identifier of an event is its mark, so that a browser that connects again misses nothing."""
        self.open += 1
        try:
            yield RETRY
            known = since or await asyncio.to_thread(self.mark)
            # What a page has missed since it was made, it hears at the first look.
            said = time.monotonic() - (least_s if since else 0.0)
            while True:
                await asyncio.sleep(look_s)
                now = time.monotonic()
                if now - said >= least_s and (found := await asyncio.to_thread(self.mark)) != known:
                    known, said = found, now
                    yield b"event: changed\nid: %b\ndata: 1\n\n" % found.encode()
                elif now - said >= _PING_S:
                    said = now
                    yield _PING
        finally:
            self.open -= 1


def files_of(config: Path, storage: StorePlace) -> list[Path]:
    """Return the files that a page has to follow: the config, and those of the store."""
    if isinstance(storage, ServerAddress):
        return [config]
    return [config, storage, storage.with_name(f"{storage.name}-wal")]
