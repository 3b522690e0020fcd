"""Answers the methods that list: tools as the client's own list has them, all else merged from the upstreams."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct, field

from foretool.server.catalog.catalog import Catalog
from foretool.server.clients.exchange import Exchange
from foretool.server.clients.exposure import View, list_result
from foretool.server.clients.registry import ClientRegistry
from foretool.server.clients.session import Session
from foretool.server.clients.tool_list import ToolList
from foretool.server.config.loader import LiveConfig, Profile
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.held_notices import HeldNotices
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw, RpcError
from foretool.server.transports.tasks import Precedence, Tasks, in_slices
from foretool.server.trust.links import clean_member
from foretool.server.trust.text import is_clean, one_line, visible
from foretool.server.upstreams.connection import Lost, Reply, Request
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era
from foretool.storage.steps import Steps

TTL_MS: Final = 3_600_000
"""How long a modern client may cache a list that stays as it is, unless a notification ends that earlier."""
INCOMPLETE_TTL_MS: Final = 2_000
"""How long it may cache a list that lacks the tools of servers which are still starting."""

PAGES: Final = 100
"""An upstream may have at most so many pages of a list."""

CHANGES: Final = {
    "resources": ("resourcesListChanged", "notifications/resources/list_changed"),
    "resourceTemplates": ("resourcesListChanged", "notifications/resources/list_changed"),
    "prompts": ("promptsListChanged", "notifications/prompts/list_changed"),
}
"""By list: its filter in `subscriptions/listen`, and its notification."""

IDENTIFIERS: Final = {"resources": "uri", "resourceTemplates": "uriTemplate", "prompts": "name"}
"""By list: the member by which clients ask for an item."""

METHODS: Final = {
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}
"""By list: how an upstream is asked for it."""

Parts = dict[str, list[Raw]]
"""Members of a list by upstream, in config order."""
Merge = Callable[[Parts], list[Raw]]
"""Takes the members, remembers which upstream each one came from, and returns the merged list."""


log = logging.getLogger("foretool.upstreams")


class _Pending(Struct, eq=False):
    """A list whose parts are still coming in."""

    exchange: Exchange
    key: str
    done: Callable[[Parts], None]
    is_patient: bool
    """Waits for upstreams that are up and slow."""
    waiting: dict[str, Upstream]
    """Upstreams whose parts are still to come."""
    parts: Parts = field(default_factory=dict)
    requests: list[tuple[Upstream, Request]] = field(default_factory=list)


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
        self._upstreams.when_listed(lambda: exchange.attempt(self._prepare, exchange), exchange.client.profile)

    def _prepare(self, exchange: Exchange) -> None:
        """Answer at once where the list is there; otherwise make it in slices first."""
        tools, session = exchange.client.tools, exchange.own_session
        if tools.is_at_hand(session):
            self._answer(exchange)
        else:
            self._tasks.spawn(self._answer_later(exchange, self._make_ready(tools, session)))

    def _make_ready(self, tools: ToolList, session: Session) -> Steps[None]:
        """Do in steps what an answer needs. New names come last, and take as long as thousands of tools have come."""
        yield from tools.prepare(session)
        yield from self._catalog.fix_names_in_steps()
        yield from tools.prepare(session)

    async def _answer_later(self, exchange: Exchange, steps: Steps[None]) -> None:
        try:
            with self._precedence.go_first():
                await in_slices(steps)
        except Exception:  # the boundary of a request: the list is made in one go, and says itself what is wrong
            log.exception("A list could not be prepared")
        exchange.attempt(self._answer, exchange)

    def _answer(self, exchange: Exchange) -> None:
        session, tools = exchange.own_session, exchange.client.tools
        self._catalog.fix_names()
        self._notices.attach(exchange)
        ttl_ms = self._ttl_ms(tools.view(session), exchange.client.profile)
        answer = list_result(tools.array(session), exchange.era, ttl_ms)
        tools.record(session, "list")
        exchange.result(answer)
        tools.mark_listed()

    def _ttl_ms(self, view: View, profile: Profile) -> int:
        """Return how long a modern client may cache a list: not at all where it may grow."""
        if view.policy == "growing":
            return 0
        if self._upstreams.still_coming() or (profile.person and self._upstreams.still_coming(profile)):
            return INCOMPLETE_TTL_MS
        return TTL_MS if view.until is None else max(0, min(TTL_MS, round(1000 * (view.until - self._clock()))))


class MergedLists:
    """Asks every upstream for its part of a list and answers with all parts, in config order."""

    def __init__(
        self, upstreams: UpstreamRegistry, clients: ClientRegistry, forwarder: Forwarder, config: LiveConfig
    ) -> None:
        self._upstreams = upstreams
        self._clients = clients
        self._forwarder = forwarder
        self._config = config
        self._absent: dict[str, set[str]] = {}
        """By upstream: the keys of the lists that were merged without it because it was not up."""

    def answer(self, exchange: Exchange, capability: str, key: str, merge: Merge) -> None:
        """Answer with the list under `key`, merged from the upstreams that declare `capability`."""
        if jsonrpc.text(exchange.params.get("cursor")) is not None:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{exchange.method}: unknown cursor; the whole list is one page")
        upstreams = self._upstreams.with_capability(capability, exchange.client.profile)
        self.gather(exchange, upstreams, key, lambda parts: exchange.own_result({key: merge(parts)}), is_patient=True)

    def gather(
        self,
        exchange: Exchange,
        upstreams: Sequence[Upstream],
        key: str,
        done: Callable[[Parts], None],
        *,
        is_patient: bool = False,
    ) -> None:
        """Ask upstreams for their parts of a list in the course of a request and call `done` with them. Unless
        `is_patient`, nobody waits for an upstream that is up and slow, either."""
        pending = _Pending(exchange, key, done, is_patient, {upstream.name: upstream for upstream in upstreams})
        if not upstreams:
            self._finish(pending)
        for upstream in upstreams:
            self._ask(pending, upstream, {}, PAGES)
        if pending.waiting:
            asyncio.get_running_loop().call_later(self._config.settings.cold_list_s, self._stop_waiting, pending)
            exchange.on_drop = lambda: _cancel(pending, *pending.waiting.values())

    def upstream_came(self, upstream: Upstream) -> None:
        """Tell clients that the lists which were merged without this upstream have changed."""
        for key in self._absent.pop(upstream.name, ()):
            for client in self._clients:
                client.notify(*CHANGES[key])

    def _ask(self, pending: _Pending, upstream: Upstream, params: dict[str, Raw], pages: int) -> None:
        """Ask an upstream for a page, then for the following ones, `pages` at most."""

        def on_reply(_: Exchange, reply: Reply) -> None:
            cursor = _take_page(pending, upstream.name, reply)
            if cursor is not None and jsonrpc.text(cursor) and pages > 1:
                self._ask(pending, upstream, {"cursor": cursor}, pages - 1)
                return
            pending.waiting.pop(upstream.name, None)
            if not pending.waiting:
                self._finish(pending)

        self._forwarder.forward(pending.exchange, upstream, params, on_reply, method=METHODS[pending.key])
        if pending.exchange.request is not None:
            pending.requests.append((upstream, pending.exchange.request))

    def _stop_waiting(self, pending: _Pending) -> None:
        """Go on without the upstreams that have not come up; keep waiting for those that are up and slow, where the
        list is what the client asked for."""
        if pending.exchange.done or not pending.waiting:
            return
        for name, upstream in list(pending.waiting.items()):
            if not (pending.is_patient and upstream.is_up):
                del pending.waiting[name]
                if pending.is_patient:
                    self._absent.setdefault(name, set()).add(pending.key)
                _cancel(pending, upstream)
        if not pending.waiting:
            self._finish(pending)

    def _finish(self, pending: _Pending) -> None:
        ordered = {each.name: pending.parts[each.name] for each in self._upstreams if each.name in pending.parts}
        pending.exchange.on_drop = None
        pending.exchange.attempt(pending.done, ordered)


def _take_page(pending: _Pending, upstream: str, reply: Reply) -> Raw | None:
    """Add a page to the upstream's part of the list; return the cursor of the next page."""
    if isinstance(reply, Lost) or not isinstance(reply.result, Raw):
        return None
    try:
        members = jsonrpc.fields(reply.result)
        part = pending.parts.setdefault(upstream, [])
        for position, item in enumerate(jsonrpc.items(members.get(pending.key, Raw(b"[]"))), 1):
            try:
                part.append(_clean_item(item, IDENTIFIERS[pending.key]))
            except ValueError as error:
                log.warning("upstream %r: %s %d was dropped: %s", upstream, pending.key, position, error)
        return members.get("nextCursor")
    except ValueError:
        return None


def _clean_item(item: Raw, identifier: str) -> Raw:
    """Return a listed item without invisible characters. Raises ValueError where they stand in a key or in what it is
    asked for by."""
    cleaned = clean_member(bytes(item))
    name = jsonrpc.member(item, identifier)
    if name is not None and not is_clean(name):
        raise ValueError(f"its {identifier} {one_line(visible(name))!r} has invisible characters")
    return Raw(cleaned)


def _cancel(pending: _Pending, *upstreams: Upstream) -> None:
    for upstream, request in pending.requests:
        if upstream in upstreams:
            upstream.cancel(request, "no longer wanted")
