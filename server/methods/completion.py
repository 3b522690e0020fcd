"""Answers `completion/complete` for prompts and resource templates of all upstreams."""

from __future__ import annotations

from typing import Any

from foretool.server.clients.exchange import Exchange
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.prompts import Prompts
from foretool.server.methods.resources import Resources
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, RpcError
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.storage.records import Era


class Completion:
    """Sends a completion request to the upstream of the prompt or template that it is about."""

    def __init__(
        self, upstreams: UpstreamRegistry, resources: Resources, prompts: Prompts, forwarder: Forwarder
    ) -> None:
        self._upstreams = upstreams
        self._resources = resources
        self._prompts = prompts
        self._forwarder = forwarder

    def handlers(self, era: Era) -> dict[str, Any]:
        return {"completion/complete": self.complete}

    def complete(self, exchange: Exchange) -> None:
        profile = exchange.client.profile
        reference = jsonrpc.fields(exchange.params.get("ref", UNSET))
        if jsonrpc.text(reference.get("type")) == "ref/prompt":
            name = jsonrpc.text(reference.get("name"))
            if self._prompts.is_own(name, profile):
                exchange.own_result({"completion": {"values": []}})
                return
            upstream, own = self._prompts.find(name or "", profile)
            reference["name"] = jsonrpc.raw(own)
        else:
            uri = jsonrpc.text(reference.get("uri")) or ""
            found = self._resources.template_owner(uri, profile)
            candidates = self._upstreams.with_capability("completions", profile)
            if found is None and not candidates:
                raise RpcError(jsonrpc.INVALID_PARAMS, f"completion/complete: nothing is known of {uri!r}")
            upstream = found or candidates[0]
        self._forwarder.pass_on(exchange, upstream, {**exchange.params, "ref": jsonrpc.raw(reference)})
