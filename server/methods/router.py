"""Takes each request to the object that answers its method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from foretool.server.clients.client import Client
from foretool.server.clients.exchange import Exchange
from foretool.server.clients.registry import ClientRegistry
from foretool.server.methods.server_requests import ServerRequests
from foretool.server.methods.subscriptions import Subscriptions
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.versions import ERAS
from foretool.server.transports.client.base import Channel
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.storage.records import Era

Handler = Callable[[Exchange], None]


class MethodGroup(Protocol):
    """Answers some methods of each era."""

    def handlers(self, era: Era) -> Mapping[str, Handler]: ...


class Router:
    """Opens clients for the transports (`transports.client.base.Fronts`) and answers their requests."""

    def __init__(
        self, clients: ClientRegistry, upstreams: UpstreamRegistry, server_requests: ServerRequests,
        subscriptions: Subscriptions, groups: Iterable[MethodGroup],
    ) -> None:  # fmt: skip
        self._clients = clients
        self._upstreams = upstreams
        self._server_requests = server_requests
        self._subscriptions = subscriptions
        self._handlers: dict[Era, dict[str, Handler]] = {era: {} for era in ERAS}
        for group in (subscriptions, *groups):
            for era in ERAS:
                self._handlers[era].update(group.handlers(era))

    def open(
        self, era: Era, transport: str, standalone: Channel, /, profile: str = "", principal: str = "",
        folder: str = "", name: str = "",
    ) -> Client:  # fmt: skip
        return self._clients.open(era, transport, standalone, profile, principal, folder, name, self)

    def handle(self, exchange: Exchange) -> None:
        handler = self._handlers[exchange.era].get(exchange.method)
        if handler is None:
            exchange.error(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
        elif "requestState" not in exchange.params or not self._server_requests.resume(exchange):
            handler(exchange)

    def on_roots_changed(self, client: Client) -> None:
        for upstream in self._upstreams:
            if upstream.era_for(client.era) == "legacy":
                upstream.notify("legacy", "notifications/roots/list_changed")

    def on_closed(self, client: Client) -> None:
        self._server_requests.drop_client(client)
        self._clients.remove(client)
        self._subscriptions.forget(client)
