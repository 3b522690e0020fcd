"""Names tools that a list cannot define, in the definitions of the bridges that run them."""

from __future__ import annotations

from collections.abc import Sequence

from foretool.server.catalog import own_tools
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.names import CALL, CALL_WRITE
from foretool.server.catalog.signatures import signature, signature_tokens
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.trust.policy import Reach
from foretool.storage.records import ToolId


class NamedTools:
    """Knows what naming a tool of a catalog costs, and writes names into the definitions of our own tools."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def tokens(self, tool: ToolId) -> int:
        """Return the tokens of a tool's name with what its call needs; 0 if it cannot be named."""
        found = self._catalog.get(tool)
        return signature_tokens(found) if found is not None else 0

    def write(self, definitions: dict[ToolId, Raw], named: Sequence[ToolId], reach: Reach) -> None:
        """Name tools in the definitions of the bridges that run them for one profile."""
        found = [tool for one in named if (tool := self._catalog.get(one)) is not None and reach.finds(tool)]
        for bridge in (CALL, CALL_WRITE):
            calls = [signature(tool) for tool in found if reach.verdict(tool).bridge == bridge]
            if calls and bridge in definitions:
                definitions[bridge] = own_tools.name_tools(definitions[bridge], calls)
