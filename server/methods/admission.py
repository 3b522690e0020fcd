"""Lets a call of a tool through or refuses it, as `trust.policy` decides, and records every refusal."""

from __future__ import annotations

from collections.abc import Callable

from foretool.server.clients.exchange import Exchange
from foretool.server.clients.session import Via
from foretool.server.methods.tool_lookup import answer_refusal, refused_call
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.gatekeeper import HELD
from foretool.server.trust.held_words import why_held
from foretool.server.trust.policy import Refuse, Run, TrustPolicy
from foretool.storage.records import Tool

Go = Callable[[Exchange, Tool], None]


class Admission:
    """Asks the policy about each call before anything is done with it."""

    def __init__(self, policy: TrustPolicy, recorder: Recorder) -> None:
        self._policy = policy
        self._recorder = recorder

    def admit(self, go: Go, exchange: Exchange, via: Via, tool: Tool) -> None:
        """Call `go` with the exchange and the tool, or answer with the reason that the call does not run."""
        decision = self._policy.reach(exchange.client.profile).decide(tool)
        if isinstance(decision, Run) and tool.schema_hash == HELD:
            decision = Refuse(decision.verdict, why_held(tool.upstream), f"foretool review {tool.upstream}")
        if isinstance(decision, Refuse):
            self._refuse(exchange, via, tool, decision)
        else:
            go(exchange, tool)

    def _refuse(self, exchange: Exchange, via: Via, tool: Tool, refusal: Refuse) -> None:
        call = refused_call(exchange, self._recorder, via, tool.id, tool.upstream)
        denied = exchange.own_session.denied
        misses = denied(tool, via, refusal.change, call.at, exchange.chat) if refusal.change else []
        self._recorder.call(call, misses)
        answer_refusal(exchange, via, f"{tool.id} was not run: {refusal.reason}")
