"""The proxy: every client on one side, every upstream on the other, and what is common to them.

Requests run through as plain callbacks: `Client` takes a message, `Calls` or `Aggregate` finds the upstream, the
upstream's reply comes back to the `Exchange`, and the `Outbox` commits the records before anything is sent.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.search import Search
from foretool.server.clients.client import LEVELS, Client, OnReply
from foretool.server.clients.exchange import Exchange, Outbox
from foretool.server.clients.exposure import Exposures
from foretool.server.clients.session import Session
from foretool.server.config.loader import Config, Profile
from foretool.server.config.settings import Settings
from foretool.server.methods import discover_tools
from foretool.server.methods.call_tool import Calls
from foretool.server.methods.prediction import Foresight
from foretool.server.methods.resources_prompts import Aggregate, offers_steps
from foretool.server.methods.server_requests import ANY, Questions
from foretool.server.protocol import jsonrpc, translate
from foretool.server.protocol.jsonrpc import UNSET, Message, Raw
from foretool.server.recording.data_flow import FlowWatch
from foretool.server.recording.recorder import Recorder
from foretool.server.transports.client.base import Channel
from foretool.server.transports.pipes import Turn
from foretool.server.upstreams.connection import Request
from foretool.server.upstreams.upstream import State, Upstream
from foretool.storage.records import ClientRecord, Era, SessionRecord

if TYPE_CHECKING:
    from foretool.server.methods.agent_step import Steps
    from foretool.server.methods.instructions import Instructions

ANNOUNCE_S: Final = 0.25
"""Changes of several upstreams within this time are announced once."""

ANNOUNCE_SHARE: Final = 10.0
"""Between two looks at the clients' lists passes this many times what the last one took, within `ANNOUNCE_MOST_S`."""
ANNOUNCE_MOST_S: Final = 3.0

INSTRUCTION_TOKENS: Final = 1000
"""Budget of the merged `instructions`."""

LIST_CHANGES: Final = {
    "notifications/resources/list_changed": "resourcesListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
}

log = logging.getLogger("foretool.proxy")


class Watcher(Protocol):
    """Who is told of an upstream's news, to keep and to show."""

    def tools_changed(self, upstream: Upstream) -> None: ...

    def state_changed(self, upstream: Upstream) -> None: ...


class Proxy:
    """See the module. It makes no upstream and opens no store: `App` does."""

    def __init__(
        self,
        config: Config,
        catalog: Catalog,
        search: Search,
        exposures: Exposures,
        recorder: Recorder,
        watcher: Watcher,
    ) -> None:
        self.config = config
        self.catalog = catalog
        self.exposures = exposures
        self.recorder = recorder
        self.search = search
        self.flows = FlowWatch()
        self.upstreams: dict[str, Upstream] = {}
        self.capabilities_known: dict[str, dict[str, Any]] = {}
        """Capabilities by upstream, from an earlier run until it has greeted in this one."""
        self.clients: list[Client] = []
        self.clock: Callable[[], float] = time.time
        self.turn = Turn()
        self.outbox = Outbox(recorder.commit, self.turn.at_end)
        self.questions = Questions(self)
        self.calls = Calls(self)
        self.foresight = Foresight(self)
        self.aggregate = Aggregate(self)
        self._watcher = watcher
        self._listed: set[str] = set()
        """Upstreams whose tools are known, from the store or from themselves."""
        self._waiting_lists: list[Callable[[], None]] = []
        self._waiting_upstream: dict[str, list[Callable[[], None]]] = {}
        self._cold_until = 0.0
        """When lists stop waiting for upstreams that nothing is known of; 0 until the first client has come, since
        nobody has started them before."""
        self._announcing: asyncio.TimerHandle | None = None
        self._announced_in = 0.0
        """Seconds that the last look at the clients' lists took."""
        self._trouble: dict[str, str] = {}
        """By upstream, what was last wrong with it, so that the same is said once."""
        self._said: set[str] = set()
        """Upstreams that have announced a change of their tools since clients were last told."""
        self._instructions: Instructions | None = None
        self._steps: Steps | None = None
        self._given: dict[str, tuple[int, frozenset[str]]] = {}

    @property
    def settings(self) -> Settings:
        return self.config.settings

    @property
    def keeps_text(self) -> bool:
        return self.settings.record != "off"

    @property
    def instructions(self) -> Instructions:
        """The instruction corpus; nothing is read of it before somebody searches."""
        if self._instructions is None:
            # Not at the top: no list waits for what only searches need.
            from foretool.server.methods.instructions import Instructions

            self._instructions = Instructions(self)
        return self._instructions

    def uncounted_fragments(self) -> dict[str, str]:
        """Texts of instructions by digest whose tokens are estimated; none before somebody has searched."""
        return self._instructions.uncounted() if self._instructions is not None else {}

    @property
    def steps(self) -> Steps:
        """Puts single steps together."""
        if self._steps is None:
            from foretool.server.methods.agent_step import Steps

            self._steps = Steps(self)
        return self._steps

    # -- Fronts: for the edges

    def open(self, era: Era, transport: str, unasked: Channel, profile: str = "", principal: str = "") -> Client:
        client = Client(self, era, transport, unasked, self.config.profiles[profile], principal)
        self.clients.append(client)
        return client

    def gone(self, client: Client) -> None:
        if client in self.clients:
            self.clients.remove(client)
        self.aggregate.gone(client)
        if client.log_level:
            self.set_levels()
        for session in client.sessions():
            self.end_session(session)

    def end_session(self, session: Session) -> None:
        self.recorder.end_session(session.record.key, self.clock())
        self.flows.forget(session.record.key)

    def begin_session(self, client: Client, era: Era) -> Session:
        record = SessionRecord(
            key=secrets.token_hex(16),
            client=str(client.info.get("name", "")),
            version=str(client.info.get("version", "")),
            era=era,
            transport="http" if client.transport == "http" else "stdio",
            profile=client.profile.name,
            started_at=self.clock(),
        )
        self.recorder.begin_session(record)
        self._wake_unknown(era)
        return Session(record)

    async def finished(self, patience_s: float) -> None:
        """Until every request but subscriptions is answered, at most `patience_s` seconds."""
        end = time.monotonic() + patience_s
        while any(len(client.exchanges) > len(client.listens) for client in self.clients) and time.monotonic() < end:
            await asyncio.sleep(0.01)
        self.outbox.flush()

    def only_client(self) -> Client | None:
        """The client, if there is just one: it is meant by what belongs to no request."""
        return self.clients[0] if len(self.clients) == 1 else None

    def _wake_unknown(self, era: Era) -> None:
        """A client has opened its conversation: bring up the upstreams that we must still get to know."""
        self._cold_until = self._cold_until or asyncio.get_running_loop().time() + self.settings.cold_list_s
        for upstream in self.upstreams.values():
            if upstream.name not in self._listed:
                upstream.start(era)

    # -- client ledger

    def ledger(self, client: str, version: str, era: Era) -> ClientRecord | None:
        return self.recorder.client(client, version, era)

    def relisted(self, record: SessionRecord, delay_s: float | None) -> None:
        """A client listed again `delay_s` after it was told to, or (None) did not in time."""
        relisted = delay_s is not None
        ms = delay_s * 1000 if delay_s is not None else None
        self.recorder.add_client_relist(record.client, record.version, record.era, 1, int(relisted), ms)

    # -- lists that wait for cold upstreams

    def known(self, upstreams: Sequence[str]) -> None:
        """The tools of these are known from an earlier run, so no list waits for them."""
        self._listed.update(upstreams)

    def profiles_changed(self) -> None:
        """After a reload: clients go on under what their profile says now."""
        for client in self.clients:
            client.profile = self.config.profiles.get(client.profile.name, self.config.profiles[""])
            for session in client.sessions():
                session.policy = None
        self.exposures.forget()

    def unknown_upstreams(self) -> frozenset[str]:
        return frozenset(self.upstreams.keys() - self._listed)

    def when_listed(self, go: Callable[[], None]) -> None:
        """Now, or as soon as every upstream has listed its tools or failed to, but not after the deadline."""
        loop = asyncio.get_running_loop()
        if not self.still_coming() or loop.time() >= self._cold_until:
            go()
            return
        if not self._waiting_lists:
            loop.call_at(self._cold_until, self._stop_waiting)
        self._waiting_lists.append(go)

    def still_coming(self) -> bool:
        """Whether an upstream may yet list its tools for the first time."""
        return any(
            name not in self._listed
            and upstream.state in (State.KNOWN, State.STARTING, State.READY)
            and not upstream.error
            for name, upstream in self.upstreams.items()
        )

    def _stop_waiting(self) -> None:
        waiting, self._waiting_lists = self._waiting_lists, []
        for go in waiting:
            go()

    def unlisted_upstream(self, name: str) -> Upstream | None:
        """The upstream a tool's name points to, if it has not listed its tools yet."""
        for upstream in self.upstreams.values():
            heads = {f"{self.prefix(upstream.name)}__", f"{upstream.name}__"} - {"__"}
            if upstream.name not in self._listed and any(name.startswith(head) for head in heads):
                return upstream
        return None

    def when_upstream_listed(self, upstream: Upstream, era: Era, go: Callable[[], None]) -> None:
        """As soon as it has listed, or failed to; it is started in the era of whoever waits."""
        self._waiting_upstream.setdefault(upstream.name, []).append(go)
        if upstream.timeout_s:
            asyncio.get_running_loop().call_later(upstream.timeout_s, self._give_up, upstream, go)
        if upstream.is_up:
            upstream.relist_all()  # it is up, and its list was broken or did not come
        else:
            upstream.start(era)

    def _give_up(self, upstream: Upstream, go: Callable[[], None]) -> None:
        """It has taken longer than a call of it may; whoever still waits hears that it is not there."""
        waiting = self._waiting_upstream.get(upstream.name, [])
        if go in waiting:
            waiting.remove(go)
            go()

    def _wake(self, upstream: Upstream) -> None:
        for go in self._waiting_upstream.pop(upstream.name, []):
            go()
        if self._waiting_lists and not self.still_coming():
            self._stop_waiting()

    # -- Host: for the upstreams

    def on_tools(self, upstream: Upstream, tools: Sequence[Raw]) -> None:
        if self.upstreams.get(upstream.name) is not upstream:
            return  # removed by a reload in the meantime
        self.capabilities_known[upstream.name] = upstream.server_info.capabilities
        server = self.config.servers.get(upstream.name)
        over_http = server is not None and server.type == "http"
        changes = self.catalog.replace(upstream.name, tools, upstream.server_info.instructions, over_http)
        self._listed.add(upstream.name)
        self.aggregate.came(upstream)
        self._watcher.tools_changed(upstream)
        self._wake(upstream)
        if upstream.announced:
            upstream.announced = False
            self._said.add(upstream.name)
        if changes or self._said:
            self.announce_soon()

    def on_state(self, upstream: Upstream) -> None:
        trouble = upstream.error if upstream.is_up or upstream.state is State.RETRYING else ""
        if trouble and trouble != self._trouble.get(upstream.name):
            log.warning("upstream %r: %s", upstream.name, trouble)
        self._trouble[upstream.name] = trouble
        self._watcher.state_changed(upstream)
        if upstream.state in (State.RETRYING, State.STOPPED) or upstream.error:
            self._wake(upstream)

    def on_notification(self, upstream: Upstream, message: Message, era: Era) -> None:
        """What an upstream says that belongs to no request, on its connection of `era`."""
        method = str(message.method)
        try:
            params = jsonrpc.plain(message.params) if message.params is not UNSET else {}
        except ValueError:
            return
        if not isinstance(params, dict):
            return
        if method == "notifications/resources/updated":
            self.aggregate.updated(upstream, params, era)
        elif method == "notifications/cancelled":
            self.questions.withdraw(upstream, params.get("requestId"), str(params.get("reason") or ""))
        elif method == "notifications/elicitation/complete":
            self.questions.completed(message, str(params.get("elicitationId")))
        elif method in LIST_CHANGES:
            if self._instructions is not None and method == "notifications/prompts/list_changed":
                self._instructions.prompts_changed(upstream)
            for client in list(self.clients):
                if self.exposures.allowed(client.profile, upstream.name):
                    client.notify(LIST_CHANGES[method], method)
        elif method == "notifications/message":
            for client in self._readers(upstream, str(params.get("level", ""))):
                client.notify("", method, params)

    def _readers(self, upstream: Upstream, level: str) -> list[Client]:
        """Who is given a log entry that belongs to no request that could be told. A modern client is given none, since
        its log is that of its requests; and none tells one credential of another's work, or a profile of what it
        leaves out."""
        asking = {id(each): each for each in (request.exchange for request in upstream.askers())}
        calling = [exchange.client for exchange in asking.values() if isinstance(exchange, Exchange)]
        readers = [client for client in self.clients if self.exposures.allowed(client.profile, upstream.name)]
        if calling:
            # It may be of any of these calls: whoever asked for such entries may see them if they are all alike.
            readers = [client for client in readers if client.log_level and client.is_kin(calling[0])]
            if not all(client.is_kin(calling[0]) for client in calling):
                return []
        elif len({client.principal for client in readers}) > 1:
            return []
        return [client for client in readers if client.era == "legacy" and client.wants_log(level)]

    def on_request(
        self, upstream: Upstream, message: Message, request: Request | None, answer: Callable[[Message], None]
    ) -> None:
        self.questions.on_request(upstream, message, request, answer)

    def capabilities(self, era: Era) -> dict[str, Any]:
        """What we declare to an upstream: what the one client can, or what any may who is still to come; a question to
        one that cannot answer it is refused then, in the words that this client itself would have to use."""
        client = self.only_client()
        if client is not None and client.transport == "stdio":
            return translate.forwardable(client.capabilities)
        union: dict[str, Any] = {}
        for each in self.clients:
            union = translate.unite(union, translate.forwardable(each.capabilities))
        return translate.unite(union, ANY)

    def roots_changed(self, client: Client) -> None:
        for upstream in self.upstreams.values():
            if upstream.era_for(client.era) == "legacy":
                upstream.notify("legacy", "notifications/roots/list_changed")

    # -- announcements

    def announce_soon(self) -> None:
        if self._announcing is None:
            # While hundreds of upstreams come one by one, lists must not be worked out more often than they are given.
            pause = max(ANNOUNCE_S, min(ANNOUNCE_SHARE * self._announced_in, ANNOUNCE_MOST_S))
            self._announcing = asyncio.get_running_loop().call_later(pause, self._announce)

    def _announce(self) -> None:
        """Tell the clients whose list is no longer the one they were given, and those that see everything whenever an
        upstream has said so: theirs is a plain aggregate's list."""
        self._announcing = None
        started = time.perf_counter()
        said, self._said = self._said, set()
        for client in list(self.clients):
            relayed = any(self.exposures.allowed(client.profile, name) for name in said)
            if client.is_stale() or (relayed and client.sees_all()):
                client.announce()
        self._announced_in = time.perf_counter() - started

    def tick(self) -> None:
        """About once a second: time-outs, parked requests, schedule."""
        for upstream in self.upstreams.values():
            if not self.turn.is_held:  # else their answers may wait unread
                upstream.expire()
            if self._is_idle(upstream):
                upstream.rest()
        self.questions.expire()
        self.recorder.retry()
        before = {(view.profile, view.policy) for view in self.exposures.views()}
        self.exposures.advance()
        if len(self.exposures.views()) < len(before):
            self.announce_soon()

    def _is_idle(self, upstream: Upstream) -> bool:
        idle_stop_s = self.settings.idle_stop_s
        return bool(idle_stop_s and upstream.pids) and time.monotonic() - upstream.used_at > idle_stop_s

    # -- what the aggregate is

    def with_capability(self, capability: str, profile: Profile) -> list[Upstream]:
        """Upstreams that declare it, or of which nothing is known yet."""
        found = []
        for name, upstream in self.upstreams.items():
            known = self.capabilities_known.get(name)
            usable = (known is None and not upstream.error) or (known is not None and capability in known)
            if usable and self.exposures.allowed(profile, name):
                found.append(upstream)
        return found

    def server_capabilities(self, era: Era, profile: Profile) -> dict[str, Any]:
        """Ours and those of the upstreams; everything while some are unknown."""
        unknown = any(name not in self.capabilities_known for name in self.upstreams)
        union = {key for known in self.capabilities_known.values() for key in known}
        capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
        if unknown or "resources" in union:
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if unknown or "prompts" in union or offers_steps(profile):
            capabilities["prompts"] = {"listChanged": True}
        if unknown or "completions" in union:
            capabilities["completions"] = {}
        if unknown or "logging" in union:
            capabilities["logging"] = {}
        extensions = {}
        for known in self.capabilities_known.values():
            extensions.update(translate.forwardable(known).get("extensions", {}))
        return {**capabilities, "extensions": extensions} if extensions else capabilities

    def greeting(self, profile: Profile) -> str:
        """Our `instructions`."""
        texts = {
            name: self.catalog.server_text(name) for name in self.upstreams if self.exposures.allowed(profile, name)
        }
        return discover_tools.instructions(texts, INSTRUCTION_TOKENS)

    def given(self, profile: Profile) -> frozenset[str]:
        """Upstreams whose own words are in our `instructions`: clients need not be told them again."""
        known = self._given.get(profile.name)
        if known is None or known[0] != self.catalog.version:
            told = self.greeting(profile)
            said = {name: self.catalog.instructions(name).strip() for name in self.upstreams}
            names = frozenset(name for name, text in said.items() if text and f"## {name}\n{text}" in told)
            known = self._given[profile.name] = (self.catalog.version, names)
        return known[1]

    def prefix(self, upstream: str) -> str:
        server = self.config.servers.get(upstream)
        return server.prefix if server is not None else upstream

    def honoured(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a `subscriptions/listen` filter that we serve."""
        kinds = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
        kept: dict[str, Any] = {kind: True for kind in kinds if wanted.get(kind) is True}
        uris = wanted.get("resourceSubscriptions")
        if isinstance(uris, list) and uris:
            kept["resourceSubscriptions"] = [uri for uri in uris if isinstance(uri, str)]
        return kept

    def set_levels(self) -> None:
        """A legacy client has said which logs it wants, or has gone: upstreams send the least severe that any client
        wants which has them in its profile."""
        asking = [client for client in self.clients if client.log_level in LEVELS]
        for name, upstream in self.upstreams.items():
            levels = [client.log_level for client in asking if self.exposures.allowed(client.profile, name)]
            if levels and "logging" in self.capabilities_known.get(name, ("logging",)):
                upstream.set_level(min(levels, key=LEVELS.index))

    def ask_for(self, exchange: Exchange, upstream: Upstream, params: dict[str, Raw], arrived: OnReply) -> None:
        """One part of a merged list, with the client's own `_meta`."""
        exchange.client.forward(exchange, upstream, params, arrived)

    # -- recording

    def argument_record(self, arguments: Raw | None) -> str:
        """What of a call's arguments is kept."""
        if self.settings.record == "off":
            return ""
        if self.settings.record == "full":
            return self.config.redact(bytes(arguments or b"{}").decode(errors="replace"))
        return translate.argument_shape(arguments)
