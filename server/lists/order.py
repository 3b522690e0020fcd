"""Orders the tools of a catalog for lists that usage does not fill: by the priors that come with foretool.

A client waits for its list, so at most `MOST` tools compete, the tools of all servers in turn. Reading one takes
0.05 ms, and each definition is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from foretool.retrieval import priors
from foretool.retrieval.document import Fields, fields
from foretool.storage.records import Tool, ToolId
from foretool.storage.steps import Steps, finish

if TYPE_CHECKING:
    from foretool.server.catalog.catalog import Catalog

MOST: Final = 2000
"""How many tools compete. A list holds some 30 of them, and reading more would keep the first client waiting."""


class FirstTools:
    """Orders tools by how much they are needed before anything was called."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._read: dict[str, tuple[Fields, priors.Weight]] = {}
        """By hash of the definition; only of tools that competed for the last list."""
        self._ordered: tuple[list[Fields], priors.Needs | None] = ([], None)
        """The tools that competed last, and how much each is needed: lists of many budgets are tried one after the
        other."""
        self._key: tuple[int, Hashable] = (-1, None)
        """The version of the catalog and the key of `read`, when it was last done."""

    def forget(self) -> None:
        """Let other tools compete under the same key."""
        self._key = (-1, None)

    def order(self, competes: Callable[[Tool], bool], budget: int, key: Hashable = None) -> list[ToolId]:
        """Return the tools that compete for `budget` tokens, best first. `key` stands for which ones compete."""
        finish(self.read(competes, key))
        kept, needs = self._ordered
        return priors.shipped().order(kept, self._catalog.tokens, budget, needs)

    def read(self, competes: Callable[[Tool], bool], key: Hashable = None) -> Steps[None]:
        """Read the tools that compete, in steps. `order` with the same key then takes a few milliseconds."""
        now = (self._catalog.version, key)
        if key is not None and now == self._key:
            return
        kept: list[Fields] = []
        weights: list[priors.Weight] = []
        for tool in self._choose(competes):
            yield
            known, weight = self._judge(tool)
            kept.append(known)
            weights.append(weight)
            self._catalog.tokens(tool.id)
        yield
        if self._ordered[1] is None or kept != self._ordered[0]:
            self._ordered = kept, priors.shipped().weigh(kept, weights)
        self._key = now

    def _choose(self, competes: Callable[[Tool], bool]) -> list[Tool]:
        """Return the tools that compete: one of each server after the other."""
        servers = filter(None, map(self._catalog.in_order, self._catalog.upstreams()))
        ordered = sorted(servers, key=lambda tools: tools[0].id)
        return priors.take_turns([filter(competes, tools) for tools in ordered], MOST)

    def _judge(self, tool: Tool) -> tuple[Fields, priors.Weight]:
        """Read a definition; tools of two servers may share one."""
        if (known := self._read.get(tool.schema_hash)) is None:
            if len(self._read) >= 2 * MOST:
                self._read.clear()
            said = fields(tool)
            known = self._read[tool.schema_hash] = said, priors.shipped().judge(said)
        said, weight = known
        return (said if said.id == tool.id else replace(said, id=tool.id, upstream=tool.upstream)), weight
