"""Merges the resources and resource templates of all upstreams as if they were one server's. URIs stay as they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import Profile
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.lists import MergedLists
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, Raw, RpcError
from foretool.server.upstreams.connection import Lost, Reply
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era

MOST_URIS: Final = 50_000
"""The upstreams of at most so many resources are remembered; the oldest are forgotten and searched for again."""


class Resources:
    """Lists resources and finds the upstream of each."""

    def __init__(self, upstreams: UpstreamRegistry, lists: MergedLists, forwarder: Forwarder) -> None:
        self._upstreams = upstreams
        self._lists = lists
        self._forwarder = forwarder
        self._owners: dict[str, str] = {}
        """By URI: the upstream that listed it last."""
        self._templates: list[tuple[re.Pattern[str], str, str]] = []
        """Each template as a pattern and as text, with its upstream."""

    def handlers(self, era: Era) -> dict[str, Any]:
        return {
            "resources/list": lambda exchange: self._lists.answer(exchange, "resources", "resources", self._merge),
            "resources/templates/list": lambda exchange: self._lists.answer(
                exchange, "resources", "resourceTemplates", self._merge_templates
            ),
            "resources/read": self.read,
        }

    def _merge(self, parts: dict[str, list[Raw]]) -> list[Raw]:
        found: dict[str, Raw] = {}
        for upstream, items in parts.items():
            for item in items:
                uri = jsonrpc.member(item, "uri")
                if uri is not None and uri not in found:
                    found[uri] = item
                    self._owners[uri] = upstream
        return list(found.values())

    def _merge_templates(self, parts: dict[str, list[Raw]]) -> list[Raw]:
        self._templates = []
        for upstream, items in parts.items():
            for item in items:
                if (template := jsonrpc.member(item, "uriTemplate")) is not None:
                    self._templates.append((_pattern(template), template, upstream))
        return [item for items in parts.values() for item in items]

    def read(self, exchange: Exchange) -> None:
        self.with_owner(exchange, lambda upstream: self._forwarder.pass_on(exchange, upstream, exchange.params))

    def with_owner(self, exchange: Exchange, go: Callable[[Upstream], None]) -> None:
        """Call `go` with the upstream of the request's URI. If no upstream has listed the URI, forward the request to
        one after the other until one knows it. If none can have it, answer that."""
        uri = jsonrpc.text(exchange.params.get("uri"))
        if uri is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{exchange.method}: uri is missing")
        candidates = self.possible_owners(uri, exchange.client.profile)
        if len(candidates) == 1:
            go(candidates[0])
        elif candidates:
            self._try_each(exchange, candidates, uri)
        else:
            code = jsonrpc.INVALID_PARAMS if exchange.era == "modern" else jsonrpc.RESOURCE_NOT_FOUND
            exchange.error(code, f"Resource not found: {uri}", {"uri": uri})

    def _owner(self, uri: str) -> Upstream | None:
        """Return the upstream that listed a resource, or a template that the URI fits."""
        name = self._owners.get(uri)
        if name is None:
            name = next((upstream for pattern, _, upstream in self._templates if pattern.fullmatch(uri)), None)
        return self._upstreams.get(name) if name else None

    def template_owner(self, template: str, profile: Profile) -> Upstream | None:
        """Return the upstream of a template, or of a URI, within a profile."""
        name = next((upstream for _, each, upstream in self._templates if each == template), None)
        found = self._upstreams.get(name) if name else self._owner(template)
        return found if found is not None and self._upstreams.admits(profile, found.name) else None

    def possible_owners(self, uri: str, profile: Profile) -> list[Upstream]:
        """Return the upstream of a URI, or all upstreams that may have it, within a profile."""
        owner = self._owner(uri)
        found = [owner] if owner is not None else self._upstreams.with_capability("resources", profile)
        return [upstream for upstream in found if self._upstreams.admits(profile, upstream.name)]

    def _try_each(self, exchange: Exchange, candidates: list[Upstream], uri: str) -> None:
        upstream, *rest = candidates

        def on_reply(at: Exchange, reply: Reply) -> None:
            known = not isinstance(reply, Lost) and reply.error is UNSET
            if known or not rest:
                if known:
                    self._owners.setdefault(uri, upstream.name)
                    while len(self._owners) > MOST_URIS:
                        del self._owners[next(iter(self._owners))]
                self._forwarder.answer(at, upstream, reply)
            else:
                self._try_each(at, rest, uri)

        self._forwarder.forward(exchange, upstream, dict(exchange.params), on_reply)


def _pattern(template: str) -> re.Pattern[str]:
    """Return a pattern for what a URI template (RFC 6570) can expand to; each expression matches any text."""
    parts = re.split(r"(\{[^{}]*\})", template)
    return re.compile("".join(".*" if part.startswith("{") else re.escape(part) for part in parts))
