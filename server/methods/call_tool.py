"""Answers `tools/call`: our own two tools, and every other tool by its name or through `call_tool`.

`call_tool` has two rules of its own: arguments must fit the schema, and hidden destructive tools need a yes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from foretool.server.catalog.catalog import annotation
from foretool.server.catalog.names import CALL, DISCOVER, OWN
from foretool.server.clients.exchange import Exchange
from foretool.server.clients.session import Via
from foretool.server.config.loader import LiveConfig
from foretool.server.methods.admission import Admission
from foretool.server.methods.argument_check import ArgumentCheck
from foretool.server.methods.discover_tools import DiscoverTools
from foretool.server.methods.server_requests import ServerRequests, refusal
from foretool.server.methods.tool_lookup import ToolLookup
from foretool.server.methods.tool_runner import ToolRunner
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, Message, Raw, RpcError
from foretool.storage.records import Era, Tool

MOST_SCHEMA: Final = 16_000
"""Characters of a schema that an error may quote."""

OwnTool = Callable[[Exchange, Raw], None]
Go = Callable[[Exchange, Tool], None]


class ToolCalls:
    """Takes each call to whoever answers it."""

    def __init__(
        self, discover: DiscoverTools, lookup: ToolLookup, admission: Admission, bridge: Bridge, runner: ToolRunner
    ) -> None:
        self._discover = discover
        self._lookup = lookup
        self._admission = admission
        self._bridge = bridge
        self._runner = runner
        self._own: Mapping[str, OwnTool] = {DISCOVER: discover.start, CALL: self._unwrap}

    def handlers(self, era: Era) -> dict[str, Any]:
        return {"tools/call": self.start}

    def start(self, exchange: Exchange) -> None:
        """Answer one `tools/call`. Raises `RpcError` for a request that is wrong in itself."""
        name = jsonrpc.text(exchange.params.get("name"))
        if name is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, "tools/call: name is missing")
        if (own := self._own.get(name)) is not None:
            own(exchange, exchange.params.get("arguments", jsonrpc.EMPTY))
        else:
            self._call(exchange, name, "name")

    def _unwrap(self, exchange: Exchange, raw: Raw) -> None:
        """Take a call out of `call_tool`."""
        wrapped = jsonrpc.fields(raw)
        name = jsonrpc.text(wrapped.get("name"))
        arguments = wrapped.get("arguments", jsonrpc.EMPTY)
        if not name:
            exchange.tool_error('call_tool: "name" is missing; say which tool to call')
        elif name == DISCOVER:
            self._discover.start(exchange, arguments)
        elif name in OWN:
            raise RpcError(jsonrpc.INVALID_PARAMS, "call_tool cannot call itself; name the tool to call")
        else:
            self._discover.join_conversation(exchange, jsonrpc.text(wrapped.get("handle")) or "")
            kept = {key: value for key, value in exchange.params.items() if key not in ("name", "arguments")}
            exchange.params = {**kept, "arguments": arguments}
            self._call(exchange, name, "bridge")

    def _call(self, exchange: Exchange, name: str, via: Via) -> None:
        run = partial(self._runner.run_call, via)
        go = run if via == "name" else partial(self._bridge.check_call, run)
        self._lookup.look_up(exchange, name, via, partial(self._admission.admit, go, exchange, via))


class Bridge:
    """Checks a call that came through `call_tool` before it runs."""

    def __init__(self, config: LiveConfig, server_requests: ServerRequests, arguments: ArgumentCheck) -> None:
        self._config = config
        self._server_requests = server_requests
        self._arguments = arguments

    def check_call(self, go: Go, exchange: Exchange, tool: Tool) -> None:
        """Call `go` with the exchange to answer, or answer with the reason that the call does not go on."""

        def on_checked(errors: list[str]) -> None:
            exchange.attempt(self._go_on, go, exchange, tool, errors)

        self._arguments.check(tool, exchange.params["arguments"], on_checked)

    def _go_on(self, go: Go, exchange: Exchange, tool: Tool, errors: list[str]) -> None:
        if errors:
            problem = "; ".join(errors)
            exchange.tool_error(f"the arguments of {tool.id} do not fit its schema: {problem}. {_schema_text(tool)}")
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

            self._server_requests.ask_client(exchange, "elicitation/create", jsonrpc.raw(params), on_answer)
        else:
            _refuse(exchange, tool, "call_tool does not pass tools marked destructive")


def _schema_text(tool: Tool) -> str:
    """Return the schema of a tool for the model that got its arguments wrong, or where to read it if it is long."""
    schema = bytes(jsonrpc.fields(tool.definition)["inputSchema"]).decode()
    if len(schema) <= MOST_SCHEMA:
        return f"inputSchema: {schema}"
    return f'Ask discover_tools(names=["{tool.id}"]) for its schema'


def _refuse(exchange: Exchange, tool: Tool, reason: str) -> None:
    way_out = f'pin it ("pin" of server {tool.upstream!r}) to have it listed, and call it by name'
    exchange.tool_error(f"{tool.id} was not run: {reason}; {way_out}")


def _has_accepted(answer: Message) -> bool:
    try:
        return answer.result is not UNSET and jsonrpc.text(jsonrpc.fields(answer.result).get("action")) == "accept"
    except ValueError:
        return False
