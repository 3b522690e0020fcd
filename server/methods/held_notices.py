"""Tells each client once what its servers have changed and nobody has approved yet, as a log message."""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from foretool.server.clients.client import is_as_severe
from foretool.server.clients.exchange import Exchange
from foretool.server.clients.registry import ClientRegistry
from foretool.server.protocol import jsonrpc, versions
from foretool.server.trust.gatekeeper import Gatekeeper

METHOD: Final = "notifications/message"
LEVEL: Final = "warning"


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
            if client.session is not None and client.era == "legacy" and client.wants_log(LEVEL):
                for params in self._untold(client):
                    client.notify("", METHOD, params)

    def attach(self, exchange: Exchange) -> None:
        """Tell a modern client in the course of its request, if that asks for log messages."""
        least = jsonrpc.text(exchange.meta.get(versions.META_LOG_LEVEL))
        if exchange.era == "modern" and least and is_as_severe(LEVEL, least):
            for params in self._untold(exchange.client):
                exchange.send(jsonrpc.notification(METHOD, jsonrpc.raw(params)))

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
                found.append({"level": LEVEL, "logger": "foretool", "data": text})
        return found
