"""Subscriptions of both eras: `resources/subscribe` of legacy clients, `subscriptions/listen` of modern ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from foretool.server.clients.client import Client
from foretool.server.clients.exchange import Caller, Exchange
from foretool.server.clients.registry import ClientRegistry
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.resources import Resources
from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.jsonrpc import UNSET, RpcError
from foretool.server.upstreams.connection import Lost, Reply
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era

_MOST_URIS: Final = 1_000
"""Resources that one `subscriptions/listen` may name; the acknowledgment leaves out the others."""

_Key = tuple[str, str]
"""The upstream that a resource belongs to, and its URI. No other upstream is heard about it."""


class Subscriptions:
    """Subscribes to resources at upstreams on behalf of clients, and passes changes on to these clients."""

    def __init__(
        self, upstreams: UpstreamRegistry, clients: ClientRegistry, resources: Resources, forwarder: Forwarder
    ) -> None:
        self._upstreams = upstreams
        self._clients = clients
        self._resources = resources
        self._forwarder = forwarder
        self._legacy: dict[_Key, set[Caller]] = {}
        """The legacy clients that subscribed to a resource."""
        self._modern: dict[_Key, set[Exchange]] = {}
        """The open `subscriptions/listen` requests that name a resource."""

    def handlers(self, era: Era) -> dict[str, Any]:
        if era == "modern":
            return {"subscriptions/listen": self.listen}
        return {"resources/subscribe": self.subscribe, "resources/unsubscribe": self.unsubscribe}

    # -- the legacy era

    def subscribe(self, exchange: Exchange) -> None:
        self._resources.with_owner(exchange, lambda upstream: self._subscribe(exchange, upstream))

    def _subscribe(self, exchange: Exchange, upstream: Upstream) -> None:
        uri = jsonrpc.text(exchange.params["uri"]) or ""

        subscribed = self._legacy.setdefault((upstream.name, uri), set())
        is_new = exchange.client not in subscribed
        # At once, so that nobody who unsubscribes meanwhile ends it.
        subscribed.add(exchange.client)

        def on_reply(at: Exchange, reply: Reply) -> None:
            if not isinstance(reply, Lost) and reply.error is UNSET:
                upstream.subscriptions.add(upstream.era_for("legacy"), [uri], asked=True)
            elif is_new:
                take_back()
            self._forwarder.answer(at, upstream, reply)

        def take_back() -> None:
            self._leave(exchange.client, uri)
            self._release([uri])

        if upstream.era_for("legacy") == "legacy":
            exchange.on_drop = take_back if is_new else None
            self._forwarder.forward(exchange, upstream, exchange.params, on_reply)
            return
        upstream.subscriptions.add(upstream.era_for("legacy"), [uri])
        exchange.result(jsonrpc.EMPTY)

    def unsubscribe(self, exchange: Exchange) -> None:
        uri = jsonrpc.text(exchange.params.get("uri")) or ""
        left = self._leave(exchange.client, uri)
        upstream = self._upstreams.get(left[0]) if len(left) == 1 else None
        if upstream is not None:
            self._unsubscribe(exchange, upstream)
        else:
            self._release([uri])
            self._resources.with_owner(exchange, lambda upstream: self._unsubscribe(exchange, upstream))

    def _unsubscribe(self, exchange: Exchange, upstream: Upstream) -> None:
        uri = jsonrpc.text(exchange.params.get("uri")) or ""
        if upstream.era_for("legacy") == "legacy" and not self._is_wanted(upstream, "legacy", uri):
            upstream.subscriptions.remove("legacy", [uri], asked=True)
            self._forwarder.pass_on(exchange, upstream, exchange.params)
            return
        self._release([uri])
        exchange.result(jsonrpc.EMPTY)

    def _leave(self, client: Caller, *uris: str) -> list[str]:
        """Drop subscriptions of a legacy client; return the upstreams that they were at."""
        left = [key for key, clients in self._legacy.items() if client in clients and (not uris or key[1] in uris)]
        for key in left:
            self._legacy[key].discard(client)
            if not self._legacy[key]:
                del self._legacy[key]
        return [name for name, _ in left]

    def forget(self, client: Client) -> None:
        """Drop the subscriptions of a client that has gone."""
        uris = [uri for (_, uri), clients in self._legacy.items() if client in clients]
        self._leave(client)
        self._release(uris)

    # -- the modern era

    def listen(self, exchange: Exchange) -> None:
        """Answer `subscriptions/listen`, which stays open until the client cancels it or goes away."""
        wanted = jsonrpc.plain_object(exchange.params.get("notifications"))
        if wanted is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, "subscriptions/listen: notifications must be an object")
        honoured = honoured_filter(wanted)
        uris = honoured.get("resourceSubscriptions", ())
        exchange.client.add_listen(exchange, honoured)
        exchange.on_end = lambda: self._stop_listening(exchange)
        params = {"_meta": {versions.META_SUBSCRIPTION: exchange.id}, "notifications": honoured}
        exchange.send(jsonrpc.notification("notifications/subscriptions/acknowledged", jsonrpc.raw(params)))
        sure = [uri for uri in uris if self._resources.is_sure(uri, exchange.client.profile)]
        self._listen_to(exchange, sure)
        known = set(sure)
        if others := [uri for uri in uris if uri not in known]:
            self._resources.when_known(exchange, lambda: exchange.attempt(self._listen_to, exchange, others))

    def _listen_to(self, exchange: Exchange, uris: Sequence[str]) -> None:
        """Subscribe to resources at the upstreams that they belong to."""
        exchange.request = None  # was for a list; it is not what this exchange waits for
        by_upstream: dict[str, list[str]] = {}
        for uri in uris:
            if (upstream := self._resources.owner(uri, exchange.client.profile)) is not None:
                self._modern.setdefault((upstream.name, uri), set()).add(exchange)
                by_upstream.setdefault(upstream.name, []).append(uri)
        for name, owned in by_upstream.items():
            upstream = self._upstreams[name]
            upstream.subscriptions.add(upstream.era_for("modern"), owned)
            upstream.start("modern")  # a stopped upstream announces nothing

    def _stop_listening(self, exchange: Exchange) -> None:
        left = [key for key, listening in self._modern.items() if exchange in listening]
        for key in left:
            self._modern[key].discard(exchange)
            if not self._modern[key]:
                del self._modern[key]
        self._release([uri for _, uri in left])

    # -- both eras

    def _release(self, uris: Sequence[str]) -> None:
        """Unsubscribe at upstreams from the resources that no client is subscribed to any more."""
        for upstream in self._upstreams:
            subscribed = [uri for uri in uris if uri in upstream.subscriptions]
            for era in versions.ERAS if subscribed else ():
                unwanted = [uri for uri in subscribed if not self._is_wanted(upstream, era, uri)]
                upstream.subscriptions.remove(upstream.era_for(era), unwanted)

    def restore(self, name: str) -> None:
        """Subscribe an upstream that has taken the place of one of its name to what clients are subscribed to."""
        upstream = self._upstreams[name]
        wanted: tuple[tuple[Era, Iterable[_Key]], ...] = (("legacy", self._legacy), ("modern", self._modern))
        for era, keys in wanted:
            upstream.subscriptions.add(upstream.era_for(era), [uri for owner, uri in keys if owner == name])

    def _is_wanted(self, upstream: Upstream, era: Era, uri: str) -> bool:
        """Return whether any client served by the upstream's connection for `era` is subscribed to a resource."""
        carrier, key = upstream.era_for(era), (upstream.name, uri)
        legacy = upstream.era_for("legacy") == carrier and key in self._legacy
        modern = upstream.era_for("modern") == carrier and key in self._modern
        return legacy or modern

    def resource_updated(self, upstream: Upstream, uri: str, params: dict[str, Any], era: Era) -> None:
        """Tell clients that a resource has changed; the upstream announced it on its connection of `era`."""
        legacy = self._legacy.get((upstream.name, uri), set())
        listening = {exchange.client for exchange in self._modern.get((upstream.name, uri), ())}
        for client in self._clients.admitted(upstream.name):
            # An upstream of both eras announces it on both connections; each client is told once.
            carrier = upstream.era_for("modern" if client.listens else "legacy")
            if (client in listening if client.listens else client in legacy) and carrier == era:
                client.notify("", "notifications/resources/updated", params, uri=uri)


def honoured_filter(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a `subscriptions/listen` filter that we serve."""
    kinds = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
    kept: dict[str, Any] = {kind: True for kind in kinds if wanted.get(kind) is True}
    uris = wanted.get("resourceSubscriptions")
    if isinstance(uris, list) and uris:
        kept["resourceSubscriptions"] = [uri for uri in uris if isinstance(uri, str)][:_MOST_URIS]
    return kept
