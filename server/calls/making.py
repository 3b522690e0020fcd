"""Makes the parts of this room."""

from __future__ import annotations

from collections.abc import Callable

from foretool.server.calls.admission import Admission
from foretool.server.calls.client_tasks import ClientTasks
from foretool.server.calls.confirmation import Confirmation
from foretool.server.calls.kept_calls import KeptCalls
from foretool.server.calls.long_calls import LongCalls
from foretool.server.calls.lookup import ToolLookup
from foretool.server.calls.runner import ToolRunner
from foretool.server.calls.tool_calls import OwnTool, ToolCalls
from foretool.server.calls.upstream_tasks import UpstreamTasks
from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import LiveConfig
from foretool.server.discovery.discover_tools import DiscoverTools
from foretool.server.hints.prediction import Predictor
from foretool.server.knowledge import Knowledge
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.long_results import LongResults
from foretool.server.methods.server_requests import ServerRequests
from foretool.server.methods.sign_in_links import SignInLinks
from foretool.server.parties import Parties
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.trust.policy import TrustPolicy
from foretool.server.upstreams.connection import Reply
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.store import Store


def make_tool_calls(
    live: LiveConfig, policy: TrustPolicy, known: Knowledge, parties: Parties, server_requests: ServerRequests,
    forwarder: Forwarder, links: SignInLinks, results: LongResults, predictor: Predictor, discovery: DiscoverTools,
    note_result: Callable[[str, Raw], None], at_end: Callable[[Callable[[], None]], None], connect: OwnTool,
    store: Store,
) -> ToolCalls:  # fmt: skip
    """`note_result`, `at_end`: as of `ToolRunner`. `connect` answers `connect_server`."""
    confirmation = Confirmation(live, server_requests)
    lookup = ToolLookup(known.catalog, parties.upstreams, forwarder, known.recorder, policy, known.gatekeeper)
    tasks = UpstreamTasks(forwarder, parties.upstreams, server_requests, lambda *given: give_task(*given))
    runner = ToolRunner(
        parties.upstreams, forwarder, known.recorder, known.flows, predictor, results, links, tasks, policy,
        note_result, at_end,
    )  # fmt: skip
    kept = KeptCalls(live, store, policy, parties.upstreams, known.recorder)
    long_calls = LongCalls(
        live, kept, parties.clients, known.catalog, runner, results, tasks, parties.upstreams, forwarder
    )  # fmt: skip
    client_tasks = ClientTasks(kept, forwarder, parties.upstreams)

    def give_task(exchange: Exchange, upstream: Upstream, reply: Reply) -> None:
        if (running := runner.describe(exchange)) is not None:
            client_tasks.give(exchange, upstream, reply, running)

    admission = Admission(policy, known.catalog, known.recorder, confirmation)
    return ToolCalls(
        discovery, lookup, admission, confirmation, runner, results, long_calls, client_tasks, connect,
        known.recorder, links,
    )  # fmt: skip
