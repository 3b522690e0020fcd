"""Answers `tools/call`: our own two tools, and every other tool by its name or through `call_tool`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from foretool.server.catalog.names import CALL, DISCOVER, OWN
from foretool.server.clients.exchange import Exchange
from foretool.server.clients.session import Via
from foretool.server.methods.bridge import Bridge
from foretool.server.methods.discover_tools import DiscoverTools
from foretool.server.methods.tool_lookup import ToolLookup
from foretool.server.methods.tool_runner import ToolRunner
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw, RpcError
from foretool.storage.records import Era, Tool

NO_NAME: Final = 'call_tool: "name" is missing; say which tool to call'

OwnTool = Callable[[Exchange, Raw], None]


class ToolCalls:
    """Takes each call to whoever answers it."""

    def __init__(self, discover: DiscoverTools, lookup: ToolLookup, bridge: Bridge, runner: ToolRunner) -> None:
        self._discover = discover
        self._lookup = lookup
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
            exchange.tool_error(NO_NAME)
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
        if via == "name":
            self._lookup.find(exchange, name, via, lambda tool: self._runner.run(exchange, tool, via))
        else:
            self._lookup.find(exchange, name, via, lambda tool: self._bridge.check(exchange, tool, self._run_bridged))

    def _run_bridged(self, exchange: Exchange, tool: Tool) -> None:
        self._runner.run(exchange, tool, "bridge")
