"""The servers behind the proxy, the clients in front of it, and the lists that these get. Makes these parts, once.

`Offering` makes what clients are offered besides answers to calls: greetings, lists, prompts, resources, subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretool.server.catalog.models import last_run
from foretool.server.catalog.skill_folders import SkillFolders
from foretool.server.clients.exchange import Exchange, Outbox
from foretool.server.clients.kept_results import KeptResults
from foretool.server.clients.registry import Announcements, ClientRegistry
from foretool.server.config.loader import LiveConfig
from foretool.server.knowledge import Knowledge
from foretool.server.lists.epochs import ListKeeper
from foretool.server.lists.maker import ListInputs
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.greeting import Greeting
from foretool.server.methods.list_tools import HeldNotices, ListTools
from foretool.server.methods.long_results import LongResults, cuts_results
from foretool.server.methods.merged_lists import MergedLists
from foretool.server.methods.prompts import Prompts
from foretool.server.methods.resources import Resources
from foretool.server.methods.skills import Skills
from foretool.server.methods.subscriptions import Subscriptions
from foretool.server.protocol.lists import ListKind
from foretool.server.transports.guard import Job
from foretool.server.transports.tasks import Precedence, in_slices
from foretool.server.trust.policy import TrustPolicy
from foretool.server.upstreams.memory import UpstreamMemory
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.store import Store


class Parties:
    """The servers, the clients, and the lists between them."""

    def __init__(
        self, live: LiveConfig, store: Store, policy: TrustPolicy, known: Knowledge, outbox: Outbox,
        make_exchange: Callable[..., Exchange],
    ) -> None:  # fmt: skip
        self.upstreams = UpstreamRegistry(live, policy)
        self.memory = UpstreamMemory(store, known.catalog, self.upstreams, live)
        self.lists = ListKeeper(
            ListInputs(
                known.catalog, known.search, known.recorder, live, policy, lambda: last_run(store.artifacts),
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
        )

    def begin_epoch(self) -> None:
        """Make new lists, because other models serve or a learning run has ended."""
        self.lists.forget()
        self.announcements.soon()

    def advance_epoch(self) -> None:
        """Make new lists for profiles whose epoch is over."""
        if self.lists.advance():
            self.announcements.soon()

    def relist(self, person: str) -> None:
        """Make new lists for a person to whom a server has listed other tools."""
        self.lists.forget_person(person)
        self.announcements.soon()


class Offering:
    """Greetings, lists, prompts, resources and subscriptions."""

    def __init__(
        self, live: LiveConfig, known: Knowledge, parties: Parties, forwarder: Forwarder, results: LongResults,
        answer_step: Callable[[Exchange], None],
    ) -> None:  # fmt: skip
        """`answer_step` answers the prompt that asks for one step of an agent."""
        self._known = known
        self._parties = parties
        upstreams, clients = parties.upstreams, parties.clients
        self.notices = HeldNotices(clients, known.gatekeeper)
        self.greeting = Greeting(
            upstreams, known.catalog, clients, lambda: cuts_results(live.now),
            lambda client: self.skills.may_have_some(client),
        )  # fmt: skip
        self.merged = MergedLists(
            upstreams, clients, live, known.gatekeeper, parties.precedence, self._note_list_problems
        )
        self.skill_folders = SkillFolders(live)
        self.skills = Skills(upstreams, self.merged, forwarder, known.catalog, known.gatekeeper, self.skill_folders)
        self.resources = Resources(upstreams, self.merged, self.skills, known.catalog, results)
        self.prompts = Prompts(
            upstreams, self.merged, forwarder, known.catalog, self.resources, known.gatekeeper, answer_step
        )
        self.subscriptions = Subscriptions(upstreams, clients, self.resources, forwarder)
        self.tools = ListTools(upstreams, known.catalog, known.recorder.now, self.notices, parties.precedence)

    def _note_list_problems(self, upstream: Upstream, kind: ListKind, problems: Sequence[str]) -> None:
        self._known.catalog.note_problems(upstream.name, kind.noun, problems)
        self._parties.memory.save_state(upstream)
