"""Merges the resources and resource templates of all upstreams as if they were one server's. URIs stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.resource_owners import ResourceOwners
from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import Profile
from foretool.server.methods.long_results import SCHEME, LongResults
from foretool.server.methods.merged_lists import MergedLists
from foretool.server.methods.skills import Skills
from foretool.server.protocol import apps, jsonrpc
from foretool.server.protocol.jsonrpc import Raw, RpcError
from foretool.server.protocol.lists import RESOURCES, TEMPLATES
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era
from foretool.storage.steps import Steps

_MOST_SCANNED: Final = 1024 * 1024
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
        skills: Skills,
        catalog: Catalog,
        results: LongResults,
    ) -> None:
        self._upstreams = upstreams
        self._lists = lists
        self._skills = skills
        self._catalog = catalog
        self._results = results
        self._owners = ResourceOwners()

    def handlers(self, era: Era) -> dict[str, Any]:
        return {
            "resources/list": self.list_all,
            "resources/templates/list": self.list_templates,
            "resources/read": self.read,
        }

    # -- lists

    def list_all(self, exchange: Exchange) -> None:
        self._lists.answer(exchange, RESOURCES, self._merge)

    def list_templates(self, exchange: Exchange) -> None:
        self._lists.answer(exchange, TEMPLATES, self._merge_templates)

    def _merge(self, exchange: Exchange, upstreams: Sequence[Upstream]) -> Steps[list[Raw]]:
        """Return each resource once, as its owner lists it."""
        profile, servers = exchange.client.profile, [upstream.name for upstream in upstreams]
        merged: dict[str, Raw] = {}
        owned: list[tuple[str, str]] = []
        for upstream in upstreams:
            for uri, resource in (upstream.lists[RESOURCES].served or {}).items():
                yield
                owner = self._owners.lists(uri, profile.name, servers, self._naming(uri, profile))
                if uri not in merged and owner in (upstream.name, None):  # None: more than is remembered
                    merged[uri] = resource
                    owned.append((uri, upstream.name))
        self._owners.hold(profile.name, owned)
        return list(merged.values())

    def _merge_templates(self, exchange: Exchange, upstreams: Sequence[Upstream]) -> Steps[list[Raw]]:
        yield
        return [item for upstream in upstreams for item in (upstream.lists[TEMPLATES].served or {}).values()]

    def take_in(self, upstream: Upstream, served: Mapping[str, Raw]) -> Steps[None]:
        """Record the resources of an upstream."""
        return self._owners.note_resources(upstream.name, served)

    def take_in_templates(self, upstream: Upstream, served: Mapping[str, Raw]) -> Steps[None]:
        """Record the templates of an upstream."""
        return self._owners.note_templates(upstream.name, served)

    def note_result(self, upstream: str, result: Raw) -> None:
        """Record the links of a tool's result: the resources need not be in any list."""
        if len(result) > _MOST_SCANNED:
            return
        data = bytes(result)
        for word in _NAMES:
            if data.find(word) >= 0:
                self._owners.note_links(upstream, _links(data))
                return

    # -- whose a resource is

    def read(self, exchange: Exchange) -> None:
        uri = jsonrpc.text(exchange.params.get("uri"))
        if uri is not None and uri.startswith(SCHEME):
            self._results.read_resource(exchange, uri)
            return
        if uri is None or not self._skills.reads(exchange, uri):
            self.with_owner(exchange, lambda upstream: self._skills.read_at(exchange, upstream, uri or ""))

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
        """Return whether clients of a profile were shown whose a resource is: no other list changes that."""
        return self._owners.is_held(uri, profile.name, self._servers(profile))

    def when_known(self, exchange: Exchange, go: Callable[[], None]) -> None:
        """Call `go` once it can be said whose each resource is, in the profile of a request. Upstreams whose lists are
        not known are asked for them."""
        upstreams = self._upstreams.with_capability("resources", exchange.client.profile)
        if len(upstreams) == 1:
            go()
        else:
            self._lists.when_known(exchange, upstreams, (RESOURCES, TEMPLATES), go)

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
        if not (named := self._catalog.now.servers_naming(uri)):
            return []
        return [each.name for each in self._upstreams.admitted(profile) if each.name in named and not each.is_personal]


def _links(data: bytes) -> Iterator[str]:
    """Yield the URIs of the resources that a result embeds or links to, and of the pages that it names."""
    try:
        members = jsonrpc.fields(Raw(data))
        content = jsonrpc.decode_value(members.get("content", Raw(b"[]")))
        yield from apps.pages_in(jsonrpc.plain_object(members.get("_meta")) or {})
    except ValueError:
        return
    for block in content if isinstance(content, list) else ():
        inner = block.get("resource") if isinstance(block, dict) else None
        for each in (block, inner):
            if isinstance(each, dict) and isinstance(uri := each.get("uri"), str):
                yield uri
