"""Answers `tools/list`: waits until the servers have listed, has the list made, and answers with its bytes.

The way of a list is `start`, `_answer_later`, `_answer`. `lists` says which tools are on it, and why.

With it, `HeldNotices` tells each client once what its servers have changed and nobody has approved yet, as a log
message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from foretool.server.catalog.catalog import Catalog
from foretool.server.clients.client import is_as_severe
from foretool.server.clients.exchange import Exchange
from foretool.server.clients.registry import ClientRegistry
from foretool.server.config.loader import Profile
from foretool.server.lists.maker import View, list_result
from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.general_greeting import INCOMPLETE_TTL_MS
from foretool.server.protocol.jsonrpc import RpcError
from foretool.server.transports.tasks import Precedence, Tasks, in_slices
from foretool.server.trust.gatekeeper import Gatekeeper
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.storage.records import Era

_METHOD: Final = "notifications/message"
_LEVEL: Final = "warning"


class HeldNotices:
    """Sends one message for each client and batch of changes."""

    def __init__(self, clients: ClientRegistry, gatekeeper: Gatekeeper) -> None:
        self._clients = clients
        self._gatekeeper = gatekeeper
        self._told: WeakKeyDictionary[Any, dict[str, frozenset[str]]] = WeakKeyDictionary()
        """By client: what it was told about, by server."""

    def tick(self) -> None:
        """Tell the legacy clients that want warnings; called about once a second."""
        for client in self._clients:
            if client.session is not None and client.era == "legacy" and client.wants_log(_LEVEL):
                for params in self._untold(client):
                    client.notify("", _METHOD, params)

    def attach(self, exchange: Exchange) -> None:
        """Tell a modern client in the course of its request, if that asks for log messages."""
        least = jsonrpc.text(exchange.meta.get(versions.META_LOG_LEVEL))
        if exchange.era == "modern" and least and is_as_severe(_LEVEL, least):
            for params in self._untold(exchange.client):
                exchange.send(jsonrpc.notification(_METHOD, jsonrpc.raw(params)))

    def _untold(self, client: Any) -> list[dict[str, Any]]:
        waiting = self._gatekeeper.waiting()
        if not waiting:
            return []
        told = self._told.setdefault(client, {})
        found: list[dict[str, Any]] = []
        for server, (hashes, text) in waiting.items():
            # What one person's list has changed is for whoever decides, not for the others.
            if self._gatekeeper.is_per_user(server):
                continue
            if not hashes <= told.get(server, frozenset()) and client in self._clients.admitted(server):
                told[server] = hashes
                found.append({"level": _LEVEL, "logger": "foretool", "data": text})
        return found


TTL_MS: Final = 3_600_000
"""How long a modern client may cache a list that stays as it is, unless a notification ends that earlier."""

log = logging.getLogger("foretool.upstreams")


class ListTools:
    """Lists tools once all upstreams have listed theirs, at the latest at the deadline for cold starts."""

    def __init__(
        self, upstreams: UpstreamRegistry, catalog: Catalog, clock: Callable[[], float], notices: HeldNotices,
        precedence: Precedence,
    ) -> None:  # fmt: skip
        """`clock` says when an epoch ends, in seconds since 1970. `precedence`: a list goes before what servers
        list."""
        self._upstreams = upstreams
        self._catalog = catalog
        self._clock = clock
        self._notices = notices
        self._precedence = precedence
        self._tasks = Tasks("tools/list")

    def handlers(self, era: Era) -> dict[str, Any]:
        return {"tools/list": self.start}

    def start(self, exchange: Exchange) -> None:
        if "cursor" in exchange.params and jsonrpc.text(exchange.params["cursor"]) is not None:
            raise RpcError(jsonrpc.INVALID_PARAMS, "tools/list: unknown cursor; the whole list is one page")
        listed = self._when_listed(exchange.client.profile)
        if listed.done() and exchange.client.tools.is_at_hand(exchange.own_session.list):
            self._answer(exchange)
        else:
            self._tasks.spawn(self._answer_later(exchange, listed))

    def _when_listed(self, profile: Profile) -> asyncio.Future[None]:
        """Return what is done once the upstreams have listed, or are not waited for any longer."""
        listed = asyncio.get_running_loop().create_future()

        def end() -> None:
            if not listed.done():  # whoever waits may have been cancelled
                listed.set_result(None)

        self._upstreams.when_listed(end, profile)
        return listed

    async def _answer_later(self, exchange: Exchange, listed: asyncio.Future[None]) -> None:
        """Wait for the upstreams, make the list in slices, so that others are served meanwhile, and answer with it."""
        await listed
        tools, shown = exchange.client.tools, exchange.own_session.list
        if not exchange.done and not tools.is_at_hand(shown):
            try:
                with self._precedence.go_first():
                    await in_slices(tools.prepare(shown))
            except Exception:  # the boundary of a request: the list is made in one go, and says itself what is wrong
                log.exception("A list could not be prepared")
        exchange.attempt(self._answer, exchange)

    def _answer(self, exchange: Exchange) -> None:
        """Answer with the list of the epoch and what has grown on it, record what the client was given, and measure
        whether it lists because it was told to."""
        tools, shown = exchange.client.tools, exchange.own_session.list
        self._catalog.fix_names()
        self._notices.attach(exchange)
        ttl_ms = self._ttl_ms(tools.view(shown), exchange.client.profile)
        answer = list_result(tools.array(shown), exchange.era, ttl_ms)
        tools.record(shown, "list")
        exchange.result(answer)
        tools.mark_listed()

    def _ttl_ms(self, view: View, profile: Profile) -> int:
        """Return how long a modern client may cache a list: not at all where it may grow."""
        if view.policy == "growing":
            return 0
        if self._upstreams.still_coming() or (profile.person and self._upstreams.still_coming(profile)):
            return INCOMPLETE_TTL_MS
        return TTL_MS if view.until is None else max(0, min(TTL_MS, round(1000 * (view.until - self._clock()))))
