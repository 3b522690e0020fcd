"""Answers the methods that list prompts, resources, templates and skills, merged from the upstreams; `list_tools` has
tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from foretool.server.clients.exchange import Exchange
from foretool.server.clients.registry import ClientRegistry
from foretool.server.config.loader import LiveConfig
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw, RpcError
from foretool.server.protocol.lists import MERGED, ListKind
from foretool.server.transports.tasks import Precedence, Tasks, in_slices
from foretool.server.trust.gatekeeper import Gatekeeper
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.server_list import DEBOUNCE_S, SOON_S
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.steps import Steps

_ALONE_S: Final = 5.0
"""How long a list waits for servers that are up while none of them has answered: on a busy machine all are slow."""

Merge = Callable[[Exchange, Sequence[Upstream]], Steps[list[Raw]]]
"""Makes in steps what a client is answered from the lists of upstreams, which come in config order."""

log = logging.getLogger("foretool.upstreams")


class _Waiting(Struct, eq=False):
    """A request that waits for lists."""

    exchange: Exchange
    go: Callable[[], None]
    coming: dict[tuple[str, ListKind], Upstream]
    """The lists that have yet to come, by upstream and kind."""
    began: float
    cold: frozenset[str]
    """The upstreams that were not up when it began."""
    last: float | None = None
    """When a list came last."""
    timer: asyncio.TimerHandle | None = None


class MergedLists:
    """Answers with what all upstreams list, in config order, and waits for no upstream that keeps its list back.

    Each upstream is asked once for all clients (`upstreams.server_list`), and what it listed is remembered. An answer
    waits for the upstreams that are up until `SOON_S` after the last one that has listed, and for those that start as
    the first list of tools does. The next one does not wait again for an upstream that was too late.
    """

    def __init__(
        self, upstreams: UpstreamRegistry, clients: ClientRegistry, config: LiveConfig, gatekeeper: Gatekeeper,
        precedence: Precedence, note_problems: Callable[[Upstream, ListKind, Sequence[str]], None],
    ) -> None:  # fmt: skip
        """`precedence`: a list goes before what servers list. `note_problems` says what is wrong with a list."""
        self._upstreams = upstreams
        self._clients = clients
        self._config = config
        self._gatekeeper = gatekeeper
        self._precedence = precedence
        self._note_problems = note_problems
        self._tasks = Tasks("lists")
        self._waiting: list[_Waiting] = []
        self._absent: set[tuple[str, ListKind]] = set()
        """The lists that clients were answered without, or with what was remembered of them."""
        self._telling: set[tuple[str, str]] = set()
        """The upstreams and notifications that clients are about to get."""
        self.version = 0
        """Goes up with every change of a list."""

    # -- what clients ask

    def answer(self, exchange: Exchange, kind: ListKind, merge: Merge) -> None:
        """Answer with a list, merged from the upstreams of the profile."""
        if jsonrpc.text(exchange.params.get("cursor")) is not None:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{exchange.method}: unknown cursor; the whole list is one page")
        upstreams = self._upstreams.with_capability(kind.capability, exchange.client.profile)

        def go() -> None:
            self._tasks.spawn(self._merge(exchange, kind, merge))

        self._gather(exchange, upstreams, (kind,), go)

    def when_known(
        self, exchange: Exchange, upstreams: Sequence[Upstream], kinds: Sequence[ListKind], go: Callable[[], None]
    ) -> None:
        """Call `go` once these lists of upstreams are known, as far as they come soon."""
        self._gather(exchange, upstreams, kinds, go, only_unknown=True)

    async def _merge(self, exchange: Exchange, kind: ListKind, merge: Merge) -> None:
        upstreams = self._upstreams.with_capability(kind.capability, exchange.client.profile)
        try:
            with self._precedence.go_first():
                merged = await in_slices(merge(exchange, upstreams))
        except Exception:  # the boundary of a request
            log.exception("A list could not be merged")
            exchange.attempt(exchange.fail)
        else:
            exchange.attempt(exchange.own_result, {kind.key: merged})

    def _gather(
        self, exchange: Exchange, upstreams: Sequence[Upstream], kinds: Sequence[ListKind], go: Callable[[], None],
        *, only_unknown: bool = False,
    ) -> None:  # fmt: skip
        """Ask upstreams for lists in the course of a request; call `go` once they are there, or came too late."""
        coming: dict[tuple[str, ListKind], Upstream] = {}
        for upstream in upstreams:
            for kind in kinds:
                wanted = upstream.lists[kind]
                if only_unknown and wanted.served is not None:
                    continue
                is_coming = upstream.want_list(kind, exchange.era)
                if is_coming and not wanted.is_late and self._upstreams.failure(upstream.name) is None:
                    coming[upstream.name, kind] = upstream
                elif is_coming or wanted.served is None:
                    self._absent.add((upstream.name, kind))
        now = asyncio.get_running_loop().time()
        cold = frozenset(name for (name, _), upstream in coming.items() if not upstream.is_up)
        waiting = _Waiting(exchange, go, coming, now, cold)
        exchange.on_drop = lambda: self._end(waiting)
        self._waiting.append(waiting)
        self._look(waiting)

    def _look(self, waiting: _Waiting) -> None:
        """Go on with a request for which everything has come or is overdue; look again later otherwise."""
        now = asyncio.get_running_loop().time()
        ends = {key: self._end_of_wait(waiting, upstream) for key, upstream in waiting.coming.items()}
        for key in [key for key, end in ends.items() if end <= now]:
            self._give_up(*key, waiting.coming.pop(key), now - waiting.began)
            del ends[key]
        if waiting.timer is not None:
            waiting.timer.cancel()
        if ends:
            waiting.timer = asyncio.get_running_loop().call_at(min(ends.values()), self._look, waiting)
            return
        self._end(waiting)
        waiting.exchange.on_drop = None
        waiting.exchange.attempt(waiting.go)

    def _end_of_wait(self, waiting: _Waiting, upstream: Upstream) -> float:
        """Return until when a request waits for an upstream, by the clock of the loop."""
        started = waiting.began + self._config.settings.cold_list_s
        if not upstream.is_up:
            return started
        soon = waiting.began + _ALONE_S if waiting.last is None else waiting.last + SOON_S
        return max(soon, started) if upstream.name in waiting.cold else soon

    def _give_up(self, name: str, kind: ListKind, upstream: Upstream, waited_s: float) -> None:
        """Wait no more for a list, now and the next time. It is said once."""
        wanted = upstream.lists[kind]
        self._absent.add((name, kind))
        if wanted.is_late:
            return
        wanted.is_late = True
        if upstream.is_up:
            instead = "are left out" if wanted.served is None else "that it listed last are shown"
            problem = (
                f"it did not answer {kind.method} within {waited_s:.0f} s; its {kind.noun} {instead} until it does"
            )
            self._note_problems(upstream, kind, [problem])

    def _end(self, waiting: _Waiting) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        if waiting in self._waiting:
            self._waiting.remove(waiting)

    # -- what upstreams report

    def listed(self, upstream: Upstream, kind: ListKind, problems: Sequence[str], *, has_changed: bool) -> None:
        """Note that the list of an upstream is known as it is now. Clients are told if it has announced a change, or
        if they were answered without what has changed."""
        wanted, key = upstream.lists[kind], (upstream.name, kind)
        self.version += has_changed
        self._note_problems(upstream, kind, [*([wanted.cut] if wanted.cut else []), *problems])
        self._settle(upstream, kind, has_come=True)
        if wanted.is_announced or (has_changed and key in self._absent):
            wanted.is_announced = False
            self.tell_soon(upstream.name, kind)
        self._absent.discard(key)

    def tell_soon(self, upstream: str, kind: ListKind) -> None:
        """Tell the clients of an upstream that a list has changed. Resources and templates have one notification, so
        that what comes of both within a moment is told once."""
        if kind.change and (upstream, kind.change) not in self._telling:
            self._telling.add((upstream, kind.change))
            asyncio.get_running_loop().call_later(DEBOUNCE_S, self._tell, upstream, kind)

    def _tell(self, upstream: str, kind: ListKind) -> None:
        self._telling.discard((upstream, kind.change))
        for client in self._clients.admitted(upstream):
            client.notify(kind.listens, kind.change)

    def failed(self, upstream: Upstream, kind: ListKind, reason: str) -> None:
        """Note that an upstream could not list. It is asked again by itself."""
        self._gatekeeper.note_asked(upstream.name, kind)
        self._note_problems(upstream, kind, [reason])
        self._absent.add((upstream.name, kind))
        self._settle(upstream, kind, has_come=False)

    def lost(self, upstream: Upstream) -> None:
        """Note that an upstream is down: nobody waits for its lists."""
        for kind in MERGED:
            if any((upstream.name, kind) in each.coming for each in self._waiting):
                self._absent.add((upstream.name, kind))
                self._settle(upstream, kind, has_come=False)

    def _settle(self, upstream: Upstream, kind: ListKind, *, has_come: bool) -> None:
        now = asyncio.get_running_loop().time()
        for waiting in [each for each in self._waiting if (upstream.name, kind) in each.coming]:
            del waiting.coming[upstream.name, kind]
            if has_come:
                waiting.last = now
            self._look(waiting)
