"""Answers `tools/list`: the whole list of the client's session, on one page."""

from __future__ import annotations

from typing import Any, Final

from foretool.server.catalog.catalog import Catalog
from foretool.server.clients.exchange import Exchange
from foretool.server.clients.exposure import list_result
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import RpcError
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.storage.records import Era

TTL_MS: Final = 3_600_000
"""How long a modern client may cache our lists, unless a notification ends that earlier."""


class ListTools:
    """Lists tools once all upstreams have listed theirs, at the latest at the deadline for cold starts."""

    def __init__(self, upstreams: UpstreamRegistry, catalog: Catalog) -> None:
        self._upstreams = upstreams
        self._catalog = catalog

    def handlers(self, era: Era) -> dict[str, Any]:
        return {"tools/list": self.start}

    def start(self, exchange: Exchange) -> None:
        if "cursor" in exchange.params and jsonrpc.text(exchange.params["cursor"]) is not None:
            raise RpcError(jsonrpc.INVALID_PARAMS, "tools/list: unknown cursor; the whole list is one page")
        self._upstreams.when_listed(lambda: exchange.attempt(self._answer, exchange))

    def _answer(self, exchange: Exchange) -> None:
        session, tools = exchange.own_session, exchange.client.tools
        self._catalog.fix_names()
        exchange.result(list_result(tools.array(session), exchange.era, TTL_MS))
        tools.record(session, "list")
        tools.mark_listed()
