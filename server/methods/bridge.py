"""The rules of `call_tool`: arguments must fit the schema, and hidden destructive tools need a yes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foretool.server.catalog.catalog import annotation
from foretool.server.clients.exchange import Exchange
from foretool.server.config.live import LiveConfig
from foretool.server.methods.schemas import argument_errors
from foretool.server.methods.server_requests import ServerRequests, refusal
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, Message
from foretool.storage.records import Tool

Go = Callable[[Exchange, Tool], None]


class Bridge:
    """Checks a call that came through `call_tool` before it goes on."""

    def __init__(self, config: LiveConfig, server_requests: ServerRequests) -> None:
        self._config = config
        self._server_requests = server_requests

    def check(self, exchange: Exchange, tool: Tool, go: Go) -> None:
        """Call `go` with the exchange to answer, or answer with the reason that the call does not go on."""
        schema = jsonrpc.plain(jsonrpc.fields(tool.definition)["inputSchema"])
        if errors := argument_errors(schema, jsonrpc.plain(exchange.params["arguments"])):
            wanted = jsonrpc.encode(schema).decode()
            problem = "; ".join(errors)
            exchange.tool_error(f"the arguments of {tool.id} do not fit its schema: {problem}. inputSchema: {wanted}")
        elif not exchange.own_session.sees(tool.id) and annotation(tool, "destructiveHint") is True:
            # Only a tool that says so itself: the protocol's default would make most tools destructive.
            self._confirm(exchange, tool, go)
        else:
            go(exchange, tool)

    def _confirm(self, exchange: Exchange, tool: Tool, go: Go) -> None:
        """Let the setting decide about a hidden destructive tool, or the user."""
        allowed = self._config.settings.bridge_destructive
        if allowed == "allow":
            go(exchange, tool)
        elif allowed == "ask" and refusal("elicitation/create", UNSET, exchange.client.declared(exchange)) is None:
            params: dict[str, Any] = {
                "message": f"{tool.id} is marked as destructive. Run it?",
                "requestedSchema": {"type": "object", "properties": {}},
            }

            def on_answer(at: Exchange, message: Message) -> None:
                at.params, at.chat = exchange.params, exchange.chat  # a modern client's retry is wrapped once more
                if _has_accepted(message):
                    go(at, tool)
                else:
                    _refuse(at, tool, "the user did not agree")

            self._server_requests.ask(exchange, "elicitation/create", jsonrpc.raw(params), on_answer)
        else:
            _refuse(exchange, tool, "call_tool does not pass tools marked destructive")


def _refuse(exchange: Exchange, tool: Tool, reason: str) -> None:
    way_out = f'pin it ("pin" of server {tool.upstream!r}) to have it listed, and call it by name'
    exchange.tool_error(f"{tool.id} was not run: {reason}; {way_out}")


def _has_accepted(answer: Message) -> bool:
    try:
        return answer.result is not UNSET and jsonrpc.text(jsonrpc.fields(answer.result).get("action")) == "accept"
    except ValueError:
        return False
