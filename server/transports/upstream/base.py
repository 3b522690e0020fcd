"""What a link is: one connection to an upstream, whatever the transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Protocol

from foretool.server.protocol.jsonrpc import Message


class LinkError(Exception):
    """A link could not be opened; the message names the reason and the way out in one line."""


LAST_LINE: Final = "; last stderr line: "
"""What stands in the reason why a process ended before the last line that it wrote."""

Verdict = Literal["repeat", "refused", "other"]
"""What a 401 or 403 means: the request may succeed with another token, it will not, or it is about something else."""


class Authorizer(Protocol):
    """Provides the token for requests to a remote server."""

    @property
    def notice(self) -> str:
        """Why the server refuses us and what a person can do, "" while nothing is wrong."""

    async def authorization(self) -> str:
        """Return the value of the header `Authorization`, "" if there is no token."""

    async def on_refused(self, status: int, header: str | None, sent: str) -> Verdict:
        """Handle a 401 or 403 with its `WWW-Authenticate`. `sent`: the value of `Authorization` that was refused."""

    def on_accepted(self, sent: str) -> None:
        """Note that the server has answered a request with this `Authorization`."""


class Receiver(Protocol):
    """Takes what one link brings. Every method returns at once."""

    def on_message(self, message: Message, request: int | None) -> None:
        """A message came. `request`: id of our request on whose stream; None where a transport cannot know."""

    def on_invalid_line(self, line: bytes) -> None:
        """The upstream sent something that is not a JSON-RPC message."""

    def on_failed(self, request: int, reason: str, *, sent: bool) -> None:
        """This request gets no reply. `sent`: it had left for the upstream."""

    def on_too_large(self, request: int | None, limit: int) -> None:
        """The reply to this request is larger than `limit` bytes and is not read; None where its id is not known."""

    def on_unreadable(self, request: int | None) -> None:
        """The reply to this request is no JSON-RPC message; None where its id cannot be read."""

    def on_expired(self, request: int | None) -> None:
        """The upstream no longer knows our session and has not handled this request; it needs a new handshake. Replies
        to other requests may still come, or this may be called for them too. None: a message without a reply was
        sent."""

    def on_poll(self, request: int, retry_ms: int) -> None:
        """The upstream has ended the stream of a request so that we ask for the rest after this pause."""

    def on_closed(self, reason: str) -> None:
        """The link is gone for good; called once."""


class Link(Protocol):
    """Sends messages to one upstream; replies arrive at the `Receiver` it was opened with."""

    pid: int | None = None
    """Process id of a child process, else None."""

    @property
    def is_loading(self) -> bool:
        """Whether a launcher is still downloading the server that it is to start."""
        return False

    def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Hand a message to the transport; never blocks. `headers`: extra HTTP headers, ignored elsewhere."""

    def abandon(self, request: int) -> bool:
        """Cancel a request by closing its stream. Returns False where a notification has to say it."""
        return False

    def stderr(self) -> tuple[str, ...]:
        """Return the last lines that the upstream wrote to stderr, oldest first; () where there is none."""
        return ()

    def noise(self) -> str:
        """Return the last lines that the upstream wrote in place of messages; "" where there are none."""
        return ""

    async def close(self) -> None:
        """Say goodbye as the transport asks and end the link; returns when nothing of it is left."""
