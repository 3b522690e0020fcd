"""Says which tools come first: the order in which they compete for a list, and what a list gains when it grows.

The order is by use per token: two small tools that are needed now and then may be worth more than a large one that is
needed often. While nothing was used, `FirstTools` asks the priors that come with foretool.

A list grows after a search or a prediction by a few of the best tools (`GrowthRule`). This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval import priors
from foretool.retrieval.document import Fields, definition_fields
from foretool.retrieval.rankers.usage import decay_usage
from foretool.retrieval.ranking import Ranked
from foretool.retrieval.tokens import fill_budget
from foretool.storage.records import Tool, ToolId, Usage
from foretool.storage.steps import Steps, finish

if TYPE_CHECKING:
    from foretool.server.catalog.catalog import Catalog

_SIZE_PENALTY: Final = 0.5
"""How much the size of a tool counts against it: at 0 not at all, at 1 as use per token."""
_BETWEEN: Final = 2
"""Tokens between two names."""
BASE_SHARE: Final = 0.5
"""The most of its tokens that a list defines tools with where it also names tools, or keeps tokens for what it
gains."""
GAINED_SHARE: Final = 0.075
"""The share of its tokens that a growing list keeps free where it names tools. Names need the rest
(`docs/decisions/0023-names-in-the-list.md`)."""
_PAYS: Final = 0.25
"""The least share of all calls from which the definition of a tool pays where it could be named: with two calls a task,
that is every second task. A definition takes ten times the tokens of a name and spares one wrong call in twenty, and
models call what is defined for other things as well."""
_DOUBT: Final = 8.0
"""Calls of other tools that are added to all calls, because a few say little of what is called in every second task."""
DEPTH: Final = 20
"""How many tools of a ranking may be listed."""
_LEAST_NEXT: Final = 0.15
"""The least probability of a predicted tool for which a list grows after a call, because listing again costs time."""
_MOST_NEXT: Final = 4
"""How many tools one prediction adds."""
MOST_FOUND: Final = 6
"""How many matches a prompt adds, and a discovery once models rank, because the ranking is sharper then."""
MOST: Final = 2000
"""How many tools compete before anything was called. A list holds some 30 of them, and reading one takes .05 ms while
the first client waits."""

Tokens = Callable[[ToolId], int]


# By use


def order_by_use(usages: Iterable[Usage], tokens: Tokens, now: float, half_life_s: float) -> list[ToolId]:
    """Sort tools by use for their size, the order in which they compete for a budget; equal tools by name."""
    used = {each.tool: decay_usage(each, now, half_life_s) for each in usages}
    value = {tool: count / max(tokens(tool), 1) ** _SIZE_PENALTY for tool, count in used.items() if count > 0.0}
    return sorted(value, key=lambda tool: (-value[tool], tool))


def most_used(usages: Iterable[Usage], now: float, half_life_s: float) -> frozenset[ToolId]:
    """Return the tools that are called so often that their definitions pay; four at most."""
    used = {each.tool: decay_usage(replace(each, misses=0), now, half_life_s) for each in usages}
    least = _PAYS * (sum(used.values()) + _DOUBT)
    return frozenset(tool for tool, count in used.items() if count >= least)


# Names of tools that a list does not define


class NameCost(NamedTuple):
    """How many tokens a tool's name takes in a text that names many tools."""

    group: str = ""
    """What it shares with others, which is written once."""
    shared: int = 0
    """Tokens of that."""
    own: int = 0
    """Tokens of the rest; 0 for a tool that cannot be named."""


def fill_names(order: Iterable[ToolId], cost: Callable[[ToolId], NameCost], left: int) -> tuple[list[ToolId], int]:
    """Choose tools to name, in their order, while `left` tokens last. Returns them and the tokens left over. A name
    that does not fit is passed over, as in `fill_budget`."""
    named: list[ToolId] = []
    begun: set[str] = set()
    for tool in order:
        group, shared, own = cost(tool)
        whole = own + _BETWEEN + (shared if group not in begun else 0)
        if own and whole <= left:
            named.append(tool)
            begun.add(group)
            left -= whole
    return named, left


class ListBudget(NamedTuple):
    """The tokens of a list for tools beside our own and pinned ones, and which of them are for names."""

    tokens: Tokens
    name_cost: Callable[[ToolId], NameCost] | None
    """None where the list names nothing."""
    left: int
    for_definitions: int
    """Of `left`, before anything is named."""
    kept_free: int = 0
    """Of `left`, for tools that the list gains."""

    def split(self, to_define: Sequence[ToolId], to_name: Sequence[ToolId] = ()) -> tuple[list[ToolId], list[ToolId]]:
        """Return the tools that the list defines, and those that it only names, each in the order in which they
        compete; a tool may compete for both. What names leave is for what the list gains, or if it gains nothing for
        further definitions."""
        defined = fill_budget(to_define, self.tokens, self.for_definitions)
        if self.name_cost is None:
            return defined, []
        shown = set(defined)
        left = self.left - self.kept_free - sum(map(self.tokens, defined))
        named, left = fill_names((tool for tool in to_name if tool not in shown), self.name_cost, left)
        if self.kept_free:
            return defined, named
        more = fill_budget((tool for tool in to_define if tool not in shown), self.tokens, left)
        return [*defined, *more], [tool for tool in named if tool not in more]


# What a list gains


class Prediction(NamedTuple):
    """The tools that are likely to be called next."""

    chances: Mapping[ToolId, float]
    """The probability of each tool, the likeliest first."""
    end: float
    """The probability that the task is done."""

    @property
    def goes_on(self) -> bool:
        """Whether a call of some tool is likelier than the end of the task."""
        return next(iter(self.chances.values()), 0.0) > self.end


class GrowthRule(Struct, frozen=True):
    """Chooses the tools that a list gains. `is_sure`: whether the tools that were found probably suffice
    (`confidence`)."""

    most_found: int | None = MOST_FOUND
    """How many matches a discovery adds; None adds all of them, which is right without models."""

    def for_prompt(self, ranked: Sequence[Ranked], is_sure: bool) -> list[ToolId]:
        return [each.tool for each in ranked[:MOST_FOUND]] if is_sure else []

    def for_discovery(self, ranked: Sequence[Ranked], is_sure: bool) -> list[ToolId]:
        return [each.tool for each in ranked[: self.most_found]] if is_sure else []

    def for_next(self, chances: Mapping[ToolId, float], goes_on: bool) -> list[ToolId]:
        """Return the hidden tools that are likely enough to be called next; none unless the task `goes_on`."""
        return [tool for tool, chance in chances.items() if chance >= _LEAST_NEXT][:_MOST_NEXT] if goes_on else []


# Before anything was called


class FirstTools:
    """Orders tools by how much they are probably needed, before any call is on record."""

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
        """Forget the orders, because other tools may compete under the same key."""
        self._key = (-1, None)

    def order(self, competes: Callable[[Tool], bool], budget: int, key: Hashable = None) -> list[ToolId]:
        """Return the tools that compete for `budget` tokens, best first. `key` stands for which ones compete."""
        finish(self.read(competes, key))
        kept, needs = self._ordered
        return priors.shipped().order(kept, self._catalog.tokens, budget, needs)

    def order_names(self, competes: Callable[[Tool], bool], key: Hashable = None) -> list[ToolId]:
        """Return the tools that compete in the order in which a list names them."""
        finish(self.read(competes, key))
        return priors.shipped().order_names(*self._ordered)

    def read(self, competes: Callable[[Tool], bool], key: Hashable = None) -> Steps[None]:
        """Read the tools that compete, in steps. `order` with the same key then takes a few milliseconds."""
        now = (self._catalog.version, key)
        if key is not None and now == self._key:
            return
        kept: list[Fields] = []
        weights: list[priors.Weight] = []
        seen: set[str] = set()
        copies: set[ToolId] = set()
        for tool in self._choose(competes):
            yield
            known, weight = self._judge(tool)
            kept.append(known)
            weights.append(weight)
            if tool.schema_hash in seen:
                copies.add(tool.id)
            seen.add(tool.schema_hash)
            self._catalog.tokens(tool.id)
        yield
        if self._ordered[1] is None or kept != self._ordered[0]:
            self._ordered = kept, priors.shipped().weigh(kept, weights, copies)
        self._key = now

    def _choose(self, competes: Callable[[Tool], bool]) -> list[Tool]:
        """Return the tools that compete: one of each server after the other."""
        servers = filter(None, (server.in_order for server in self._catalog.now.servers.values()))
        ordered = sorted(servers, key=lambda tools: tools[0].id)
        return priors.take_turns([filter(competes, tools) for tools in ordered], MOST)

    def _judge(self, tool: Tool) -> tuple[Fields, priors.Weight]:
        """Read a definition; tools of two servers may share one."""
        if (known := self._read.get(tool.schema_hash)) is None:
            if len(self._read) >= 2 * MOST:
                self._read.clear()
            said = definition_fields(tool)
            known = self._read[tool.schema_hash] = said, priors.shipped().judge(said, tool.definition)
        said, weight = known
        return (said if said.id == tool.id else replace(said, id=tool.id, upstream=tool.upstream)), weight
