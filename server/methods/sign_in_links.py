"""Shows the link of a sign-in to the user of a client, where a call needs one and the client can open links.

Only a client on stdio is on the machine of the user, where the browser has to come back to. The others, and those that
cannot show links, get the text that names `foretool login`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import LiveConfig
from foretool.server.methods.server_requests import ServerRequests, refusal
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, Message
from foretool.server.upstreams.connection import Lost
from foretool.server.upstreams.upstream import Upstream

if TYPE_CHECKING:
    from foretool.server.signin.worker import LinkSignIn

_METHOD: Final = "elicitation/create"
_SETTLED_S: Final = 5.0
"""How long an answer waits for the sign-in, after the user has agreed to open the link."""
_SHOWN: Final = "The user was shown a link to sign in: if they have done it, call again now."


class SignInLinks:
    """Puts links of sign-ins to clients; at most one sign-in to a server runs at a time."""

    def __init__(self, config: LiveConfig, server_requests: ServerRequests) -> None:
        self._config = config
        self._server_requests = server_requests
        self._running: dict[str, LinkSignIn] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def answer(self, exchange: Exchange, upstream: Upstream, lost: Lost, text: str) -> None:
        """Answer a call that got no reply with `text`, and show its user the link of a sign-in where that helps."""
        if self._can_offer(exchange, upstream, lost):
            self._offer_soon(exchange, upstream, lambda at: at.tool_error(f"{text} {_SHOWN}"))
        else:
            exchange.tool_error(text)

    def _can_offer(self, exchange: Exchange, upstream: Upstream, lost: Lost) -> bool:
        """Return whether a call failed for want of a sign-in, and its client can open a link on the user's machine."""
        bearer = upstream.bearer
        if bearer is None or not bearer.asks_for_sign_in(lost.reason):
            return False
        if exchange.client.transport != "stdio":
            return False
        asked = jsonrpc.raw({"mode": "url"})
        return refusal(_METHOD, asked, exchange.client.declared(exchange)) is None

    def _offer_soon(self, exchange: Exchange, upstream: Upstream, then: Callable[[Exchange], None]) -> None:
        """Show the link, and call `then` once the user has seen it, or if there is none."""
        self._keep(self._offer(exchange, upstream, then))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _offer(self, exchange: Exchange, upstream: Upstream, then: Callable[[Exchange], None]) -> None:
        from foretool.server.signin.worker import LinkSignIn

        running = self._running.get(upstream.name)
        if running is None or running.is_over:
            running = self._running[upstream.name] = LinkSignIn(upstream.name, self._config.now.path)
        link = await running.link()
        if exchange.done:
            return
        if not link:
            exchange.attempt(then, exchange)
            return
        question = {
            "mode": "url",
            "elicitationId": f"foretool-{os.urandom(16).hex()}",
            "url": link,
            "message": f"Sign in to {upstream.name!r}: foretool needs it for this call.",
        }

        def on_answer(at: Exchange, answer: Message) -> None:
            if at.done:
                return
            at.params, at.chat = exchange.params, exchange.chat
            said = jsonrpc.plain_object(answer.result) if answer.result is not UNSET else None
            if (said or {}).get("action") == "accept":
                self._keep(self._answer_later(running, at, then))
            else:
                at.attempt(then, at)

        exchange.attempt(self._server_requests.ask_client, exchange, _METHOD, jsonrpc.raw(question), on_answer)

    async def _answer_later(self, running: LinkSignIn, at: Exchange, then: Callable[[Exchange], None]) -> None:
        """Answer when the sign-in is over: a call that came before would only show its link again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLED_S):
                await running.finished()
        if not at.done:
            at.attempt(then, at)

    async def stop(self) -> None:
        """End the processes that wait for users."""
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        for running in self._running.values():
            await running.stop()
