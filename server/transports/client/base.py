"""Between an edge (a transport to clients) and the proxy: who calls, and where answers go."""

from __future__ import annotations

from typing import Protocol

from foretool.server.protocol.jsonrpc import Message
from foretool.storage.records import Era


class Channel(Protocol):
    """Where what belongs to one request of a client goes.

    The proxy calls these only after the records of the request are committed; each returns at once.
    """

    def send(self, data: bytes) -> None:
        """A notification or a question that belongs to the request; one JSON-RPC message, no line end."""

    def finish(self, data: bytes, code: int | None) -> None:
        """The reply, the last thing sent here. `code`: the JSON-RPC error code when it is an error, else None."""

    def poll(self) -> None:
        """The upstream ended the request's stream to be polled for the rest; a transport that can does likewise."""

    def end(self) -> None:
        """There will be no reply: the client cancelled the request."""


class Front(Protocol):
    """One client as the proxy knows it: a stdio process, a legacy HTTP session, or a caller of the modern era."""

    era: Era

    def receive(self, message: Message, channel: Channel) -> None:
        """A message of the client. Replies, and what belongs to the request, go to `channel`; it is unused for
        notifications and for replies to our questions."""

    def cancel(self, channel: Channel, reason: str) -> None:
        """The client went away from the request that `channel` belongs to (modern HTTP: closed its stream)."""

    def close(self) -> None:
        """The client is gone: its requests are cancelled, its subscriptions end."""


class Fronts(Protocol):
    """The proxy as an edge sees it."""

    def open(self, era: Era, transport: str, standalone: Channel, /, profile: str = "", principal: str = "") -> Front:
        """A new client. `standalone`: where notifications and questions go that belong to no request (stdio: the same
        output; legacy HTTP: the GET stream; modern HTTP: nowhere). `principal`: whose credential, "" for none.

        For a stdio process the era is not known yet: pass "legacy"; the first message settles it.
        """
        ...
