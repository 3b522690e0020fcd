"""Builds the proxy and runs it.

Parts are made in the order of the layers: what is known (`knowledge`), the servers and the clients (`parties`), what
answers (`answering`). What runs in the course of time is here.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from foretool.server import housekeeping, packs
from foretool.server.answering import Answering
from foretool.server.clients.exchange import Exchange, Outbox
from foretool.server.config.loader import Config, LiveConfig
from foretool.server.config.servers import Server
from foretool.server.knowledge import Knowledge
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.people import People, Surroundings
from foretool.server.methods.server_requests import ServerRequests
from foretool.server.methods.upstream_events import UpstreamEvents, UpstreamMessages
from foretool.server.parties import Parties
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.protocol.lists import LISTS
from foretool.server.recording.notes import JobsWatch
from foretool.server.recording.recorder import Recorder
from foretool.server.recording.store_watch import StoreWatch
from foretool.server.reload import Reloader
from foretool.server.transports.guard import Guard, Job
from foretool.server.transports.pipes import Turn
from foretool.server.transports.tasks import TICK_S, in_slices
from foretool.server.transports.upstream.base import Authorizer
from foretool.server.transports.upstream.stdio import ChildWatcher
from foretool.server.trust.policy import TrustPolicy
from foretool.server.upstreams.connection import Connection
from foretool.server.upstreams.launcher import Launcher, link_opener, list_limit, make_bearer, message_limit
from foretool.server.upstreams.lines import Connect, OpenLink
from foretool.server.upstreams.refresh import Refresher
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.engine import StorageError
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.server.transports.client.access import Issuer


class Parts(NamedTuple):
    """The constructors of the parts that telemetry may watch. `fleet/telemetry/` replaces some of them; without it
    these are used, so that an unwatched proxy spends nothing on it."""

    recorder: Callable[[Store, LiveConfig, Callable[[], float]], Recorder] = Recorder
    forwarder: Callable[[Outbox, ServerRequests, LiveConfig], Forwarder] = Forwarder
    exchange: Callable[..., Exchange] = Exchange
    connection: Connect = Connection


UNWATCHED: Final = Parts()


class App:
    """One proxy over one store: the parts, and what runs them."""

    def __init__(
        self, config: Config, store: Store, clock: Callable[[], float] = time.time, parts: Parts = UNWATCHED
    ) -> None:
        """`clock` says what time it is, in seconds since 1970; a replay gives the time of what it replays."""
        self.live = live = LiveConfig(config)
        self.store = store
        store.hide(lambda: live.now.secrets)
        self.policy = TrustPolicy(
            live,
            lambda person, tool: self.people.sees(person, tool),
            lambda: self.catalog.now.page_servers,
            lambda name: self.catalog.given_to(name),
        )
        self.turn = Turn()
        self.guard = Guard(self._is_storage_said)
        self._connect = parts.connection
        self._people: People | None = None
        self.children = ChildWatcher()

        self.recorder = parts.recorder(store, live, clock)
        self.known = known = Knowledge(
            live, store, clock, self.recorder, lambda: self.parties.begin_epoch(),
            lambda: self.answering.find_instructions(),
        )  # fmt: skip
        self.catalog, self.search = known.catalog, known.search
        outbox = Outbox(partial(self.guard.insist, "records", self.recorder.commit), self.turn.at_end)
        self.parties = parties = Parties(live, store, self.policy, known, outbox, parts.exchange)
        self.upstreams, self.memory, self.lists = parties.upstreams, parties.memory, parties.lists
        self.clients, self.announcements = parties.clients, parties.announcements
        self.answering = answering = Answering(
            live, store, clock, self.policy, known, parties, parts.forwarder, self.turn.at_end,
            lambda exchange, raw: self.people.connect(exchange, raw),
        )  # fmt: skip
        self.router = answering.router

        # What takes the reports of upstreams, and what follows the config
        offered = answering.offering
        messages = UpstreamMessages(self.clients, answering.server_requests, offered.subscriptions)
        self._events = UpstreamEvents(
            self.upstreams, self.catalog, offered.merged, self.announcements, self.memory, messages, known.gatekeeper,
            parties.precedence, live,
            answering.list_takers(),
        )  # fmt: skip
        self._launcher = Launcher(self.upstreams, self.memory, self._make_upstream)
        known.gatekeeper.look()  # a decision from here on is taken up
        self._launcher.load(list(config.servers.values()))
        self.store_watch = StoreWatch(
            store, self.recorder, self.clients.warn, self._follow_store, self.memory.started_at
        )
        self._jobs_watch = JobsWatch(self.guard, store.path, self.memory.started_at, live.redact)
        self.refresher = Refresher(self.upstreams, self.memory, live, store, self.announcements.soon)
        self.reloader = Reloader(
            live, self._launcher, self.catalog, self.clients, self.announcements,
            (
                self.clients.follow_config, self.lists.forget,
                lambda: self.search.configure(live.settings), lambda: known.embedding.configure(live.settings),
            ),
            offered.subscriptions.restore,
        )  # fmt: skip

    @property
    def config(self) -> Config:
        """The config in force."""
        return self.live.now

    @property
    def people(self) -> People:
        """Serves people who come with tokens of their own; made where a config has such people or servers."""
        if self._people is None:
            options = {
                "capabilities": self.clients.capabilities, "list_limit": lambda: list_limit(self.config),
                "connect": self._connect,
            }  # fmt: skip
            self._people = packs.require(packs.PEOPLE, "access, per_user")(
                Surroundings(
                    self.live, lambda: self.store, self.catalog, self.upstreams, self._events, self._link_opener,
                    options, self.parties.relist,
                )
            )  # fmt: skip
        return self._people

    def issuer(self, config: Config) -> Issuer | None:
        return self.people.issuer(config) if self._people is not None or config.settings.access is not None else None

    async def come_back(self, query: str) -> tuple[int, bytes] | None:
        return await self._people.come_back(query) if self._people is not None else None

    # -- upstreams

    def _make_upstream(self, server: Server) -> Upstream:
        if server.per_user is not None:
            return self.people.make_upstream(server)
        bearer = make_bearer(server, self.config.path)
        opener = self._link_opener(server, bearer)
        return Upstream(
            server.name, self._events, opener, server.entry.timeout_s, server.secrets.redact,
            capabilities=self.clients.capabilities, list_limit=lambda: list_limit(self.config), kinds=LISTS,
            bearer=bearer, connect=self._connect,
        )  # fmt: skip

    def _link_opener(self, server: Server, authorizer: Authorizer | None) -> OpenLink:
        return link_opener(server, message_limit(self.config), self.children, self.turn, authorizer)

    def keep_listed(self, upstream: Upstream, tools: Sequence[Raw]) -> None:
        """Keep what a server has listed to a command instead of to this proxy. Needs a running loop."""
        self._events.take_in(upstream, tools)

    def yield_to(self, has_unread_output: Callable[[], bool]) -> None:
        """Start no upstream while this client has not read all of our output."""
        self.children.has_unread_output = has_unread_output

    # -- for HTTP

    def is_ready(self) -> bool:
        """Return whether clients should come here. What stands behind us does not count: it concerns each replica
        alike. Neither does a database that is away while there is room for records: it is away for all replicas."""
        return not self.store.trouble or (self.store.replicas is not None and self.recorder.backlog.has_room)

    # -- running

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run upstreams and housekeeping until the block ends, then end everything in order."""
        self.memory.open()
        self.guard.attempt("storage", self.store_watch.tick)
        async with asyncio.TaskGroup() as tasks:
            self._launcher.run(tasks)
            keeper = tasks.create_task(self._keep_house())
            reader = tasks.create_task(self.guard.keep("prompts", self.answering.prompts.watch))
            try:
                yield
            finally:
                keeper.cancel()
                reader.cancel()
                await self._stop()

    async def _stop(self) -> None:
        insist = self.guard.insist
        insist("answers' tokens", self.answering.answer_tokens.count)
        await self.known.stop()
        answering = self.answering
        for part in (
            self.store_watch, answering.links, answering.skill_search, answering.judge, self._events
        ):  # fmt: skip
            await part.stop()
        if self._people is not None:
            await self._people.stop()
        await self.known.recalibrator.finish()
        self.refresher.stop()
        insist("failures", self.memory.failures.write)
        await self._launcher.stop()
        self.parties.outbox.flush()
        for name, step in (
            ("storage", self.store_watch.write_last), ("names", self.known.names.save),
            ("states", self.memory.close),
            ("storage", self.store_watch.close), ("failing jobs", self._jobs_watch.close),
            ("records", self.recorder.close),
        ):  # fmt: skip
            insist(name, step)

    async def _keep_house(self) -> None:
        await asyncio.sleep(TICK_S)  # a whole one: the first lists come first
        self.memory.forget_dead()
        await housekeeping.keep_houses(
            self.guard,
            (Job("requests", self.tick),),
            (Job("tokens", self._count_tokens),),
            (Job("checkpoint", lambda: housekeeping.run_checkpoint(self.store)),),
            self._list_jobs(),
            (Job("failing jobs", self._jobs_watch.tick),),
        )

    def _list_jobs(self) -> tuple[Job, ...]:
        memory = housekeeping.MemoryReturn()
        models = self.known.models
        return (
            Job("storage", self.store_watch.tick, self.store_watch),
            *self.parties.jobs(),
            Job("decisions", self.follow_decisions),
            Job("held changes", self.answering.offering.notices.tick),
            *self.known.jobs(),
            Job("models", lambda: models.tick(has_listed=bool(self.lists.views())), models),
            Job("config", self.reloader.look),
            Job("refresh", lambda: self.refresher.tick(next((each.era for each in self.clients), None))),
            Job("sizes", lambda: in_slices(self.memory.note_size())),
            Job("sign-ins", lambda: housekeeping.follow_sign_ins(self.upstreams, self.clients)),
            Job("memory", memory.tick),
            Job("answers' tokens", self.answering.answer_tokens.count),
            Job("earlier prompts", self.answering.prompt_answers.tick),
            Job("people", self._tick_people),
        )

    def _tick_people(self) -> None:
        if self._people is not None:
            self._people.tick()

    def _is_storage_said(self) -> bool:
        """Return whether users hear of trouble with the storage from its watch."""
        return bool(self.store.trouble or self.recorder.backlog.refusal)

    def tick(self) -> None:
        """Do what is due each second: time-outs, parked requests, refused records, epochs."""
        attempt = self.guard.attempt
        # While pipes are not being read, the answer to a late request may already be in one.
        # Without a window we declare to servers what any client may do: nobody who can do that has come.
        has_client = any(not each.is_shell for each in self.clients)
        attempt("servers", lambda: self.upstreams.tick(expire=not self.turn.is_held, tell_again=has_client))
        attempt("clients", self.clients.expire)
        attempt("questions", self.answering.server_requests.expire)
        attempt("long calls", self.answering.calls.long_calls.tick)
        attempt("records", self.recorder.retry)
        attempt("forgotten sessions", self.recorder.name_forgotten)
        attempt("lists", self.parties.advance_epoch)

    def follow_decisions(self) -> None:
        """Serve what was approved since the last look, and no longer what was blocked."""
        for name in self.known.gatekeeper.due():
            if (upstream := self.upstreams.get(name)) is not None:
                upstream.relist_all()
        decided = self.known.gatekeeper.look()
        if not decided:
            return
        with contextlib.suppress(StorageError):  # the next list of the server brings it
            self.memory.take_up(decided)
        for upstream in (self.upstreams.get(name) for name in decided):
            if upstream is not None:
                self._events.judge_again(upstream)
        self.announcements.soon()

    def follow_others(self, table: str) -> None:
        """Take up at once what another replica, or a command, has written into a table; "" stands for any, once
        we have reached the database again."""
        if not table:
            self.store_watch.hurry()
        if table in ("", "approvals"):
            self.follow_decisions()
        if table in ("", "artifacts"):
            self.known.models.tick(has_listed=bool(self.lists.views()))
        if table in ("", "working_sets") and self.lists.follow_others():
            self.announcements.soon()

    async def _count_tokens(self) -> None:
        await self.known.tokens.count()

    def _follow_store(self) -> None:
        """Bring a store that can be used again up to date; where it says something else than we do, it is right. May
        raise `StorageError`; then it is done again."""
        self.catalog.follow_names(self.known.names.load(), self.config.prefixes)
        self.known.names.save()
        self._events.judge_all()
        self.memory.save_all()
        for session in (session for client in self.clients for session in client.sessions()):
            self.recorder.begin_session(session.record)  # it may be another file
        self.recorder.retry()
        self.known.embedding.retry()
        self.announcements.soon()
        self.guard.hurry()
