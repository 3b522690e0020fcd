"""What clients are offered besides answers to calls: greetings, lists, prompts, resources, subscriptions. Makes these
parts, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import LiveConfig
from foretool.server.knowledge import Knowledge
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.greeting import Greeting
from foretool.server.methods.list_tools import HeldNotices, ListTools
from foretool.server.methods.lists import MergedLists
from foretool.server.methods.long_results import LongResults, cuts_results
from foretool.server.methods.prompts import Prompts
from foretool.server.methods.resources import Resources
from foretool.server.methods.subscriptions import Subscriptions
from foretool.server.parties import Parties
from foretool.server.protocol.lists import ListKind
from foretool.server.upstreams.upstream import Upstream


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
        self.greeting = Greeting(upstreams, known.catalog, clients, lambda: cuts_results(live.now))
        self.merged = MergedLists(
            upstreams, clients, live, known.gatekeeper, parties.precedence, self._note_list_problems
        )
        self.resources = Resources(upstreams, self.merged, forwarder, known.catalog, results)
        self.prompts = Prompts(
            upstreams, self.merged, forwarder, known.catalog, self.resources, known.gatekeeper, answer_step
        )
        self.subscriptions = Subscriptions(upstreams, clients, self.resources, forwarder)
        self.tools = ListTools(upstreams, known.catalog, known.recorder.now, self.notices, parties.precedence)

    def _note_list_problems(self, upstream: Upstream, kind: ListKind, problems: Sequence[str]) -> None:
        self._known.catalog.note_problems(upstream.name, kind.noun, problems)
        self._parties.memory.save_state(upstream)
