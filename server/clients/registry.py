"""All clients: opens and closes them, begins and ends their sessions, and tells them when their lists have changed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from math import inf
from typing import Any, Final, TypeGuard, get_args

from foretool.server.clients.client import LEVELS, Client, Router
from foretool.server.clients.exchange import Exchange, Outbox
from foretool.server.clients.kept_results import KeptResults
from foretool.server.clients.pursuit import Settled
from foretool.server.clients.session import Session, SessionMemo
from foretool.server.config.loader import LiveConfig
from foretool.server.lists.epochs import ListKeeper
from foretool.server.lists.growth import ToolList
from foretool.server.lists.hidden import HiddenTools
from foretool.server.protocol import translate
from foretool.server.protocol.apps import shows_pages
from foretool.server.recording.data_flow import FlowWatch
from foretool.server.recording.recorder import Recorder
from foretool.server.transports.client.base import Channel
from foretool.server.transports.tasks import Precedence, Tasks, in_slices
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.episodes import GAP_S
from foretool.storage.records import Call, Discovery, Era, Exposure, ListReason, Person, SessionRecord, ToolId

_LISTS: Final = get_args(ListReason)
_RECENT: Final = 50
"""Sessions among which the last list of a client is looked for."""
_MOST_NAME: Final = 100
"""Characters of a client's name or version that are kept."""
_KEY_BYTES: Final = 16
"""Of the key of a session. That of a window begins with the name of the window."""
_ANNOUNCE_S: Final = 0.25
"""Changes of several upstreams within this time are announced once."""

_ANNOUNCE_SHARE: Final = 10.0
_ANNOUNCE_MOST_S: Final = 3.0
"""The pause before clients' lists are checked: `_ANNOUNCE_SHARE` times as long as the last check took, up to a
limit."""


class ClientRegistry:
    """Holds the clients that are connected."""

    def __init__(
        self, config: LiveConfig, upstreams: UpstreamRegistry, lists: ListKeeper, recorder: Recorder,
        flows: FlowWatch, outbox: Outbox, kept: KeptResults, make_exchange: Callable[..., Exchange] = Exchange,
    ) -> None:  # fmt: skip
        self.make_exchange = make_exchange
        self._config = config
        self._upstreams = upstreams
        self._lists = lists
        self._hidden = HiddenTools(lists)
        self._recorder = recorder
        self._flows = flows
        self._outbox = outbox
        self._kept = kept
        self._clients: list[Client] = []
        self.is_ending = False
        """This process was asked to end: what is still open is lost, and its clients get an error."""
        self.serves_http = False
        """Clients come over HTTP, though none may be there now."""

    def __iter__(self) -> Iterator[Client]:
        """Iterate over a copy, because telling a client something may remove it."""
        return iter(list(self._clients))

    def __contains__(self, client: object) -> bool:
        return client in self._clients

    def __len__(self) -> int:
        return len(self._clients)

    def only_client(self) -> Client | None:
        """Return the client if there is exactly one: messages that belong to no request are then meant for it."""
        return self._clients[0] if len(self._clients) == 1 else None

    def are_apart(self) -> bool:
        """Return whether windows work in several folders, or several people may come over HTTP. A server keeps the
        roots that it was told, and would work for one in the folders of another."""
        return len({client.folder for client in self._clients if client.folder}) > 1 or self._may_be_several_people()

    def keeps_back_roots(self) -> bool:
        """Return whether a client has roots that upstreams do not hear of, because several people may be connected."""
        return self._may_be_several_people() and any("roots" in client.capabilities for client in self._clients)

    def _may_be_several_people(self) -> bool:
        settings = self._config.settings
        return self.serves_http and (len(settings.tokens) > 1 or settings.access is not None)

    def admitted(self, upstream: str) -> list[Client]:
        return [client for client in self._clients if self._upstreams.admits(client.profile, upstream)]

    # -- coming and going

    def open(
        self, era: Era, transport: str, standalone: Channel, profile: str, principal: str, folder: str, name: str,
        window: str, router: Router,
    ) -> Client:  # fmt: skip
        """Add a client. `standalone` takes what belongs to no request. `principal`: the credential's owner, or "";
        `name`: that owner in words. `folder`: where a window works; `window`: its name, "" for every other client."""
        found = self._config.profile(profile, principal)
        client = Client(era, transport, found, principal, standalone, self._outbox, self, router)
        self.serves_http = self.serves_http or transport == "http"
        client.folder, client.window = folder, window
        if window:
            client.earlier = self._recorder.sessions_of_window(window)
        if principal:
            client.person = Person(principal, name)
        self._clients.append(client)
        return client

    def remove(self, client: Client) -> None:
        """Forget a client that has gone, and end its sessions."""
        if client in self._clients:
            self._clients.remove(client)
        if client.log_level:
            self.set_levels()
        for upstream in self._upstreams:
            upstream.users.discard(client)
        client.end_sessions()

    def expire(self) -> None:
        """Give up questions to clients that nobody has answered in time, and record the latest searches that led to no
        call; called about once a second."""
        now = time.monotonic()
        for client in self._clients:
            client.expire(now)
            for session in client.sessions():
                self._write(session.rest(self._recorder.now()))

    def tool_list(self, client: Client) -> ToolList:
        return ToolList(client, self._lists, self._config)

    def begin_session(self, client: Client, era: Era) -> Session:
        record = SessionRecord(
            key=client.window + os.urandom(_KEY_BYTES).hex()[len(client.window) :],
            client=str(client.info.get("name", ""))[:_MOST_NAME],
            version=str(client.info.get("version", ""))[:_MOST_NAME],
            era=era,
            transport="http" if client.transport == "http" else "stdio",
            profile=client.profile.name,
            started_at=self._recorder.now(),
        )
        if (earlier := client.take_earlier(record)) is not None:
            return self._go_on(client, earlier)
        session = self._open_session(client, record)
        listed = client.tools.profile(session.list).key
        others = [one for each in self._clients for one in each.lists() if each.tools.profile(one).key == listed]
        if not others and not client.is_program:
            self._lists.begin_session(listed)
        session.list.find_kept = partial(self._find_kept, record)
        self._recorder.begin_session(record, client.person)
        self._upstreams.wake_unlisted(era, client.profile)
        return session

    def _go_on(self, client: Client, record: SessionRecord) -> Session:
        """Go on with a session that another proxy has recorded of this window: its client was given a list, and was
        told of tools, and knows of no other proxy."""
        self._recorder.reopen_session(record, client.person)
        self._upstreams.wake_unlisted(record.era, client.profile)
        session = self._open_session(client, record)
        self._recall(client, session)
        return session

    def _recall(self, client: Client, session: Session) -> None:
        """Note what is on record of a session in the order in which it came: each list that it was given, what named
        tools to it, and its latest searches and calls. What was missed depends on the list of that moment."""
        key, chat = session.record.key, session.conversations.whole
        searches, calls, misses = self._recorder.latest_of_session(key, GAP_S)
        given = self._recorder.exposures(key)
        lists = [each for each in given if _is_list(each)]
        texts = [each for each in given if each.reason in ("hint", "prompt")]
        begin = min([each.at for each in searches] + [each.at for each in calls], default=inf)
        chat.hinted.update(tool for each in texts if each.at < begin for tool in each.tools)
        before = [each for each in lists if each.at <= begin][:-1]  # the last of them is the list of the first search
        events: list[Exposure | Discovery | Call]
        events = [*lists[len(before) :], *(each for each in texts if each.at >= begin), *searches, *calls]
        in_order = sorted(events, key=lambda each: each.at)
        for event, follows in zip_longest(in_order, in_order[1:]):
            if _is_list(event) and _is_list(follows):
                continue  # nothing was done with it, and reading a long list takes a tenth of a second
            if _is_list(event):
                client.tools.recall(session.list, event, _named_beside(event, given))
            else:
                session.recall(event)
        session.recall_misses(misses)
        if lists:
            chat.missed.update((lists[-1].id, tool) for tool in self._recorder.missed_with(lists[-1]))

    def _find_kept(self, record: SessionRecord) -> frozenset[ToolId]:
        """Return what the last list had or named that another session of this client and profile was given, as far as
        one of the latest sessions was given one."""
        for other in self._recorder.recent_sessions(_RECENT):
            if (other.client, other.profile) != (record.client, record.profile) or other.key == record.key:
                continue
            given = self._recorder.exposures(other.key)
            if last := next((each for each in reversed(given) if _is_list(each)), None):
                return frozenset((*last.tools, *_named_beside(last, given)))
        return frozenset()

    def resume_session(self, client: Client, memo: SessionMemo) -> Session:
        """Go on with a session that another replica has begun, and recorded."""
        self._recorder.know_session(memo.record, client.person)
        self._upstreams.wake_unlisted(memo.record.era, client.profile)
        return self._open_session(client, memo.record)

    def _open_session(self, client: Client, record: SessionRecord) -> Session:
        pages = shows_pages(client.capabilities)
        return Session(record, self._hidden, shows_pages=pages, has_list=not client.is_shell)

    def end_session(self, session: Session, *, goes_on: bool = False) -> None:
        """Forget a session; `goes_on`: at another replica, so it has not ended."""
        if not goes_on:
            self._write(session.end())
            self._recorder.end_session(session.record.key)
        self._flows.forget(session.record.key)
        self._kept.forget(session.record.key)

    def _write(self, settled: Settled) -> None:
        if settled.new or settled.changed:
            self._recorder.settle(settled.new, settled.changed)

    async def wait_for_answers(self, patience_s: float) -> None:
        """Wait until every request except subscriptions is answered, at most `patience_s` seconds."""
        end = time.monotonic() + patience_s
        while any(len(client.exchanges) > len(client.listens) for client in self._clients) and time.monotonic() < end:
            await asyncio.sleep(0.01)
        self._outbox.flush()

    def follow_config(self) -> None:
        """After a reload, give each client its profile as it is now; its policy is chosen again."""
        for client in self._clients:
            before = client.profile
            client.profile = self._config.profile(before.name, client.principal)
            for shown in client.lists():
                shown.policy = None
                if client.profile.policy != before.policy:
                    shown.first_policy = None

    # -- what clients can and want together

    def capabilities(self, era: Era) -> dict[str, Any]:
        """Return what we declare to an upstream: the capabilities of the one stdio client, or else all that any client
        may have. If a client then cannot answer a request, the request is refused as the client would refuse it."""
        client = self.only_client()
        if client is not None and client.transport == "stdio" and not client.is_shell:
            return translate.forwardable(client.capabilities)
        union: dict[str, Any] = {}
        # A shell has gone in a moment, and the server may serve others then.
        staying = [each for each in self._clients if not each.is_shell]
        for each in staying:
            union = translate.unite(union, translate.forwardable(each.capabilities))
        # Windows are mostly of one client: what none of them can is not promised.
        if staying and not self.serves_http:
            return union
        anything = translate.unite(union, translate.ANY_CLIENT)
        return {key: anything[key] for key in anything if key != "roots" or not self._may_be_several_people()}

    def warn(self, text: str) -> None:
        """Tell each legacy client that wants warnings something about foretool itself, once; "" takes it back."""
        for client in self:
            if client.warned != text and client.session is not None:
                client.warned = text
                if text and client.era == "legacy" and client.wants_log("warning"):
                    client.notify("", "notifications/message", {"level": "warning", "logger": "foretool", "data": text})

    def set_levels(self) -> None:
        """Set the log level of each upstream to the least severe one that any of its clients wants."""
        asking = [client for client in self._clients if client.log_level in LEVELS]
        for upstream in self._upstreams:
            levels = [each.log_level for each in asking if self._upstreams.admits(each.profile, upstream.name)]
            known = self._upstreams.capabilities(upstream.name)
            if levels and (known is None or "logging" in known):
                upstream.subscriptions.set_level(min(levels, key=LEVELS.index))

    def log_readers(self, upstream: Upstream, level: str) -> list[Client]:
        """Return the clients that may see a log entry which belongs to no known request.

        Modern clients get log entries only for their own requests. No client sees the work of another credential, or an
        upstream that its profile leaves out.
        """
        calling = {request.party for request in upstream.lines.told_of() if request.party is not None}
        readers = self.admitted(upstream.name)
        if calling:
            # The entry may belong to any of these calls, so all callers must have the same credential and profile.
            readers = [client for client in readers if client.log_level and {client.party} == calling]
        elif len({each.principal for each in readers} | {each.principal for each in upstream.lines.parties()}) > 1:
            return []  # it may tell of the work of somebody who has left
        return [client for client in readers if client.era == "legacy" and client.wants_log(level)]


def _named_beside(given: Exposure, all_given: Sequence[Exposure]) -> list[ToolId]:
    """Return what a list named besides the tools that it had."""
    return [tool for each in all_given if each.reason == "named" and each.at == given.at for tool in each.tools]


def _is_list(event: object) -> TypeGuard[Exposure]:
    """Return whether what a session was given is a list, and no text that names tools."""
    return isinstance(event, Exposure) and event.reason in _LISTS


class Announcements:
    """Collects changes of lists and tells the clients whose lists they change."""

    def __init__(self, clients: ClientRegistry, precedence: Precedence) -> None:
        """`precedence`: making lists goes before what servers list."""
        self._clients = clients
        self._precedence = precedence
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks("announcements")
        self._took_s = 0.0
        """How long the last check of the clients' lists took."""
        self._announced: set[str] = set()
        """Upstreams that have announced a change of their tools since clients were last told."""

    def relay(self, upstream: str) -> None:
        """Announce a change that an upstream has announced."""
        self._announced.add(upstream)
        self.soon()

    def soon(self) -> None:
        """Announce changes after a short pause."""
        if self._timer is None:
            # While hundreds of upstreams come up one by one, most of the time must not go into making lists.
            pause = max(_ANNOUNCE_S, min(_ANNOUNCE_SHARE * self._took_s, _ANNOUNCE_MOST_S))
            self._timer = asyncio.get_running_loop().call_later(pause, self._begin)

    def _begin(self) -> None:
        self._tasks.spawn(self._announce_prepared())

    async def _announce_prepared(self) -> None:
        """Make the lists of all clients in slices, then announce those that have changed."""
        started = time.perf_counter()
        try:
            with self._precedence.go_first():
                await self._prepare()
        finally:
            self.announce()
            self._took_s = time.perf_counter() - started

    async def _prepare(self) -> None:
        for client in self._clients:
            for shown in client.lists():
                if shown.view is not None and client in self._clients:
                    await in_slices(client.tools.prepare(shown))

    def announce(self) -> None:
        """Tell each client whose list differs from the one it was given. Clients that see everything are also told
        whenever an upstream has announced a change."""
        self._timer = None
        announced, self._announced = self._announced, set()
        relayed = [client for name in announced for client in self._clients.admitted(name)]
        for client in self._clients:
            if client.is_program:
                continue  # one gets its tools with each step, or none
            if client.tools.is_stale() or (client in relayed and client.tools.sees_all()):
                client.tools.announce()
