"""Lets a call of a tool through or refuses it, as `trust.policy` decides, and records every refusal."""

from __future__ import annotations

from collections.abc import Callable

from foretool.server.clients.exchange import Exchange
from foretool.server.clients.session import Via
from foretool.server.methods.tool_lookup import answer_refusal
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.policy import Refuse, TrustPolicy
from foretool.storage.records import Call, Tool

Go = Callable[[Exchange, Tool], None]


class Admission:
    """Asks the policy about each call before anything is done with it."""

    def __init__(self, policy: TrustPolicy, recorder: Recorder) -> None:
        self._policy = policy
        self._recorder = recorder

    def admit(self, go: Go, exchange: Exchange, via: Via, tool: Tool) -> None:
        """Call `go` with the exchange and the tool, or answer with the reason that the call does not run."""
        decision = self._policy.reach(exchange.client.profile).decide(tool)
        if isinstance(decision, Refuse):
            self._refuse(exchange, via, tool, decision)
        else:
            go(exchange, tool)

    def _refuse(self, exchange: Exchange, via: Via, tool: Tool, refusal: Refuse) -> None:
        session, chat, at = exchange.own_session, exchange.chat, self._recorder.now()
        call = Call(
            session=session.record.key,
            at=at,
            tool=tool.id,
            upstream=tool.upstream,
            via=via,
            hidden=not session.sees(tool.id),
            outcome="refused",
            took_ms=0.0,
            sent=False,
            arguments=self._recorder.describe_arguments(exchange.params.get("arguments")),
            handle=chat.handle if chat else "",
        )
        self._recorder.call(call, session.denied(tool, via, refusal.change, at, chat) if refusal.change else [])
        answer_refusal(exchange, via, f"{tool.id} was not run: {refusal.reason}")
