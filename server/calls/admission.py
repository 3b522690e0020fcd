"""Lets a call through, asks the user first, or refuses it, as `trust.policy` decides."""

from __future__ import annotations

from msgspec.structs import replace

from foretool.server.calls.confirmation import Confirmation
from foretool.server.calls.tool_call import Refusal, ToolCall, describe_refused, refuse
from foretool.server.catalog.catalog import Catalog
from foretool.server.clients.exchange import Exchange
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.approvals import why_held
from foretool.server.trust.ledger import HELD
from foretool.server.trust.policy import Confirm, Decision, Reach, Refuse, TrustPolicy
from foretool.storage.records import Tool


class Admission:
    """Asks the policy about each call before anything is done with it."""

    def __init__(self, policy: TrustPolicy, catalog: Catalog, recorder: Recorder, confirmation: Confirmation) -> None:
        self._policy = policy
        self._catalog = catalog
        self._recorder = recorder
        self._confirmation = confirmation

    def reach(self, exchange: Exchange) -> Reach:
        """Return what the client of an exchange reaches."""
        return self._policy.reach(exchange.client.profile)

    def decide(self, call: ToolCall, tool: Tool) -> Refusal | Confirm | None:
        """Return why a call must not run, the question that the user has to answer before, or None if it may run."""
        exchange, decision = call.exchange, self._decide(call, tool)
        if isinstance(decision, Refuse):
            return self._refuse(call, tool, decision)
        if not isinstance(decision, Confirm) or exchange.own_session.has_agreed(tool):
            return None
        if self._confirmation.can_ask(exchange):
            return decision
        who = "it was not called on a terminal" if exchange.client.is_shell else "this client cannot ask"
        reason = f'the setting "confirm" ({decision.setting}) asks the user first, and {who}'
        change = f'set "confirm" to "never", or add {tool.name!r} to "allow" of server {tool.upstream!r}'
        refused = Refuse(decision.verdict, f"{reason}; only the user can change that", change)
        return self._refuse(call, tool, refused)

    def take_answer(self, call: ToolCall, tool: Tool, asked: Confirm, *, agreed: bool) -> Refusal | None:
        """Record the user's answer. Return why the call ends, None if it goes on: the tool may have changed while the
        question stood, and so may the rules."""
        if not agreed:
            return self.give_up(call, tool, f"{tool.id} was not run: the user did not agree")
        call.exchange.own_session.agree(tool)
        call.confirmed = tool
        return None

    def _decide(self, call: ToolCall, tool: Tool) -> Decision:
        decision = self._policy.reach(call.exchange.client.profile).decide(tool, call.asked)
        meant = call.confirmed or tool
        if (meant.upstream, meant.name) != (tool.upstream, tool.name):
            return Refuse(decision.verdict, "its name belongs to another tool by now")
        if tool.schema_hash == HELD and not (isinstance(decision, Refuse) and decision.hides):
            change = f"foretool review {tool.upstream}"
            return Refuse(decision.verdict, why_held(tool.upstream), change, hides=True)
        return decision

    def give_up(self, call: ToolCall, tool: Tool, text: str) -> Refusal:
        """Return why a call ends that no rule refuses."""
        exchange, at = call.exchange, self._recorder.now()
        missed = exchange.own_session.call_in_vain(tool, call.via, at, exchange.chat)
        return Refusal(text, missed, describe_refused(call, tool.id, tool.upstream, at, self._recorder))

    def _refuse(self, call: ToolCall, tool: Tool, refused: Refuse) -> Refusal:
        text = f"{tool.id} was not run: {refused.reason}"
        if not refused.change:
            return replace(self.give_up(call, tool, text), is_unknown=refused.hides)
        return refuse(call, tool.id, tool.upstream, "denied", refused.change, text, self._recorder, refused.hides)
