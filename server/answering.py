"""What answers the requests of clients, from the search to the router. Makes these parts, once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

from foretool.server.calls.tool_calls import OwnTool, make_tool_calls
from foretool.server.clients.client import Client
from foretool.server.clients.exchange import Exchange, Outbox
from foretool.server.clients.registry import ClientRegistry
from foretool.server.config.loader import LiveConfig
from foretool.server.discovery.answer import AnswerWriter
from foretool.server.discovery.discover_tools import AnswerTokens, DiscoverTools
from foretool.server.discovery.exemplars import Exemplars
from foretool.server.discovery.judge import Judge
from foretool.server.discovery.server_map import find_absent
from foretool.server.discovery.skill_search import SkillSearch
from foretool.server.hints.prediction import Predictor
from foretool.server.hints.prompt_answer import PromptAnswers
from foretool.server.hints.prompt_hook import PromptHook
from foretool.server.hints.shell_answer import ShellReports
from foretool.server.knowledge import Knowledge
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.long_results import LongResults
from foretool.server.methods.server_requests import ServerRequests
from foretool.server.methods.sign_in_links import SignInLinks
from foretool.server.methods.subscriptions import Subscriptions
from foretool.server.parties import Offering, Parties
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.headers import annotated_schema
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.protocol.lists import PROMPTS, RESOURCES, SKILLS, TEMPLATES, ListKind
from foretool.server.protocol.versions import ERAS
from foretool.server.transports.client.base import Channel
from foretool.server.trust.policy import TrustPolicy
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era
from foretool.storage.steps import Steps
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.server.discovery.agent_step import AgentSteps
    from foretool.server.discovery.instructions import Instructions

Handler = Callable[[Exchange], None]


class MethodGroup(Protocol):
    """The handlers of some methods, by era."""

    def handlers(self, era: Era) -> Mapping[str, Handler]: ...


class Router:
    """Opens clients for the transports (`transports.client.base.Fronts`) and answers their requests."""

    def __init__(
        self, clients: ClientRegistry, upstreams: UpstreamRegistry, server_requests: ServerRequests,
        subscriptions: Subscriptions, groups: Iterable[MethodGroup],
    ) -> None:  # fmt: skip
        self._clients = clients
        self._upstreams = upstreams
        self._server_requests = server_requests
        self._subscriptions = subscriptions
        self._handlers: dict[Era, dict[str, Handler]] = {era: {} for era in ERAS}
        for group in (subscriptions, *groups):
            for era in ERAS:
                self._handlers[era].update(group.handlers(era))

    def open(
        self, era: Era, transport: str, standalone: Channel, /, profile: str = "", principal: str = "",
        folder: str = "", name: str = "", window: str = "",
    ) -> Client:  # fmt: skip
        return self._clients.open(era, transport, standalone, profile, principal, folder, name, window, self)

    def handle(self, exchange: Exchange) -> None:
        handler = self._handlers[exchange.era].get(exchange.method)
        if handler is None:
            exchange.error(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
        elif "requestState" not in exchange.params or not self._server_requests.resume(exchange):
            handler(exchange)

    def on_roots_changed(self, client: Client) -> None:
        for upstream in self._upstreams:
            if upstream.era_for(client.era) == "legacy":
                upstream.notify("legacy", "notifications/roots/list_changed")

    def on_closed(self, client: Client) -> None:
        self._server_requests.drop_client(client)
        self._clients.remove(client)
        self._subscriptions.forget(client)


class Answering:
    """The parts that answer requests."""

    def __init__(
        self, live: LiveConfig, store: Store, clock: Callable[[], float], policy: TrustPolicy, known: Knowledge,
        parties: Parties, make_forwarder: Callable[[Outbox, ServerRequests, LiveConfig], Forwarder],
        at_end: Callable[[Callable[[], None]], None], connect: OwnTool,
    ) -> None:  # fmt: skip
        """`at_end` runs a callback once the requests of this turn have left. `connect` answers `connect_server`."""
        self._live = live
        self._policy = policy
        self._known = known
        self._parties = parties
        self._instructions: Instructions | None = None
        upstreams, clients, catalog, search = parties.upstreams, parties.clients, known.catalog, known.search
        self.server_requests = ServerRequests(clients.only_client, upstreams.admits, clients.are_apart)
        forwarder = make_forwarder(parties.outbox, self.server_requests, live)
        self.links = SignInLinks(live, self.server_requests)
        results = LongResults(live, policy, parties.kept_results)
        self.offering = Offering(
            live, known, parties, forwarder, results, lambda exchange: self.steps.answer_prompt(exchange)
        )
        self.predictor = Predictor(search, catalog, live, policy, known.recorder)
        self.answers = AnswerWriter(
            catalog, search, lambda: self.instructions, live, partial(find_absent, upstreams, live), known.gatekeeper
        )  # fmt: skip
        self.answer_tokens = AnswerTokens(known.tokens.count_text, known.recorder)
        self.skill_search = SkillSearch(self.offering.skills, search, catalog, policy)
        exemplars = Exemplars(lambda most: store.calls.shared_events(most), time.monotonic)
        self.judge = Judge(live, search, catalog, known.recorder.without_secrets)
        self.discovery = DiscoverTools(
            upstreams, catalog, search, self.answers, known.recorder, self.predictor, policy, exemplars,
            self.answer_tokens, self.skill_search, self.judge,
        )  # fmt: skip
        self.calls = calls = make_tool_calls(
            live, policy, known, parties, self.server_requests, forwarder, self.links, results, self.predictor,
            self.discovery, self.offering.resources.note_result, at_end, connect, store,
        )  # fmt: skip
        offered = self.offering
        self.router = Router(
            clients, upstreams, self.server_requests, offered.subscriptions,
            (offered.greeting, offered.tools, calls, offered.resources, offered.prompts, offered.skills),
        )  # fmt: skip
        self.prompts = PromptHook(store.tasks, clients, search, self.predictor, policy, clock)
        self.prompt_answers = PromptAnswers(clients, search, catalog, known.recorder, policy, live, self.prompts)
        self.shell_reports = ShellReports(
            self.prompt_answers.sessions_of, search, catalog, known.recorder, policy, live
        )

    def find_instructions(self) -> Instructions | None:
        """Return the instruction corpus if it was made."""
        return self._instructions

    @property
    def instructions(self) -> Instructions:
        """The instruction corpus, made at the first search, so that no list waits for it."""
        if self._instructions is None:
            from foretool.server.discovery.instructions import Instructions

            self._instructions = Instructions(
                self._live, self._parties.upstreams, self._known.catalog, self._known.gatekeeper
            )
        return self._instructions

    @cached_property
    def steps(self) -> AgentSteps:
        """Plans single steps of agents; made at the first one."""
        from foretool.server.discovery.agent_step import AgentSteps

        return AgentSteps(
            self._known.catalog, self._known.search, self.instructions, self._known.recorder, self._live,
            self._parties.upstreams.unlisted, self._policy, self.skill_search,
        )  # fmt: skip

    def annotated_schema(self, profile: str, tool: str) -> Any:
        """Return the input schema of a tool that wants arguments repeated in headers (`x-mcp-header`), else None."""
        found = self._known.catalog.find(tool)
        if found is None or not self._policy.reach(self._live.profile(profile)).finds(found):
            return None
        return annotated_schema(found.definition)

    def list_takers(self) -> Mapping[ListKind, Callable[[Upstream, Mapping[str, Raw]], Steps[None]]]:
        """Return, for each list of a server except that of tools, the method that takes in the approved members."""
        resources = self.offering.resources
        return {
            PROMPTS: self._take_in_prompts, RESOURCES: resources.take_in, TEMPLATES: resources.take_in_templates,
            SKILLS: self.offering.skills.index.take_in,
        }  # fmt: skip

    def _take_in_prompts(self, upstream: Upstream, served: Mapping[str, Raw]) -> Steps[None]:
        """Record the prompts of an upstream, as far as somebody has searched; the first search reads them itself."""
        yield
        if self._instructions is not None:
            yield from self._instructions.take_in(upstream, served)
