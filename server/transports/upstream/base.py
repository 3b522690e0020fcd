"""What a link is: one connection to an upstream, whatever the transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from foretool.server.protocol.jsonrpc import Message


class LinkError(Exception):
    """A link could not be opened; the message names the reason and the way out in one line."""


class Receiver(Protocol):
    """Takes in what one link brings. Every method returns at once."""

    def on_message(self, message: Message, request: int | None) -> None:
        """`request` is the id of our request on whose stream the message came; None where a transport cannot know."""

    def on_invalid_line(self, line: bytes) -> None:
        """A line on the upstream's output that is no JSON-RPC message."""

    def on_failed(self, request: int, reason: str, *, sent: bool) -> None:
        """No reply to this request will come. `sent`: it had left for the upstream."""

    def on_expired(self, request: int) -> None:
        """The upstream no longer knows our session and has not handled the request; a new handshake is due."""

    def on_closed(self, reason: str) -> None:
        """The link is gone for good; called once."""


class Link(Protocol):
    """Sends messages to one upstream; replies arrive at the `Receiver` it was opened with."""

    pid: int | None
    """Process id of a child process, else None."""

    def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Hand a message to the transport; never blocks. `headers`: extra HTTP headers, ignored elsewhere."""

    def abandon(self, request: int) -> bool:
        """Drop interest in a request by the transport's own means (closing its stream). False: there are none here,
        say it with a notification."""
        ...

    def stderr(self) -> tuple[str, ...]:
        """The last lines the upstream wrote to stderr, oldest first; () where there is none."""
        ...

    async def close(self) -> None:
        """Say goodbye as the transport asks, then end it; returns when nothing of it is left."""
