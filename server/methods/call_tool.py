"""Answers `tools/call`: our own tools, and every other tool by its name or through one of our two bridges.

`call_tool` runs what is read-only or what a rule allows, and `call_tool_write` everything. Both repair arguments whose
meaning is plain. Tools that are called by their own names get them as they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from foretool.server.catalog.names import CALL, CALL_WRITE, CONNECT, DISCOVER, READ_MORE
from foretool.server.clients.exchange import Exchange
from foretool.server.methods.admission import Admission
from foretool.server.methods.bridged_calls import BridgedCall, open_object, read_call
from foretool.server.methods.connecting import Connecting
from foretool.server.methods.discover_tools import DiscoverTools
from foretool.server.methods.discovery_arguments import MOST_NAME
from foretool.server.methods.long_results import LongResults
from foretool.server.methods.plain_schemas import trim, without_noise
from foretool.server.methods.schema_fit import fit
from foretool.server.methods.tool_lookup import ToolLookup
from foretool.server.methods.tool_runner import ToolRunner
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw, RpcError
from foretool.server.trust.policy import Asked, BridgeName
from foretool.storage.records import Era, Tool

MOST_SCHEMA: Final = 4_000
"""Characters of a schema that an answer about wrong arguments quotes whole; a longer one is trimmed."""

OwnTool = Callable[[Exchange, Raw], None]
Go = Callable[[Exchange, Tool], None]


class ToolCalls:
    """Takes each call to whoever answers it."""

    def __init__(
        self, discover: DiscoverTools, lookup: ToolLookup, admission: Admission, runner: ToolRunner,
        results: LongResults, connecting: Connecting,
    ) -> None:  # fmt: skip
        self._discover = discover
        self._lookup = lookup
        self._admission = admission
        self._runner = runner
        self._results = results
        self._connecting = connecting
        self._own: Mapping[str, OwnTool] = {
            DISCOVER: discover.start,
            CALL: partial(self._unwrap, "call_tool"),
            CALL_WRITE: partial(self._unwrap, "call_tool_write"),
            READ_MORE: results.read_more,
            CONNECT: connecting.start,
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
            own(exchange, open_object(exchange.params.get("arguments", jsonrpc.EMPTY)))
        else:
            asked: Asked = "page" if exchange.own_session.list.shows_pages else "name"
            run = partial(self._admission.release, partial(self._runner.run_call, "name"), asked)
            self._lookup.look_up(exchange, name, "name", partial(run, exchange))

    def _unwrap(self, bridge: BridgeName, exchange: Exchange, raw: Raw) -> None:
        """Take a call out of a bridge."""
        call = read_call(raw)
        if not call.name:
            exchange.tool_error(f'{bridge}: "name" is missing; say which tool to call')
        elif len(call.name) > MOST_NAME:
            exchange.tool_error(f"{bridge}: {_too_long(call.name)}")
        elif call.name in (CALL, CALL_WRITE):
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{bridge} cannot call {call.name}; name the tool to call")
        elif (own := self._own.get(call.name)) is not None:
            own(exchange, call.own_arguments)
        else:
            self._discover.join_conversation(exchange, call.handle)
            kept = {key: value for key, value in exchange.params.items() if key not in ("name", "arguments")}
            exchange.params = {**kept, "arguments": call.given or jsonrpc.EMPTY}
            run = partial(self._admission.release, partial(self._runner.run_call, "bridge"), bridge)
            # A refused call does not learn the schema, and nobody is asked about a call that cannot run.
            admit = partial(self._admission.admit, partial(_fit_arguments, call, run), bridge)
            self._lookup.look_up(exchange, call.name, "bridge", partial(admit, exchange))


def _fit_arguments(call: BridgedCall, go: Go, exchange: Exchange, tool: Tool) -> None:
    """Call `go` with the arguments as the schema of the tool has them, or say why no server would accept them."""
    schema = jsonrpc.plain_object(jsonrpc.fields(tool.definition).get("inputSchema")) or {}
    arguments = call.arguments(schema)
    if jsonrpc.kind_of(arguments) != "object":
        text = "a text" if jsonrpc.kind_of(arguments) == "string" else bytes(memoryview(arguments)[:60]).decode()
        problem = f'"arguments": expected an object, found {text}'
        exchange.tool_error(f"{_say_misfit(tool, problem)}; write them as an object. {_quote_schema(tool, schema)}")
        return
    fitted = fit(schema, arguments)
    if fitted.refusal:
        problem = f"{_say_misfit(tool, fitted.refusal)}; correct that and call again. {_quote_schema(tool, schema)}"
        exchange.tool_error(problem)
        return
    exchange.params["arguments"] = fitted.arguments
    if fitted.doubts:
        exchange.doubt = f"{_say_misfit(tool, '; '.join(fitted.doubts))}. {_quote_schema(tool, schema)}"
    go(exchange, tool)


def _say_misfit(tool: Tool, problem: str) -> str:
    return f"the arguments of {tool.id} do not fit its schema: {problem}"


def _quote_schema(tool: Tool, schema: dict[str, Any]) -> str:
    """Return a schema for the model that got the arguments wrong, cut to what fits `MOST_SCHEMA`."""
    plain = without_noise(schema)
    for cut in (plain, trim(plain), trim(plain, depth=1)):
        written = jsonrpc.encode(cut).decode()
        if len(written) <= MOST_SCHEMA:
            more = "" if cut is plain else f' discover_tools(names=["{tool.id}"]) shows the whole schema.'
            return f"inputSchema: {written}{more}"
    return f'discover_tools(names=["{tool.id}"]) shows its schema.'


def _too_long(name: str) -> str:
    return f"expected a name of at most {MOST_NAME} characters, found {len(name):,}; discover_tools finds tools by task"
