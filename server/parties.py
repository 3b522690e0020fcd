"""The servers behind the proxy, the clients in front of it, and the lists that these get. Makes these parts, once."""

from __future__ import annotations

from collections.abc import Callable

from foretool.server.catalog.large_catalog import KeptWords
from foretool.server.catalog.models import LearnedLists
from foretool.server.clients.exchange import Exchange, Outbox
from foretool.server.clients.kept_results import KeptResults
from foretool.server.clients.registry import Announcements, ClientRegistry
from foretool.server.config.loader import LiveConfig
from foretool.server.knowledge import Knowledge
from foretool.server.lists.epochs import ListKeeper
from foretool.server.lists.maker import ListInputs
from foretool.server.transports.guard import Job
from foretool.server.transports.tasks import Precedence, in_slices
from foretool.server.trust.policy import TrustPolicy
from foretool.server.upstreams.memory import UpstreamMemory
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.storage.stores import Store


class Parties:
    """The servers, the clients, and the lists between them."""

    def __init__(
        self, live: LiveConfig, store: Store, policy: TrustPolicy, known: Knowledge, outbox: Outbox,
        make_exchange: Callable[..., Exchange],
    ) -> None:  # fmt: skip
        self.upstreams = UpstreamRegistry(live, policy)
        self.memory = UpstreamMemory(store, known.catalog, self.upstreams, live)
        self.kept_words = KeptWords(store.catalog, known.catalog, known.search, self.memory.digest_inputs)
        self.lists = ListKeeper(
            ListInputs(
                known.catalog, known.search, known.recorder, live, policy, LearnedLists(store), known.imported,
                self.upstreams.unlisted, self.upstreams.awaited,
            )
        )  # fmt: skip
        self.outbox = outbox
        self.kept_results = KeptResults()
        self.clients = ClientRegistry(
            live, self.upstreams, self.lists, known.recorder, known.flows, outbox, self.kept_results, make_exchange
        )
        self.precedence = Precedence()
        self.announcements = Announcements(self.clients, self.precedence)

    def jobs(self) -> tuple[Job, ...]:
        """Return what is to be done about once a second."""
        return (
            Job("states", self.memory.beat),
            Job("failures of servers", self.memory.failures.follow_others),
            Job("tools", lambda: in_slices(self.memory.save_refused())),
            Job("summary", lambda: in_slices(self.memory.summarize())),
            Job("words", lambda: in_slices(self.kept_words.save())),
        )

    def begin_epoch(self) -> None:
        """Make new lists, because other models serve or a learning run has ended."""
        self.lists.forget()
        self.announcements.soon()

    def advance_epoch(self) -> None:
        """Make new lists where their time has come."""
        if self.lists.advance():
            self.announcements.soon()

    def relist(self, person: str) -> None:
        """Make new lists for a person."""
        self.lists.forget_person(person)
        self.announcements.soon()
