"""Lets a call through, asks the user first, or refuses it, as `trust.policy` decides, and records every refusal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from foretool.server.catalog.catalog import Catalog
from foretool.server.clients.exchange import Exchange
from foretool.server.clients.session import Via
from foretool.server.methods.confirmation import Confirmation
from foretool.server.methods.tool_lookup import answer_refusal, refused_call
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.gatekeeper import HELD
from foretool.server.trust.held_words import why_held
from foretool.server.trust.policy import Asked, Confirm, Decision, Refuse, TrustPolicy
from foretool.storage.records import Tool

Go = Callable[[Exchange, Tool], None]


class Admission:
    """Asks the policy about each call before anything is done with it."""

    def __init__(self, policy: TrustPolicy, catalog: Catalog, recorder: Recorder, confirmation: Confirmation) -> None:
        self._policy = policy
        self._catalog = catalog
        self._recorder = recorder
        self._confirmation = confirmation

    def admit(self, go: Go, asked: Asked, exchange: Exchange, tool: Tool) -> None:
        """Call `go` with the exchange and the tool, unless the call is refused."""
        decision = self._decide(exchange, tool, asked)
        if isinstance(decision, Refuse):
            self._refuse(exchange, asked, tool, decision)
        else:
            go(exchange, tool)

    def release(self, run: Go, asked: Asked, exchange: Exchange, tool: Tool) -> None:
        """Run a call, at once or after a yes. The config may have changed since `admit`, so this decides again."""
        decision = self._decide(exchange, tool, asked)
        if isinstance(decision, Refuse):
            self._refuse(exchange, asked, tool, decision)
        elif isinstance(decision, Confirm) and not exchange.own_session.has_agreed(tool):
            self._confirm(run, asked, exchange, tool, decision)
        else:
            run(exchange, tool)

    def _decide(self, exchange: Exchange, tool: Tool, asked: Asked) -> Decision:
        decision = self._policy.reach(exchange.client.profile).decide(tool, asked)
        if tool.schema_hash == HELD and not (isinstance(decision, Refuse) and decision.hides):
            change = f"foretool review {tool.upstream}"
            return Refuse(decision.verdict, why_held(tool.upstream), change, hides=True)
        return decision

    def _confirm(self, run: Go, asked: Asked, exchange: Exchange, tool: Tool, decision: Confirm) -> None:
        if not self._confirmation.can_ask(exchange):
            reason = f'the setting "confirm" ({decision.setting}) asks the user first, and this client cannot ask'
            change = f'set "confirm" to "never", or add {tool.name!r} to "allow" of server {tool.upstream!r}'
            self._refuse(
                exchange, asked, tool, Refuse(decision.verdict, f"{reason}; only the user can change that", change)
            )
            return
        self._confirmation.ask(exchange, tool, decision.verdict, partial(self._go_on, run, asked, tool, decision))

    def _go_on(self, run: Go, asked: Asked, tool: Tool, decision: Confirm, exchange: Exchange, agreed: bool) -> None:
        """Take in the user's answer. The tool may have changed while the question stood: then the rules decide again,
        and a changed definition is asked about again."""
        if not agreed:
            self._refuse(exchange, asked, tool, Refuse(decision.verdict, "the user did not agree"))
            return
        exchange.own_session.agree(tool)
        now = self._catalog.get(tool.id) or tool
        if (now.upstream, now.name) != (tool.upstream, tool.name):
            self._refuse(exchange, asked, tool, Refuse(decision.verdict, "its name belongs to another tool by now"))
            return
        self.release(run, asked, exchange, now)

    def _refuse(self, exchange: Exchange, asked: Asked, tool: Tool, refusal: Refuse) -> None:
        via: Via = "name" if asked in ("name", "page") else "bridge"
        call = refused_call(exchange, self._recorder, via, tool.id, tool.upstream)
        denied = exchange.own_session.denied
        misses = denied(tool, via, refusal.change, call.at, exchange.chat) if refusal.change else []
        self._recorder.call(call, misses)
        text = f"{tool.id} was not run: {refusal.reason}"
        if refusal.hides:
            answer_refusal(exchange, via, text)
        else:
            exchange.tool_error(text)
