"""Names tools that a list cannot define, in the definitions of the bridges that run them."""

from __future__ import annotations

from collections.abc import Sequence

from foretool.retrieval.list_rules import BETWEEN, NameCost
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.names import CALL, CALL_WRITE
from foretool.server.catalog.signatures import name_cost, signature
from foretool.server.lists import own_tools
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.trust.policy import Reach
from foretool.storage.records import ToolId


class NamedTools:
    """Knows what naming a tool of a catalog costs, and writes names into the definitions of our own tools."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def cost(self, tool: ToolId) -> NameCost:
        """Return the tokens of a tool's name with what its call needs."""
        found = self._catalog.get(tool)
        return name_cost(found) if found is not None else NameCost()

    def tokens(self, named: Sequence[ToolId]) -> int:
        """Return the tokens of naming all of these."""
        costs = list(map(self.cost, named))
        shared = {each.group: each.shared for each in costs}
        return sum(shared.values()) + sum(each.own + BETWEEN for each in costs if each.own)

    def write(self, definitions: dict[ToolId, Raw], named: Sequence[ToolId], reach: Reach) -> None:
        """Name tools in the definitions of the bridges that run them for one profile."""
        found = [tool for one in named if (tool := self._catalog.get(one)) is not None and reach.finds(tool)]
        for bridge in (CALL, CALL_WRITE):
            calls = [signature(tool) for tool in found if reach.verdict(tool).bridge == bridge]
            if calls and bridge in definitions:
                definitions[bridge] = own_tools.name_tools(definitions[bridge], calls)
