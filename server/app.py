"""Builds the proxy: makes every part once, gives each the few others that it uses, and runs them.

The only file that knows all parts. Parts are made in the order of the layers, from the catalog to the router.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from foretool.server import housekeeping, packs
from foretool.server.calls.admission import Admission
from foretool.server.calls.confirmation import Confirmation
from foretool.server.calls.lookup import ToolLookup
from foretool.server.calls.runner import ToolRunner
from foretool.server.calls.tool_calls import ToolCalls
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.embedding import Embedder
from foretool.server.catalog.imported import ImportedPriors
from foretool.server.catalog.kept_words import KeptWords
from foretool.server.catalog.models import LearnedLists, ModelLoader
from foretool.server.catalog.names import NameKeeper
from foretool.server.catalog.reading import CatalogReader
from foretool.server.catalog.search import Search
from foretool.server.catalog.token_counter import TokenCounter
from foretool.server.clients.exchange import Exchange, Outbox
from foretool.server.clients.kept_results import KeptResults
from foretool.server.clients.registry import Announcements, ClientRegistry
from foretool.server.config.loader import Config, LiveConfig
from foretool.server.config.servers import Server
from foretool.server.hints.prediction import Predictor
from foretool.server.hints.prompt_answer import PromptAnswers
from foretool.server.hints.prompt_hook import PromptHook
from foretool.server.learning_schedule import Schedule
from foretool.server.lists.epochs import ListKeeper
from foretool.server.lists.maker import ListInputs
from foretool.server.methods.answer_tokens import AnswerTokens
from foretool.server.methods.discover_tools import DiscoverTools
from foretool.server.methods.discovery_answer import AnswerWriter
from foretool.server.methods.exemplars import Exemplars
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.greeting import Greeting
from foretool.server.methods.held_notices import HeldNotices
from foretool.server.methods.list_tools import ListTools
from foretool.server.methods.lists import MergedLists
from foretool.server.methods.long_results import LongResults, cuts_results
from foretool.server.methods.people import People, Surroundings
from foretool.server.methods.prompts import Prompts
from foretool.server.methods.query_vectors import QueryVectors
from foretool.server.methods.resources import Resources
from foretool.server.methods.router import Router
from foretool.server.methods.server_map import find_absent
from foretool.server.methods.server_requests import ServerRequests
from foretool.server.methods.sign_in_links import SignInLinks
from foretool.server.methods.subscriptions import Subscriptions
from foretool.server.methods.upstream_events import UpstreamEvents, UpstreamMessages
from foretool.server.protocol.headers import annotated_schema
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.protocol.lists import LISTS, PROMPTS, RESOURCES, TEMPLATES, ListKind
from foretool.server.recording.calibration import Recalibrator
from foretool.server.recording.cost_sums import CostKeeper
from foretool.server.recording.data_flow import FlowWatch
from foretool.server.recording.failing_jobs import JobsWatch
from foretool.server.recording.recorder import Recorder
from foretool.server.recording.retention import Retention
from foretool.server.recording.store_watch import StoreWatch
from foretool.server.reload import Reloader
from foretool.server.transports.guard import Guard, Job
from foretool.server.transports.pipes import Turn
from foretool.server.transports.tasks import TICK_S, Precedence, in_slices
from foretool.server.transports.upstream.base import Authorizer
from foretool.server.transports.upstream.stdio import ChildWatcher
from foretool.server.trust.gatekeeper import Gatekeeper, Listing
from foretool.server.trust.policy import TrustPolicy
from foretool.server.upstreams.connection import Connection
from foretool.server.upstreams.launcher import Launcher, link_opener, make_bearer, message_limit
from foretool.server.upstreams.memory import UpstreamMemory
from foretool.server.upstreams.refresh import Refresher
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.server_list import ListLimit
from foretool.server.upstreams.upstream import Connect, OpenLink, Upstream
from foretool.storage.places import models_folder
from foretool.storage.steps import Steps
from foretool.storage.stores import StorageError, Store

if TYPE_CHECKING:
    from foretool.server.methods.agent_step import AgentSteps
    from foretool.server.methods.instructions import Instructions
    from foretool.server.transports.client.access import Issuer


class Parts(NamedTuple):
    """What makes the parts of a proxy that may be watched. `fleet/telemetry/` puts others in their place; without them
    nothing is watched, and nothing is spent on it."""

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
            live, lambda person, tool: self.people.sees(person, tool), lambda: self.catalog.page_servers()
        )
        self.turn = Turn()
        self.guard = Guard(self._is_storage_said)
        self._connect = parts.connection
        self._people: People | None = None
        self._children = ChildWatcher()
        self._instructions: Instructions | None = None

        # Recording, the catalog, and what ranks it
        self.recorder = parts.recorder(store, live, clock)
        self.flows = FlowWatch(live)
        self._names = NameKeeper(store.catalog)
        self.gatekeeper = Gatekeeper(lambda: self.store.approvals, live, lambda: asyncio.get_running_loop().time())
        self.catalog = Catalog(list(config.servers.values()), self._names.read, self._names.keep, config.prefixes)
        self.reader = CatalogReader(self.catalog)
        self.imported = ImportedPriors(store.artifacts, self.catalog)
        self.search = Search(self.catalog, self.recorder.usage_of, clock, self.imported, config.settings)
        self.embedding = Embedder(config.settings, self.catalog, store, self.search)
        self.query_vectors = QueryVectors(store, self.search, self.embedding, clock)
        self.models = ModelLoader(self.search, store, self._begin_epoch)
        self.recalibrator = Recalibrator(store)
        self.schedule = Schedule(store, config.path)
        self.retention = Retention(store, live, lambda: self.search.update_corpus().digests)
        self.costs = CostKeeper(store)
        self._tokens = TokenCounter(self.catalog, store.catalog, lambda: self._instructions, models_folder(store.path))

        # Upstreams, and the clients in front of them
        self.upstreams = UpstreamRegistry(live, self.policy)
        self.memory = UpstreamMemory(store, self.catalog, self.upstreams, live)
        self.kept_words = KeptWords(store.catalog, self.catalog, self.search, self.memory.digest_inputs)
        self.lists = ListKeeper(
            ListInputs(
                self.catalog, self.search, self.recorder, live, self.policy, LearnedLists(store), self.imported,
                self.upstreams.unlisted, self.upstreams.awaited,
            )
        )  # fmt: skip
        self.outbox = Outbox(partial(self.guard.insist, "records", self.recorder.commit), self.turn.at_end)
        kept = KeptResults()
        self.clients = ClientRegistry(
            live, self.upstreams, self.lists, self.recorder, self.flows, self.outbox, kept, parts.exchange
        )
        precedence = Precedence()
        self.announcements = Announcements(self.clients, precedence)

        # What answers requests
        self.server_requests = ServerRequests(self.clients.only_client, self.upstreams.admits, self.clients.folders)
        forwarder = parts.forwarder(self.outbox, self.server_requests, live)
        self.links = SignInLinks(live, self.server_requests)
        results = LongResults(live, self.policy, kept)
        self.predictor = Predictor(self.search, self.catalog, live, self.policy, self.recorder)
        self.notices = HeldNotices(self.clients, self.gatekeeper)
        self.greeting = Greeting(self.upstreams, self.catalog, self.clients, lambda: cuts_results(live.now))
        merged = MergedLists(self.upstreams, self.clients, live, self.gatekeeper, precedence, self._note_list_problems)
        resources = Resources(self.upstreams, merged, forwarder, self.catalog, results)
        prompts = Prompts(
            self.upstreams, merged, forwarder, self.catalog, resources, self.gatekeeper,
            lambda exchange: self.steps.answer_prompt(exchange),
        )  # fmt: skip
        subscriptions = Subscriptions(self.upstreams, self.clients, resources, forwarder)
        self.answers = AnswerWriter(
            self.catalog, self.search, lambda: self.instructions, live, partial(find_absent, self.upstreams)
        )
        self._answer_tokens = AnswerTokens(self._tokens.count_text, self.recorder)
        self.discovery = DiscoverTools(
            self.upstreams,
            self.catalog,
            self.search,
            self.answers,
            self.recorder,
            self.predictor,
            self.policy,
            Exemplars(lambda most: self.store.calls.shared_events(most), time.monotonic),
            self.reader,
            self._answer_tokens,
        )
        confirmation = Confirmation(live, self.server_requests)
        calls = ToolCalls(
            self.discovery,
            ToolLookup(
                self.catalog,
                self.upstreams,
                forwarder,
                self.recorder,
                self.policy,
                self.gatekeeper,
                self.reader,
            ),
            Admission(self.policy, self.catalog, self.recorder, confirmation),
            confirmation,
            ToolRunner(
                self.upstreams,
                forwarder,
                self.recorder,
                self.flows,
                self.predictor,
                results,
                self.links,
                resources.note_result,
                self.turn.at_end,
            ),
            results,
            lambda exchange, raw: self.people.connect(exchange, raw),
            self.recorder,
            self.links,
        )
        listing = ListTools(self.upstreams, self.catalog, self.recorder.now, self.notices, precedence)
        self.router = Router(
            self.clients, self.upstreams, self.server_requests, subscriptions,
            (self.greeting, listing, calls, resources, prompts),
        )  # fmt: skip
        self.prompts = PromptHook(store.tasks, self.clients, self.search, self.predictor, self.policy, clock)
        self.prompt_answers = PromptAnswers(
            self.clients, self.search, self.catalog, self.recorder, self.policy, live, self.prompts
        )

        # What takes the reports of upstreams, and what follows the config
        messages = UpstreamMessages(self.clients, self.server_requests, subscriptions)
        self._events = UpstreamEvents(
            self.upstreams, self.catalog, merged, self.announcements, self.memory, messages, self.gatekeeper,
            precedence, live,
            {PROMPTS: self._take_in_prompts, RESOURCES: resources.take_in, TEMPLATES: resources.take_in_templates},
        )  # fmt: skip
        self._launcher = Launcher(self.upstreams, self.memory, self._make_upstream)
        self.gatekeeper.look()  # a decision from here on is taken up
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
                lambda: self.search.configure(live.settings), lambda: self.embedding.configure(live.settings),
            ),
        )  # fmt: skip

    @property
    def config(self) -> Config:
        """The config in force."""
        return self.live.now

    @property
    def instructions(self) -> Instructions:
        """The instruction corpus, made at the first search, so that no list waits for it."""
        if self._instructions is None:
            from foretool.server.methods.instructions import Instructions

            self._instructions = Instructions(
                self.live, self.upstreams, self.catalog, self.gatekeeper, self.greeting.quoted
            )
        return self._instructions

    @cached_property
    def steps(self) -> AgentSteps:
        """Plans single steps of agents; made at the first one."""
        from foretool.server.methods.agent_step import AgentSteps

        return AgentSteps(
            self.catalog, self.search, self.instructions, self.recorder, self.live, self.upstreams.unlisted,
            self.policy,
        )  # fmt: skip

    @property
    def people(self) -> People:
        """Serves people who come with tokens of their own; made where a config has such people or servers."""
        if self._people is None:
            options = {
                "capabilities": self.clients.capabilities, "list_limit": self._list_limit, "connect": self._connect,
            }  # fmt: skip
            self._people = packs.require(packs.PEOPLE)(
                Surroundings(
                    self.live, lambda: self.store, self.catalog, self.upstreams, self._events, self._link_opener,
                    options, self._relist_for,
                )
            )  # fmt: skip
        return self._people

    def issuer(self, config: Config) -> Issuer | None:
        """Return what checks the tokens of the authorization server of a config, None if it has none."""
        return self.people.issuer(config) if self._people is not None or config.settings.access is not None else None

    async def come_back(self, query: str) -> tuple[int, bytes] | None:
        """Answer a browser that comes back from the authorization server of a server; return status and page, None
        where no server sends one."""
        return await self._people.come_back(query) if self._people is not None else None

    # -- upstreams

    def _make_upstream(self, server: Server) -> Upstream:
        if server.per_user is not None:
            return self.people.make_upstream(server)
        bearer = make_bearer(server, self.config.path)
        opener = self._link_opener(server, bearer)
        return Upstream(
            server.name, self._events, opener, server.entry.timeout_s, server.secrets.redact,
            capabilities=self.clients.capabilities, list_limit=self._list_limit, kinds=LISTS, bearer=bearer,
            connect=self._connect,
        )  # fmt: skip

    def _link_opener(self, server: Server, authorizer: Authorizer | None) -> OpenLink:
        return link_opener(server, message_limit(self.config), self._children, self.turn, authorizer)

    def _relist_for(self, person: str) -> None:
        self.lists.forget_person(person)
        self.announcements.soon()

    def _note_list_problems(self, upstream: Upstream, kind: ListKind, problems: Sequence[str]) -> None:
        self.catalog.note_problems(upstream.name, kind.noun, problems)
        self.memory.save_state(upstream)

    def _take_in_prompts(self, upstream: Upstream, served: Mapping[str, Raw]) -> Steps[None]:
        """Take in the prompts of an upstream, as far as somebody has searched; the first search reads them itself."""
        yield
        if self._instructions is not None:
            yield from self._instructions.take_in(upstream, served)

    def keep_listed(self, upstream: Upstream, tools: Sequence[Raw]) -> None:
        """Keep what a server has listed to a command instead of to this proxy. Needs a running loop."""
        self._events.take_in(upstream, tools)

    def _list_limit(self) -> ListLimit:
        settings = self.config.settings
        return ListLimit(settings.max_tools, int(settings.max_tools_mib * 1024 * 1024))

    def yield_to(self, has_unread_output: Callable[[], bool]) -> None:
        """Start no upstream while this client has output of ours to read."""
        self._children.has_unread_output = has_unread_output

    # -- for HTTP

    def is_ready(self) -> bool:
        """Tell whether clients should come here. What stands behind us does not count: it concerns each replica alike.
        Neither does a database that is away while there is room for records: it is away for all replicas."""
        return not self.store.trouble or (self.store.replicas is not None and self.recorder.has_room)

    def annotated_schema(self, profile: str, tool: str) -> Any:
        """Return the input schema of a tool that wants arguments repeated in headers (`x-mcp-header`), else None."""
        found = self.catalog.find(tool)
        if found is None or not self.policy.reach(self.live.profile(profile)).finds(found):
            return None
        return annotated_schema(found.definition)

    # -- running

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run upstreams and housekeeping until the block ends, then end everything in order."""
        self.memory.open()
        self.guard.attempt("storage", self.store_watch.tick)
        async with asyncio.TaskGroup() as tasks:
            self._launcher.run(tasks)
            self.embedding.begin_early()
            keeper = tasks.create_task(self._keep_house())
            reader = tasks.create_task(self.guard.keep("prompts", self.prompts.watch))
            try:
                yield
            finally:
                keeper.cancel()
                reader.cancel()
                await self._stop()

    async def _stop(self) -> None:
        insist = self.guard.insist
        insist("answers' tokens", self._answer_tokens.count)
        work = (
            self.search, self.embedding, self.schedule, self.models, self.retention, self.costs, self.store_watch,
        )  # fmt: skip
        for part in (*work, self.links, self.reader, self._events):
            await part.stop()
        if self._people is not None:
            await self._people.stop()
        await self.recalibrator.finish()
        self.refresher.stop()
        await self._launcher.stop()
        self.outbox.flush()
        for name, step in (
            ("storage", self.store_watch.write_last), ("names", self._names.save_all), ("states", self.memory.close),
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
        return (
            Job("storage", self.store_watch.tick, self.store_watch),
            Job("records of killed proxies", self.recorder.take_over),
            Job("states", self.memory.beat),
            Job("failures of servers", self.memory.failures.follow_others),
            Job("tools", lambda: in_slices(self.memory.save_refused())),
            Job("decisions", self.follow_decisions),
            Job("held changes", self.notices.tick),
            Job("names", self._names.save),
            Job("index", lambda: self.search.index(TICK_S), self.search),
            Job("embedding", self._embed, self.embedding),
            Job("data flow", lambda: housekeeping.save_flows(self.flows, self.recorder)),
            Job("confidence", self._recalibrate, self.recalibrator),
            Job("models", lambda: self.models.tick(has_listed=bool(self.lists.views())), self.models),
            Job("learning", lambda: self.schedule.tick(self.config.settings.learn_s), self.schedule),
            Job("retention", self.retention.tick, self.retention),
            Job("summary", lambda: in_slices(self.memory.summarize())),
            Job("words", lambda: in_slices(self.kept_words.save())),
            Job("costs", self.costs.tick, self.costs),
            Job("config", self.reloader.look),
            Job("refresh", lambda: self.refresher.tick(next((each.era for each in self.clients), None))),
            Job("sign-ins", lambda: housekeeping.follow_sign_ins(self.upstreams, self.clients)),
            Job("memory", memory.tick),
            Job("usage", self.store.calls.fold_some),
            Job("searched words", self.query_vectors.tick),
            Job("answers' tokens", self._answer_tokens.count),
            Job("people", self._tick_people),
        )

    def _tick_people(self) -> None:
        if self._people is not None:
            self._people.tick()

    def _is_storage_said(self) -> bool:
        """Tell whether users hear of trouble with the storage from its watch."""
        return bool(self.store.trouble or self.recorder.refusal)

    def _embed(self) -> None:
        if self.search.is_complete:
            self.embedding.tick()

    def _recalibrate(self) -> None:
        self.recalibrator.tick()
        found = self.recalibrator.calibration
        self.search.install_calibration(found.map, has_drifted=found.has_drifted)

    def tick(self) -> None:
        """Handle time-outs, parked requests, records that the store refused, and epochs."""
        attempt = self.guard.attempt
        # While pipes are not being read, the answer to a late request may already be in one.
        attempt("servers", lambda: self.upstreams.tick(expire=not self.turn.is_held))
        attempt("clients", self.clients.expire)
        attempt("questions", self.server_requests.expire)
        attempt("records", self.recorder.retry)
        attempt("lists", self._begin_due_epoch)

    def _begin_due_epoch(self) -> None:
        if self.lists.advance():
            self.announcements.soon()

    def follow_decisions(self) -> None:
        """Serve what was approved since the last look, and no longer what was blocked."""
        if self.catalog.is_unread:
            return  # it is read within seconds, and takes up what the store has by then
        for name in self.gatekeeper.due():
            if (upstream := self.upstreams.get(name)) is not None:
                upstream.relist_all()
        decided = self.gatekeeper.look()
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
            self.models.tick(has_listed=bool(self.lists.views()))
        if table in ("", "working_sets") and self.lists.follow_others():
            self.announcements.soon()

    async def _count_tokens(self) -> None:
        await self._tokens.count()

    def _follow_store(self) -> None:
        """Bring a store that can be used again up to date; where it says something else than we do, it is right. May
        raise `StorageError`; then it is done again."""
        self.catalog.follow_names(self._names.load(), self.config.prefixes)
        self._names.save()
        self._judge_again()
        self.memory.save_all()
        for session in (session for client in self.clients for session in client.sessions()):
            self.recorder.begin_session(session.record)  # it may be another file
        self.recorder.retry()
        self.embedding.retry()
        self.announcements.soon()
        self.guard.hurry()

    def _judge_again(self) -> None:
        """Compare what is served with the approvals of a store that can be used again."""
        for upstream in self.upstreams:
            tools, text = self.catalog.listed(upstream.name), self.catalog.instructions(upstream.name)
            if tools or text:
                admitted = self.gatekeeper.admit(upstream.name, Listing(tools, text), Listing(()))
                self.catalog.load(upstream.name, admitted.tools, admitted.text)
            upstream.relist_all()
        self.catalog.settle()

    def _begin_epoch(self) -> None:
        """Make new lists, because other models serve or a learning run has ended."""
        self.lists.forget()
        self.announcements.soon()
