"""Acts on what upstreams report: their lists, their state, and messages that belong to no request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.definitions import read_members
from foretool.server.clients.registry import Announcements, ClientRegistry
from foretool.server.config.loader import LiveConfig
from foretool.server.methods.merged_lists import MergedLists
from foretool.server.methods.server_requests import ServerRequests
from foretool.server.methods.subscriptions import Subscriptions
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, Message, Raw
from foretool.server.protocol.lists import MERGED, TOOLS, ListKind, features
from foretool.server.protocol.translate import ANY_CLIENT, unite
from foretool.server.protocol.versions import META_SUBSCRIPTION
from foretool.server.transports.tasks import Precedence, Tasks, in_slices
from foretool.server.trust.gatekeeper import Gatekeeper, Listing
from foretool.server.trust.members import lacking
from foretool.server.trust.questions import prepare_log
from foretool.server.trust.text import clean_params
from foretool.server.upstreams.connection import Request
from foretool.server.upstreams.memory import UpstreamMemory
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import State, Upstream
from foretool.storage.records import Era, Tool
from foretool.storage.steps import Steps, finish

TakeIn = Callable[[Upstream, Mapping[str, Raw]], Steps[None]]
"""Takes in what is served of a list, by what its members are asked for by."""

log = logging.getLogger("foretool.upstreams")


class UpstreamMessages:
    """Takes the messages of upstreams that belong to no request of a client."""

    def __init__(self, clients: ClientRegistry, server_requests: ServerRequests, subscriptions: Subscriptions) -> None:
        self._clients = clients
        self._server_requests = server_requests
        self._subscriptions = subscriptions

    def on_notification(self, upstream: Upstream, message: Message, era: Era) -> None:
        """Handle a notification that belongs to no request. `era`: the era of the connection that it came on."""
        method = str(message.method)
        try:
            message.params = clean_params(message.params)
            params = jsonrpc.decode_value(message.params) if message.params is not UNSET else {}
        except ValueError:
            return
        if not isinstance(params, dict):
            return
        if method == "notifications/resources/updated":
            _drop_subscription(params)
            self._subscriptions.resource_updated(upstream, str(params.get("uri", "")), params, era)
        elif method == "notifications/cancelled":
            self._server_requests.withdraw(upstream, params.get("requestId"), str(params.get("reason") or ""))
        elif method == "notifications/elicitation/complete":
            self._server_requests.at_addresses.complete(upstream.key, message, str(params.get("elicitationId")))
        elif kind := next((kind for kind in MERGED if kind.change == method), None):
            for client in self._clients.admitted(upstream.name):  # none of them has listed since we started
                client.notify(kind.listens, method)
        elif method == "notifications/message":
            params = jsonrpc.decode_value(prepare_log(upstream.name, jsonrpc.raw(params)))
            for client in self._clients.log_readers(upstream, str(params.get("level", ""))):
                client.notify("", method, params)

    def on_request(
        self, upstream: Upstream, message: Message, request: Request | None, answer: Callable[[Message], None]
    ) -> None:
        self._server_requests.on_request(upstream, message, request, answer)


class UpstreamEvents:
    """Implements `upstreams.upstream.Host`: passes each report on to the parts that it concerns."""

    def __init__(
        self, upstreams: UpstreamRegistry, catalog: Catalog, lists: MergedLists, announcements: Announcements,
        memory: UpstreamMemory, messages: UpstreamMessages, gatekeeper: Gatekeeper, precedence: Precedence,
        config: LiveConfig, takers: Mapping[ListKind, TakeIn],
    ) -> None:  # fmt: skip
        """`precedence`: lists of clients, which go before lists of servers. `takers`: who needs to know what a server
        lists besides tools, in steps."""
        self._upstreams = upstreams
        self._catalog = catalog
        self._lists = lists
        self._announcements = announcements
        self._memory = memory
        self._gatekeeper = gatekeeper
        self._precedence = precedence
        self._config = config
        self._takers = takers
        self._tasks = Tasks("decisions")
        self.on_notification = messages.on_notification
        self.on_request = messages.on_request
        self._waiting: dict[tuple[Upstream, ListKind], Sequence[Raw]] = {}
        """The latest list of each server and kind whose turn has not come."""
        self._turn = asyncio.Lock()
        self._trouble: dict[str, str] = {}
        """By upstream: its last problem, so that the same problem is logged once."""

    async def on_listed(self, upstream: Upstream, kind: ListKind, members: Sequence[Raw]) -> None:
        """Record a list, in slices. Servers wait for each other, so that hundreds of lists that come at once leave the
        loop as much time as one does; a list that waits is given up for a newer one of its server."""
        is_waiting = (upstream, kind) in self._waiting
        self._waiting[upstream, kind] = members
        if is_waiting:
            return
        try:
            await self._turn.acquire()
        finally:
            newest = self._waiting.pop((upstream, kind))
        try:
            if self._upstreams.get(upstream.name) is upstream:  # no reload has replaced it
                following = self._follow(upstream, newest) if kind is TOOLS else self._take(upstream, kind, newest)
                await in_slices(following, self._precedence)
        finally:
            self._turn.release()

    def on_unlisted(self, upstream: Upstream, kind: ListKind, reason: str) -> None:
        self._lists.failed(upstream, kind, reason)
        self._want_unseen(upstream)

    def _want_unseen(self, upstream: Upstream) -> None:
        """Ask a new server for a list that nobody has asked it for. They come one by one: a server that ends where it
        is asked for one still gives the others."""
        capabilities = features(upstream.server_info.capabilities)
        unseen = [kind for kind in self._gatekeeper.unseen(upstream.name) if kind.capability in capabilities]
        if unseen and upstream.is_up:
            upstream.want_list(unseen[0], upstream.lines.spoken_era() or "legacy")

    def judge_again(self, upstream: Upstream) -> None:
        """Serve what was approved of a server's lists, and no longer what was blocked. Clients are told."""
        for kind, wanted in upstream.lists.items():
            if wanted.served is not None:
                wanted.is_announced = True
                self._tasks.spawn(self.on_listed(upstream, kind, wanted.listed))

    def judge_all(self) -> None:
        """Compare what is served with the approvals of a store that can be used again, and ask for all lists."""
        for upstream in self._upstreams:
            tools, text = self._catalog.listed(upstream.name), self._catalog.texts.instructions(upstream.name)
            if tools or text:
                admitted = finish(self._gatekeeper.admit(upstream.name, Listing(tools, text), Listing(())))
                self._catalog.load(upstream.name, admitted.tools, admitted.text)
            upstream.relist_all()
        self._catalog.settle()

    async def stop(self) -> None:
        """Judge no list any more."""
        await self._tasks.close()

    def _take(self, upstream: Upstream, kind: ListKind, members: Sequence[Raw]) -> Steps[None]:
        """Record a list that holds no tools, as far as it may be served."""
        hide = self._config.now.secrets.hide_credentials
        read, problems = yield from read_members(kind, members, hide)
        wanted = upstream.lists[kind]
        before = wanted.served
        admitted = yield from self._gatekeeper.admit_members(upstream.name, kind, read, before or {})
        yield from self._takers[kind](upstream, admitted)
        wanted.listed, wanted.served = members, admitted
        self._lists.listed(upstream, kind, problems, has_changed=admitted != (before or {}))
        self._memory.save_state(upstream)
        self._want_unseen(upstream)

    def _follow(self, upstream: Upstream, tools: Sequence[Raw]) -> Steps[None]:
        decisions = self._gatekeeper.decisions()
        before = [tool.id for tool in self._catalog.listed(upstream.name)]
        changes = yield from self._serve(upstream, tools)
        served_at = time.time()
        upstream.note_tools(before, [tool.id for tool in self._catalog.listed(upstream.name)])
        self._memory.save_state(upstream)
        self._upstreams.mark_listed(upstream, len(tools))
        self._upstreams.wake(upstream)
        if upstream.lists[TOOLS].is_announced:
            upstream.lists[TOOLS].is_announced = False
            self._announcements.relay(upstream.name)
        if changes:
            self._announcements.soon()
        self._want_unseen(upstream)
        yield
        yield from self._memory.save_tools(upstream, served_at)
        if self._gatekeeper.decisions() != decisions:
            upstream.relist_all()  # what was saved may be older than a decision

    def take_in(self, upstream: Upstream, tools: Sequence[Raw]) -> None:
        """Take a server's list into the catalog and the store at once, as far as it is approved."""
        finish(self._serve(upstream, tools))
        finish(self._memory.save_tools(upstream, time.time()))

    def _serve(self, upstream: Upstream, tools: Sequence[Raw]) -> Steps[bool]:
        """Take a server's list into the catalog. Returns whether a tool came, went or changed."""
        return self._catalog.replace_in_steps(
            upstream.name, tools, upstream.server_info.instructions, partial(self._admit, upstream),
            upstream.list_problem,
        )  # fmt: skip

    def _admit(self, upstream: Upstream, tools: Sequence[Tool], text: str) -> Steps[tuple[Sequence[Tool], str]]:
        """Return what may be served of the tools and the instructions of an upstream."""
        info, name = upstream.server_info, upstream.name
        version = str(info.implementation.get("version") or "")
        is_whole = all(unite(each.declared, ANY_CLIENT) == each.declared for each in upstream.lines.ready())
        listing = Listing(tools, text, version, lacking(features(info.capabilities)), is_whole)
        before = Listing(self._catalog.listed(name), self._catalog.texts.instructions(name))
        admitted = yield from self._gatekeeper.admit(name, listing, before)
        return admitted.tools, admitted.text

    def on_state(self, upstream: Upstream) -> None:
        trouble = upstream.error if upstream.is_up or upstream.state is State.RETRYING else ""
        cause = self._memory.note_failure(upstream) if trouble else None
        if trouble and trouble != self._trouble.get(upstream.name):
            log.warning("upstream %r: %s", upstream.name, cause.line if cause else trouble)
        if trouble or upstream.state is State.READY:  # an attempt that has only begun takes nothing back
            self._trouble[upstream.name] = trouble
        self._memory.save_state(upstream)
        if upstream.state in (State.RETRYING, State.STOPPED):
            self._lists.lost(upstream)
        if upstream.state in (State.RETRYING, State.STOPPED) or upstream.error:
            self._upstreams.wake(upstream)


def _drop_subscription(params: dict[str, Any]) -> None:
    """Remove which of our subscriptions a notification answers: clients have ids of their own, or none."""
    if isinstance(meta := params.get("_meta"), dict) and META_SUBSCRIPTION in meta:
        kept = {key: value for key, value in meta.items() if key != META_SUBSCRIPTION}
        del params["_meta"]
        if kept:
            params["_meta"] = kept
