"""Orders matches that say much the same: copies never push other tools, or the original, out of an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from foretool.retrieval.ranking import Ranked
from foretool.server.methods.tool_lines import summarize
from foretool.storage.records import Tool, ToolId

ALIKE: Final = 0.8
"""If two tools of different servers share this part of their words, only the first is described."""
ALIKE_OF_ONE: Final = 4
"""So many tools of one server that say much the same stand before other servers' tools."""
MUCH_ALIKE: Final = 0.5
"""Tools of one server that share this part of their words say much the same; figures in names do not count."""
IN_USE: Final = "server in use"
"""The reason in a ranking (`retrieval.explanations`) that marks the tools of servers called lately."""


def thin(known: Sequence[tuple[Tool, Ranked]], asked: int, wanted: int) -> list[tuple[Tool, Ranked]]:
    """Return the first `wanted` tools, with what one server says too often behind everything else: its copies of a tool
    must not push the original out of the answer. The first `asked` tools stay."""
    kept, surplus = list(known[:asked]), list[tuple[Tool, Ranked]]()
    said: dict[str, list[tuple[frozenset[str], int]]] = {}
    for tool, ranked in known[asked:]:
        if len(kept) >= wanted:
            break
        own = said.setdefault(tool.upstream, [])
        words = frozenset(each for each in _words(tool.definition, tool.name, tool.upstream) if not each.isdigit())
        at = next((at for at, (other, _) in enumerate(own) if _are_alike(words, other, MUCH_ALIKE)), None)
        if at is None:
            own.append((words, 1))
        else:
            own[at] = (own[at][0], own[at][1] + 1)
        is_surplus = at is not None and own[at][1] > ALIKE_OF_ONE
        (surplus if is_surplus else kept).append((tool, ranked))
    return [*kept, *surplus][:wanted]


def group(
    known: Sequence[tuple[Tool, Ranked]], asked: int, count_older: Callable[[ToolId], int]
) -> tuple[list[tuple[Tool, Ranked]], dict[ToolId, ToolId]]:
    """Group tools of several servers that say nearly the same. Return the new order, and for each tool that need not be
    described the one that it is like. The first `asked` tools are not grouped.

    The tool that was there first is described and stands first: a newer one may be a copy made to take its place. Only
    where the newer one's server is in use does that one stand first, and then both are described.
    """
    order = list(known)
    like: dict[ToolId, ToolId] = {}
    words = {tool.id: _words(tool.definition, tool.name, tool.upstream) for tool, _ in order}
    for place in range(asked, len(order)):
        tool, ranked = order[place]
        alike = (one for one in range(asked, place) if _are_alike(words[order[one][0].id], words[tool.id]))
        first = next(alike, None)
        if first is None or order[first][0].id in like or order[first][0].upstream == tool.upstream:
            continue
        other, other_ranked = order[first]
        is_older = count_older(tool.id) < count_older(other.id)
        in_use = (IN_USE in ranked.reasons) - (IN_USE in other_ranked.reasons)
        if in_use > 0 or (is_older and in_use == 0):
            order[first], order[place] = order[place], order[first]
        older, newer = (tool, other) if is_older else (other, tool)
        if order[first][0] is older:
            like = {one: older.id if its == newer.id else its for one, its in like.items()}
            like[newer.id] = older.id
    return order, like


def _are_alike(one: frozenset[str], other: frozenset[str], part: float = ALIKE) -> bool:
    shared = len(one & other)
    return shared >= part * (len(one) + len(other) - shared) > 0


@lru_cache(maxsize=1024)
def _words(definition: bytes, name: str, upstream: str) -> frozenset[str]:
    """Return the words of a tool's name and summary, without those of its server's name."""
    from foretool.retrieval.words import terms

    return frozenset(terms(f"{name} {summarize(definition)}")).difference(terms(upstream))
