"""Answers `tools/call`: our own tools, and every other tool by its name or through one of our two bridges.

`call_tool` runs what is read-only or what a rule allows, and `call_tool_write` everything. Both check arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from foretool.server.catalog.names import CALL, CALL_WRITE, CONNECT, DISCOVER, OWN, READ_MORE
from foretool.server.clients.exchange import Exchange
from foretool.server.clients.session import Via
from foretool.server.methods.admission import Admission
from foretool.server.methods.argument_check import ArgumentCheck
from foretool.server.methods.connecting import Connecting
from foretool.server.methods.discover_tools import DiscoverTools
from foretool.server.methods.discovery_arguments import MOST_NAME
from foretool.server.methods.long_results import LongResults
from foretool.server.methods.tool_lookup import ToolLookup
from foretool.server.methods.tool_runner import ToolRunner
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw, RpcError
from foretool.server.trust.policy import Asked, BridgeName
from foretool.storage.records import Era, Tool

MOST_SCHEMA: Final = 16_000
"""Characters of a schema that an error may quote."""

OwnTool = Callable[[Exchange, Raw], None]
Go = Callable[[Exchange, Tool], None]


class ToolCalls:
    """Takes each call to whoever answers it."""

    def __init__(
        self, discover: DiscoverTools, lookup: ToolLookup, admission: Admission, bridge: Bridge, runner: ToolRunner,
        results: LongResults, connecting: Connecting,
    ) -> None:  # fmt: skip
        self._discover = discover
        self._lookup = lookup
        self._results = results
        self._connecting = connecting
        self._own: Mapping[str, OwnTool] = {
            DISCOVER: discover.start,
            CALL: partial(self._unwrap, "call_tool"),
            CALL_WRITE: partial(self._unwrap, "call_tool_write"),
            READ_MORE: results.read_more,
            CONNECT: connecting.start,
        }

        def from_bridge(asked: BridgeName) -> Go:
            run = partial(admission.release, partial(runner.run_call, "bridge"), asked)
            # A refused call does not learn the schema, and nobody is asked about a call that cannot run.
            return partial(admission.admit, partial(bridge.check_call, run), asked)

        self._ways: Mapping[Asked, tuple[Via, Go]] = {
            "name": ("name", partial(admission.release, partial(runner.run_call, "name"), "name")),
            "call_tool": ("bridge", from_bridge("call_tool")),
            "call_tool_write": ("bridge", from_bridge("call_tool_write")),
        }

    def handlers(self, era: Era) -> dict[str, Any]:
        return {"tools/call": self.start}

    def start(self, exchange: Exchange) -> None:
        """Answer one `tools/call`. Raises `RpcError` for a request that is wrong in itself."""
        name = jsonrpc.text(exchange.params.get("name"))
        if name is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, "tools/call: name is missing")
        if len(name) > MOST_NAME:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"tools/call: {_too_long(name)}")
        if (own := self._own.get(name)) is not None:
            own(exchange, exchange.params.get("arguments", jsonrpc.EMPTY))
        else:
            self._call(exchange, name, "name")

    def _unwrap(self, bridge: BridgeName, exchange: Exchange, raw: Raw) -> None:
        """Take a call out of a bridge."""
        wrapped = jsonrpc.fields(raw)
        name = jsonrpc.text(wrapped.get("name"))
        arguments = wrapped.get("arguments", jsonrpc.EMPTY)
        if not name:
            exchange.tool_error(f'{bridge}: "name" is missing; say which tool to call')
        elif len(name) > MOST_NAME:
            exchange.tool_error(f"{bridge}: {_too_long(name)}")
        elif name == DISCOVER:
            self._discover.start(exchange, arguments)
        elif name == READ_MORE:
            self._results.read_more(exchange, arguments)
        elif name == CONNECT:
            self._connecting.start(exchange, arguments)
        elif name in OWN:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{bridge} cannot call {name}; name the tool to call")
        else:
            self._discover.join_conversation(exchange, jsonrpc.text(wrapped.get("handle")) or "")
            kept = {key: value for key, value in exchange.params.items() if key not in ("name", "arguments")}
            exchange.params = {**kept, "arguments": arguments}
            self._call(exchange, name, bridge)

    def _call(self, exchange: Exchange, name: str, asked: Asked) -> None:
        via, go = self._ways[asked]
        self._lookup.look_up(exchange, name, via, partial(go, exchange))


class Bridge:
    """Checks the arguments of a call that came through one of our bridges before it runs."""

    def __init__(self, arguments: ArgumentCheck) -> None:
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
        else:
            go(exchange, tool)


def _schema_text(tool: Tool) -> str:
    """Return the schema of a tool for the model that got its arguments wrong, or where to read it if it is long."""
    schema = bytes(jsonrpc.fields(tool.definition)["inputSchema"]).decode()
    if len(schema) <= MOST_SCHEMA:
        return f"inputSchema: {schema}"
    return f'Ask discover_tools(names=["{tool.id}"]) for its schema'


def _too_long(name: str) -> str:
    return f"expected a name of at most {MOST_NAME} characters, found {len(name):,}; discover_tools finds tools by task"
