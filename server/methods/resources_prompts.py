"""Resources, templates, prompts and completions of all upstreams as if they were one server's.

Lists are merged in config order; a URI or a prompt goes to the upstream that has it. URIs pass as they are; prompts get
the prefix of their server, as tools do.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from foretool.server.catalog import names
from foretool.server.clients.client import Client
from foretool.server.clients.exchange import Exchange
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, Raw, RpcError
from foretool.server.upstreams.connection import Lost, Reply, Request
from foretool.server.upstreams.eras import ERAS
from foretool.storage.records import Era

if TYPE_CHECKING:
    from foretool.server.config.loader import Profile
    from foretool.server.methods.agent_step import Plan
    from foretool.server.proxy import Proxy
    from foretool.server.upstreams.upstream import Upstream

MOST_URIS: Final = 50_000
"""Resources whose upstream is remembered; the first found go first, and are asked for again."""

PAGES: Final = 100

STEP: Final = "assemble_step"
"""Our own prompt."""

_STEP_PROMPT: Final = {
    "name": STEP,
    "title": "Assemble a step",
    "description": "The tools and instructions that a task needs, within a token budget, as one text.",
    "arguments": [
        {"name": "task", "description": "what to do; one need per line", "required": True},
        {"name": "budget", "description": "tokens; 2000 if left out"},
    ],
}

Keep = Callable[[dict[str, list[Raw]]], list[Raw]]
"""Notes whose the members of a list are, by upstream, and gives the merged list."""

CHANGES: Final = {
    "resources": ("resourcesListChanged", "notifications/resources/list_changed"),
    "resourceTemplates": ("resourcesListChanged", "notifications/resources/list_changed"),
    "prompts": ("promptsListChanged", "notifications/prompts/list_changed"),
}


class _Merge(Struct):
    """A list while its parts come in."""

    exchange: Exchange
    key: str
    keep: Keep
    waiting: dict[str, Upstream]
    """Upstreams whose parts are still to come."""
    parts: dict[str, list[Raw]] = field(default_factory=dict)
    requests: list[tuple[Upstream, Request]] = field(default_factory=list)


class Aggregate:
    """See the module."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._resources: dict[str, str] = {}
        """URI to upstream, as last listed."""
        self._absent: dict[str, set[str]] = {}
        """Upstreams that were not up when lists were merged, with the keys of those lists."""
        self._templates: list[tuple[re.Pattern[str], str, str]] = []
        """Pattern, template and upstream."""
        self._prompts: dict[str, tuple[str, str]] = {}
        """Exposed name to upstream and its name there."""
        self.subscriptions: dict[str, set[Client]] = {}
        """URI to the legacy clients that subscribed to it."""

    # -- lists

    def list_resources(self, exchange: Exchange) -> None:
        self._list(exchange, "resources", "resources", self._keep_resources)

    def list_templates(self, exchange: Exchange) -> None:
        self._list(exchange, "resources", "resourceTemplates", self._keep_templates)

    def list_prompts(self, exchange: Exchange) -> None:
        keep = self._keep_prompts
        if offers_steps(exchange.client.profile):
            self._list(exchange, "prompts", "prompts", lambda parts: [*keep(parts), jsonrpc.raw(_STEP_PROMPT)])
        else:
            self._list(exchange, "prompts", "prompts", keep)

    def _list(self, exchange: Exchange, capability: str, key: str, keep: Keep) -> None:
        if jsonrpc.text(exchange.params.get("cursor")) is not None:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{exchange.method}: unknown cursor; the whole list is one page")
        upstreams = self._proxy.with_capability(capability, exchange.client.profile)
        merge = _Merge(exchange, key, keep, {upstream.name: upstream for upstream in upstreams})
        if not upstreams:
            self._finish(merge)
        for upstream in upstreams:
            self._page(merge, upstream, {}, PAGES)
        if merge.waiting:
            asyncio.get_running_loop().call_later(self._proxy.settings.cold_list_s, self._go_without_cold, merge)
            exchange.on_drop = lambda: self._drop(merge)

    def _go_without_cold(self, merge: _Merge) -> None:
        """The list waits for slow answers, but no longer for upstreams that do not come up."""
        if merge.exchange.done:
            return
        for name, upstream in list(merge.waiting.items()):
            if not upstream.is_up:
                del merge.waiting[name]
                self._absent.setdefault(name, set()).add(merge.key)
                self._take_back(merge, upstream)
        if not merge.waiting:
            self._finish(merge)

    def _drop(self, merge: _Merge) -> None:
        for upstream in list(merge.waiting.values()):
            self._take_back(merge, upstream)

    def _take_back(self, merge: _Merge, upstream: Upstream) -> None:
        for asked, request in merge.requests:
            if asked is upstream:
                upstream.cancel(request, "no longer wanted")

    def came(self, upstream: Upstream) -> None:
        """An upstream is up that lists had to go without: they have changed."""
        for key in self._absent.pop(upstream.name, ()):
            for client in list(self._proxy.clients):
                client.notify(*CHANGES[key])

    def _page(self, merge: _Merge, upstream: Upstream, params: dict[str, Raw], left: int) -> None:
        def arrived(exchange: Exchange, reply: Reply) -> None:
            cursor = None
            if not isinstance(reply, Lost) and isinstance(reply.result, Raw):
                try:
                    members = jsonrpc.fields(reply.result)
                    merge.parts.setdefault(upstream.name, []).extend(jsonrpc.items(members.get(merge.key, Raw(b"[]"))))
                    cursor = members.get("nextCursor")
                except ValueError:
                    cursor = None
            if cursor is not None and jsonrpc.text(cursor) and left > 1:
                self._page(merge, upstream, {"cursor": cursor}, left - 1)
                return
            merge.waiting.pop(upstream.name, None)
            if not merge.waiting:
                self._finish(merge)

        self._proxy.ask_for(merge.exchange, upstream, params, arrived)
        if merge.exchange.request is not None:
            merge.requests.append((upstream, merge.exchange.request))

    def _finish(self, merge: _Merge) -> None:
        ordered = {name: merge.parts[name] for name in self._proxy.upstreams if name in merge.parts}
        merge.exchange.own_result({merge.key: merge.keep(ordered)})

    def _keep_resources(self, parts: dict[str, list[Raw]]) -> list[Raw]:
        found: dict[str, Raw] = {}
        for upstream, items in parts.items():
            for item in items:
                uri = _member(item, "uri")
                if uri is not None and uri not in found:
                    found[uri] = item
                    self._resources[uri] = upstream
        return list(found.values())

    def _keep_templates(self, parts: dict[str, list[Raw]]) -> list[Raw]:
        self._templates = []
        for upstream, items in parts.items():
            for item in items:
                if (template := _member(item, "uriTemplate")) is not None:
                    self._templates.append((_pattern(template), template, upstream))
        return [item for items in parts.values() for item in items]

    def _keep_prompts(self, parts: dict[str, list[Raw]]) -> list[Raw]:
        found: dict[str, Raw] = {}
        for upstream, items in parts.items():
            for item in items:
                if (name := _member(item, "name")) is None:
                    continue
                exposed = names.plain_name(self._proxy.prefix(upstream), name)
                if exposed not in found:
                    found[exposed] = jsonrpc.merge(item, {"name": exposed})
                    self._prompts[exposed] = (upstream, name)
        return list(found.values())

    # -- one of them

    def read_resource(self, exchange: Exchange) -> None:
        self._with_uri(exchange, lambda upstream: exchange.client.pass_on(exchange, upstream, exchange.params))

    def _with_uri(self, exchange: Exchange, go: Callable[[Upstream], None]) -> None:
        uri = jsonrpc.text(exchange.params.get("uri"))
        if uri is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{exchange.method}: uri is missing")
        owner = self.owner(uri)
        candidates = self._proxy.with_capability("resources", exchange.client.profile)
        if owner is not None and not self._proxy.exposures.allowed(exchange.client.profile, owner.name):
            self._no_resource(exchange, uri)
        elif owner is not None or len(candidates) == 1:
            go(owner or candidates[0])
        elif not candidates:
            self._no_resource(exchange, uri)
        else:
            self._try_each(exchange, candidates, uri)

    def owner(self, uri: str) -> Upstream | None:
        """The upstream that listed a resource, or a template it fits."""
        name = self._resources.get(uri)
        if name is None:
            name = next((upstream for pattern, _, upstream in self._templates if pattern.fullmatch(uri)), None)
        return self._proxy.upstreams.get(name) if name else None

    def _try_each(self, exchange: Exchange, candidates: list[Upstream], uri: str) -> None:
        """Nobody has listed this URI: ask one after the other until one knows it."""
        upstream, *rest = candidates

        def arrived(at: Exchange, reply: Reply) -> None:
            known = not isinstance(reply, Lost) and reply.error is UNSET
            if known or not rest:
                if known:
                    self._resources.setdefault(uri, upstream.name)
                    while len(self._resources) > MOST_URIS:
                        del self._resources[next(iter(self._resources))]
                at.client.settle(at, upstream, reply)
            else:
                self._try_each(at, rest, uri)

        exchange.client.forward(exchange, upstream, dict(exchange.params), arrived)

    def _no_resource(self, exchange: Exchange, uri: str) -> None:
        code = jsonrpc.INVALID_PARAMS if exchange.era == "modern" else jsonrpc.RESOURCE_NOT_FOUND
        exchange.error(code, f"Resource not found: {uri}", {"uri": uri})

    def get_prompt(self, exchange: Exchange) -> None:
        name = jsonrpc.text(exchange.params.get("name"))
        if name is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, "prompts/get: name is missing")
        if self._is_ours(name, exchange.client.profile):
            # Before the first upstreams have said what they have, nothing would be found.
            self._proxy.when_listed(lambda: exchange.client.attempt(exchange, lambda _, at: self._assemble(at)))
            return
        upstream, own = self._prompt(name, exchange.client.profile)
        exchange.client.pass_on(exchange, upstream, {**exchange.params, "name": jsonrpc.raw(own)})

    def _is_ours(self, name: str | None, profile: Profile) -> bool:
        return name == STEP and name not in self._prompts and offers_steps(profile)

    def _assemble(self, exchange: Exchange) -> None:
        """`assemble_step`: what `step()` of the library gives, as one text."""
        from foretool.server.methods.agent_step import BUDGET, described, query_of

        assert exchange.session is not None
        given = jsonrpc.fields(exchange.params.get("arguments", UNSET))
        task, budget = jsonrpc.text(given.get("task")) or "", jsonrpc.text(given.get("budget")) or str(BUDGET)
        if not task.strip():
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{STEP}: task is missing; say what to do, one need per line")
        if not budget.isdecimal() or not 0 < int(budget) <= 1_000_000:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{STEP}: budget: expected a number of tokens, found {budget!r}")
        steps, session = self._proxy.steps, exchange.session
        self._proxy.catalog.fix_names()

        def planned(plan: Plan) -> None:
            steps.record(session, plan)
            content = {"type": "text", "text": f"{described(plan)}\n\n{task}"}
            about = f"{len(plan.tools)} tools and {len(plan.fragments)} instructions, confidence {plan.level}"
            exchange.own_result({"description": about, "messages": [{"role": "user", "content": content}]})

        def go(plan: Plan) -> None:
            exchange.client.attempt(exchange, lambda *_: planned(plan))

        query = query_of(self._proxy, task, session.conversation().steps)
        steps.plan(query, exchange.client.profile, int(budget), go)

    def _prompt(self, name: str, profile: Profile) -> tuple[Upstream, str]:
        """Whose prompt a name is, and what it is called there."""
        upstreams = {
            each.name: each
            for each in self._proxy.upstreams.values()
            if self._proxy.exposures.allowed(profile, each.name)
        }
        known = self._prompts.get(name)
        if known is not None and known[0] in upstreams:
            return upstreams[known[0]], known[1]
        for upstream in upstreams.values():
            prefix = self._proxy.prefix(upstream.name)
            if prefix and name.startswith(prefix + names.SEPARATOR):
                return upstream, name.removeprefix(prefix + names.SEPARATOR)
        bare = [upstream for upstream in upstreams.values() if not self._proxy.prefix(upstream.name)]
        if len(bare) == 1:
            return bare[0], name
        raise RpcError(jsonrpc.INVALID_PARAMS, f"Unknown prompt: {name}")

    def complete(self, exchange: Exchange) -> None:
        reference = jsonrpc.fields(exchange.params.get("ref", UNSET))
        if jsonrpc.text(reference.get("type")) == "ref/prompt":
            if self._is_ours(jsonrpc.text(reference.get("name")), exchange.client.profile):
                exchange.own_result({"completion": {"values": []}})
                return
            upstream, own = self._prompt(jsonrpc.text(reference.get("name")) or "", exchange.client.profile)
            reference["name"] = jsonrpc.raw(own)
        else:
            uri = jsonrpc.text(reference.get("uri")) or ""
            owner = next((name for _, template, name in self._templates if template == uri), None)
            found = self._proxy.upstreams.get(owner) if owner else self.owner(uri)
            candidates = self._proxy.with_capability("completions", exchange.client.profile)
            if found is not None and not self._proxy.exposures.allowed(exchange.client.profile, found.name):
                found = None
            if found is None and not candidates:
                raise RpcError(jsonrpc.INVALID_PARAMS, f"completion/complete: nothing is known of {uri!r}")
            upstream = found or candidates[0]
        exchange.client.pass_on(exchange, upstream, {**exchange.params, "ref": jsonrpc.raw(reference)})

    # -- subscriptions of the legacy era

    def subscribe(self, exchange: Exchange) -> None:
        self._with_uri(exchange, lambda upstream: self._subscribe(exchange, upstream))

    def _subscribe(self, exchange: Exchange, upstream: Upstream) -> None:
        uri = jsonrpc.text(exchange.params["uri"]) or ""

        def arrived(at: Exchange, reply: Reply) -> None:
            if not isinstance(reply, Lost) and reply.error is UNSET:
                self.subscriptions.setdefault(uri, set()).add(at.client)
                upstream.subscribe("legacy", [uri], asked=True)
            at.client.settle(at, upstream, reply)

        if upstream.is_legacy("legacy"):
            exchange.client.forward(exchange, upstream, exchange.params, arrived)
            return
        self.subscriptions.setdefault(uri, set()).add(exchange.client)
        upstream.subscribe("legacy", [uri])
        exchange.result(jsonrpc.EMPTY)

    def unsubscribe(self, exchange: Exchange) -> None:
        uri = jsonrpc.text(exchange.params.get("uri")) or ""
        self._left(exchange.client, uri)

        def go(upstream: Upstream) -> None:
            if upstream.is_legacy("legacy") and not self._is_wanted(upstream, "legacy", uri):
                upstream.unsubscribe("legacy", [uri], asked=True)
                exchange.client.pass_on(exchange, upstream, exchange.params)
                return
            self.release([uri])
            exchange.result(jsonrpc.EMPTY)

        self._with_uri(exchange, go)

    def _left(self, client: Client, uri: str) -> None:
        clients = self.subscriptions.get(uri, set())
        clients.discard(client)
        if not clients:
            self.subscriptions.pop(uri, None)

    # -- subscriptions of both eras

    def listen(self, client: Client, uris: Sequence[str]) -> None:
        """A modern client wants to hear of these resources: have the upstreams of its profile tell us."""
        wanted: dict[str, list[str]] = {}
        for uri in uris:
            owner = self.owner(uri)
            for one in [owner] if owner else self._proxy.with_capability("resources", client.profile):
                if self._proxy.exposures.allowed(client.profile, one.name):
                    wanted.setdefault(one.name, []).append(uri)
        for name, of_one in wanted.items():
            upstream = self._proxy.upstreams[name]
            upstream.subscribe("modern", of_one)
            upstream.start("modern")  # one that rests tells nobody of anything

    def release(self, uris: Sequence[str]) -> None:
        """Somebody no longer wants to hear of these resources: upstreams that tell nobody of them need not go on."""
        for upstream in self._proxy.upstreams.values():
            told = [uri for uri in uris if upstream.tells_of(uri)]
            for era in ERAS if told else ():
                upstream.unsubscribe(era, [uri for uri in told if not self._is_wanted(upstream, era, uri)])

    def _is_wanted(self, upstream: Upstream, era: Era, uri: str) -> bool:
        """Whether anybody wants to hear of it over the connection that serves clients of `era`."""
        carrier = upstream.era_for(era)
        legacy = upstream.era_for("legacy") == carrier and bool(self.subscriptions.get(uri))
        modern = upstream.era_for("modern") == carrier and any(
            uri in wanted.get("resourceSubscriptions", ())
            for client in self._proxy.clients
            for _, wanted in client.listens.values()
        )
        return legacy or modern

    def updated(self, upstream: Upstream, params: dict[str, Any], era: Era) -> None:
        """An upstream says, on its connection of `era`, that a resource has changed."""
        uri = str(params.get("uri", ""))
        legacy = self.subscriptions.get(uri, set())
        for client in list(self._proxy.clients):
            wants = (client in legacy or client.listens) and self._proxy.exposures.allowed(
                client.profile, upstream.name
            )
            # An upstream of both eras says it on both connections: each client hears it once.
            if wants and upstream.era_for("modern" if client.listens else "legacy") == era:
                client.notify("", "notifications/resources/updated", params, uri=uri)

    def gone(self, client: Client) -> None:
        uris = [uri for uri, clients in self.subscriptions.items() if client in clients]
        for uri in uris:
            self._left(client, uri)
        self.release(uris)


def offers_steps(profile: Profile) -> bool:
    """Whether a profile's clients get our own prompt: `full` is everything as it is, and nothing more."""
    return profile.policy != "full"


def _member(item: Raw, key: str) -> str | None:
    try:
        return jsonrpc.text(jsonrpc.fields(item).get(key))
    except ValueError:
        return None


def _pattern(template: str) -> re.Pattern[str]:
    """What a URI template (RFC 6570) can expand to, loosely: every expression is some text."""
    parts = re.split(r"(\{[^{}]*\})", template)
    return re.compile("".join(".*" if part.startswith("{") else re.escape(part) for part in parts))
