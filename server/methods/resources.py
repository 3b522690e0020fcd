"""Merges the resources and resource templates of all upstreams as if they were one server's. URIs stay as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.resource_owners import ResourceOwners
from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import Profile
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.lists import MergedLists, Parts
from foretool.server.methods.long_results import SCHEME, LongResults
from foretool.server.protocol import apps, jsonrpc
from foretool.server.protocol.jsonrpc import Raw, RpcError
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era

ASK_AGAIN_S: Final = 60.0
"""An upstream that did not list its resources is asked again at most this often."""
MOST_SCANNED: Final = 1024 * 1024
"""Bytes of a result that is searched for links."""

_NAMES: Final = (b'"resource', b"esourceUri", b"outputTemplate")
"""One of these stands in each result that names a resource."""

Found = Callable[[Upstream | None], None]
"""Takes the upstream of a resource, None if it has none."""


class Resources:
    """Lists resources and finds the one upstream that each belongs to, within the profile of the client."""

    def __init__(
        self,
        upstreams: UpstreamRegistry,
        lists: MergedLists,
        forwarder: Forwarder,
        catalog: Catalog,
        results: LongResults,
    ) -> None:
        self._upstreams = upstreams
        self._lists = lists
        self._forwarder = forwarder
        self._catalog = catalog
        self._results = results
        self._owners = ResourceOwners()
        self._asked_at: dict[str, float] = {}
        """By upstream: when it was asked for its lists because they were not known, in seconds of the loop."""

    def handlers(self, era: Era) -> dict[str, Any]:
        return {
            "resources/list": self.list_all,
            "resources/templates/list": self.list_templates,
            "resources/read": self.read,
        }

    # -- lists

    def list_all(self, exchange: Exchange) -> None:
        self._lists.answer(exchange, "resources", "resources", partial(self._merge, exchange.client.profile))

    def list_templates(self, exchange: Exchange) -> None:
        self._lists.answer(exchange, "resources", "resourceTemplates", self._merge_templates)

    def _merge(self, profile: Profile, parts: Parts) -> list[Raw]:
        """Return each resource once, as its owner lists it."""
        named = {upstream: list(_named(items, "uri")) for upstream, items in parts.items()}
        for upstream, found in named.items():
            self._owners.note_resources(upstream, (uri for uri, _ in found))
        servers = self._servers(profile)
        merged: dict[str, Raw] = {}
        owned: list[tuple[str, str]] = []
        for upstream, found in named.items():
            for uri, item in found:
                owner = self._owners.lists(uri, profile.name, servers, self._naming(uri, profile))
                if uri not in merged and owner in (upstream, None):  # None: more than is remembered
                    merged[uri] = item
                    owned.append((uri, upstream))
        self._owners.hold(profile.name, owned)
        return list(merged.values())

    def _merge_templates(self, parts: Parts) -> list[Raw]:
        for upstream, items in parts.items():
            self._owners.note_templates(upstream, (template for template, _ in _named(items, "uriTemplate")))
        return [item for items in parts.values() for item in items]

    def changed(self, upstream: str) -> None:
        """Take in that an upstream has announced other resources."""
        if self._owners.knows(upstream):  # one that keeps others waiting for its lists is not asked again at once
            self._asked_at.pop(upstream, None)
        self._owners.forget(upstream)

    def note_result(self, upstream: str, result: Raw) -> None:
        """Take in the links of a tool's result: the resources need not be in any list."""
        if memoryview(result).nbytes <= MOST_SCANNED and any(word in (data := bytes(result)) for word in _NAMES):
            self._owners.note_links(upstream, _links(data))

    # -- whose a resource is

    def read(self, exchange: Exchange) -> None:
        uri = jsonrpc.text(exchange.params.get("uri"))
        if uri is not None and uri.startswith(SCHEME):
            self._results.read_resource(exchange, uri)
            return
        self.with_owner(exchange, lambda upstream: self._forwarder.pass_on(exchange, upstream, exchange.params))

    def with_owner(self, exchange: Exchange, go: Callable[[Upstream], None]) -> None:
        """Call `go` with the upstream of the request's URI, or answer that there is none."""
        uri = jsonrpc.text(exchange.params.get("uri"))
        if uri is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{exchange.method}: uri is missing")

        def found(upstream: Upstream | None) -> None:
            if upstream is not None:
                go(upstream)
                return
            code = jsonrpc.INVALID_PARAMS if exchange.era == "modern" else jsonrpc.RESOURCE_NOT_FOUND
            exchange.error(code, f"Resource not found: {uri}", {"uri": uri})

        self.find_owner(exchange, uri, found)

    def find_owner(self, exchange: Exchange, uri: str, found: Found) -> None:
        """Call `found` with the upstream that a URI or a template belongs to, in the profile of a request."""
        profile = exchange.client.profile
        if self.is_sure(uri, profile):
            found(self.owner(uri, profile))
        else:
            self.when_known(exchange, lambda: found(self.owner(uri, profile)))

    def is_sure(self, uri: str, profile: Profile) -> bool:
        """Tell whether clients of a profile were shown whose a resource is: no other list changes that."""
        return self._owners.is_held(uri, profile.name, self._servers(profile))

    def when_known(self, exchange: Exchange, go: Callable[[], None]) -> None:
        """Call `go` once it can be said whose each resource is, in the profile of a request. Upstreams whose lists are
        not known are asked for them in its course."""
        profile = exchange.client.profile
        upstreams = self._upstreams.with_capability("resources", profile)
        unknown = [upstream for upstream in upstreams if self._may_list(upstream)]
        if not unknown or len(upstreams) == 1:
            go()
            return
        now = asyncio.get_running_loop().time()
        self._asked_at |= {upstream.name: now for upstream in unknown}

        def decide(parts: Parts) -> None:
            self._merge_templates(parts)
            go()

        def ask_for_templates(parts: Parts) -> None:
            self._merge(profile, parts)
            self._lists.gather(exchange, unknown, "resourceTemplates", decide)

        self._lists.gather(exchange, unknown, "resources", ask_for_templates)

    def _may_list(self, upstream: Upstream) -> bool:
        """Tell whether an upstream is to be asked for its lists before a resource that nobody lists is looked for."""
        asked_at = self._asked_at.get(upstream.name)
        is_due = asked_at is None or asyncio.get_running_loop().time() - asked_at > ASK_AGAIN_S
        return is_due and not self._owners.knows(upstream.name)

    def owner(self, uri: str, profile: Profile) -> Upstream | None:
        """Return the upstream that a URI or a template belongs to, as far as lists are known."""
        naming = self._naming(uri, profile)
        # A server whose tools name pages may not say that it has resources.
        servers = [
            upstream.name
            for upstream in self._upstreams.admitted(profile)
            if not upstream.is_personal and (
                self._upstreams.may_have(upstream, "resources")
                or upstream.name in naming or self._owners.links(upstream.name, uri)
            )
        ]  # fmt: skip
        name = self._owners.template_owner(uri, servers) if "{" in uri else None
        name = name or self._owners.owner(uri, profile.name, servers, naming)
        return self._upstreams.get(name) if name is not None else None

    def _servers(self, profile: Profile) -> list[str]:
        return [upstream.name for upstream in self._upstreams.with_capability("resources", profile)]

    def _naming(self, uri: str, profile: Profile) -> list[str]:
        """Return the upstreams of a profile whose tools have a page at this URI, in config order."""
        if not (named := self._catalog.naming(uri)):
            return []
        return [each.name for each in self._upstreams.admitted(profile) if each.name in named and not each.is_personal]


def _named(items: Sequence[Raw], key: str) -> Iterator[tuple[str, Raw]]:
    """Yield the items that say what they are asked for by."""
    for item in items:
        if (name := jsonrpc.member(item, key)) is not None:
            yield name, item


def _links(data: bytes) -> Iterator[str]:
    """Yield the URIs of the resources that a result embeds or links to, and of the pages that it names."""
    try:
        members = jsonrpc.fields(Raw(data))
        content = jsonrpc.plain(members.get("content", Raw(b"[]")))
        yield from apps.pages_in(jsonrpc.plain_object(members.get("_meta")) or {})
    except ValueError:
        return
    for block in content if isinstance(content, list) else ():
        inner = block.get("resource") if isinstance(block, dict) else None
        for each in (block, inner):
            if isinstance(each, dict) and isinstance(uri := each.get("uri"), str):
                yield uri
