"""Keeps an upstream's connections subscribed to what clients want to hear, across its restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Final

from foretool.server.protocol.jsonrpc import UNSET, Message
from foretool.server.upstreams.connection import Connection, Reply, Request
from foretool.storage.records import Era

_LISTEN_AGAIN_S: Final = 2.0
"""Pause before a stream of notifications that has ended is opened again."""

_LIST_CHANGES: Final = {f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources")}


class UpstreamSubscriptions:
    """Tells an upstream which resources and which log level clients want to hear of.

    A legacy connection gets one `resources/subscribe` per resource; a modern one gets one `subscriptions/listen` for
    everything. `ready` returns the connection of an era if its handshake is done, `missed` is called with a connection
    on which announcements may have been missed.
    """

    def __init__(self, ready: Callable[[Era], Connection | None], missed: Callable[[Connection], None]) -> None:
        self._ready = ready
        self._missed = missed
        self._uris: dict[Era, set[str]] = {"legacy": set(), "modern": set()}
        """Resources, by the era of the connection that carries their changes."""
        self._level = ""
        self._listen: Request | None = None

    def __bool__(self) -> bool:
        return any(self._uris.values())

    def __contains__(self, uri: str) -> bool:
        return any(uri in uris for uris in self._uris.values())

    def add(self, era: Era, uris: Collection[str], asked: bool = False) -> None:
        """Subscribe the connection of this era. `asked`: a client's request has already told the upstream."""
        new = set(uris) - self._uris[era]
        self._uris[era] |= new
        if new and not asked:
            self._tell(era, "resources/subscribe", new)

    def remove(self, era: Era, uris: Collection[str], asked: bool = False) -> None:
        """End subscriptions that nobody in this era wants any more. `asked`: as for `add`."""
        old = set(uris) & self._uris[era]
        self._uris[era] -= old
        if old and not asked:
            self._tell(era, "resources/unsubscribe", old)

    def move(self, era: Era, other: Era, asked: bool = False) -> None:
        """Let the other era's connection carry everything: the upstream does not speak this era."""
        uris, self._uris[era] = self._uris[era], set()
        self.add(other, uris, asked)

    def set_level(self, level: str) -> None:
        """Set the least severe log level that a legacy upstream should send."""
        if level != self._level:
            self._level = level
            if (connection := self._ready("legacy")) is not None:
                connection.tell("logging/setLevel", {"level": level})

    def renew(self, connection: Connection) -> None:
        """Tell a new connection everything again."""
        if connection.era == "modern":
            self._listen_on(connection)
            return
        if self._level:
            connection.tell("logging/setLevel", {"level": self._level})
        for uri in sorted(self._uris["legacy"]):
            connection.tell("resources/subscribe", {"uri": uri})

    def _tell(self, era: Era, method: str, uris: set[str]) -> None:
        if (connection := self._ready(era)) is None:
            return
        if era == "modern":
            self._listen_on(connection)
        for uri in sorted(uris) if era == "legacy" else ():
            connection.tell(method, {"uri": uri})

    def _listen_on(self, connection: Connection) -> None:
        """Open a stream of notifications, then end the one it replaces, so that nothing is missed between them."""
        replaced = self._listen
        wanted: dict[str, Any] = dict(_LIST_CHANGES)
        if self._uris["modern"]:
            wanted["resourceSubscriptions"] = sorted(self._uris["modern"])

        def listen_again() -> None:
            if connection.ready:
                self._listen_on(connection)
                self._missed(connection)

        def on_end(reply: Reply) -> None:
            # The server ended the stream, or a proxy between us cut it off. A server that refuses is not asked again.
            is_refused = isinstance(reply, Message) and reply.error is not UNSET
            if connection.ready and not is_refused:
                asyncio.get_running_loop().call_later(_LISTEN_AGAIN_S, listen_again)

        self._listen = connection.tell("subscriptions/listen", {"notifications": wanted}, on_end)
        if replaced is not None:
            connection.cancel(replaced, "replaced")
