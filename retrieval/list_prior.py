"""Which tools the next task is likely to need, before a word of it is known: what `foretool learn` leaves for lists.

Worked out by learning and kept as JSON, so that a list is made without loading any model. A list under a budget is
filled by need per token: two small tools needed now and then may be worth more than a large one needed often. (For
lists that grow, the tools of whole tasks were tried instead, since one discovery brings in the others: no better.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec import Struct

from foretool.retrieval.rankers.usage import decayed
from foretool.storage.records import ToolId, Usage

THRIFT = 0.5
"""Unless learned otherwise. Share of later calls that 1,600 tokens of most used tools cover after 175 tasks of
ultratool / bfcl_multi_turn / mcpbench: .386 .540 .170 with 0, .431 .577 .221 with 0.5, .431 .580 .226 with 1."""
LEARNED = 0.7
"""What the learned need counts beside plain usage, which knows what happened since."""


class Prior(Struct, frozen=True):
    """Needs by tool."""

    need: dict[ToolId, float] = {}
    """Share of the calls of a coming task, adding up to 1 at most."""
    thrift: float = THRIFT
    """How much a tool's size counts: 0 not at all, 1 need per token."""


def dumps(prior: Prior) -> bytes:
    """As it is kept."""
    return msgspec.json.encode(prior)


def loads(data: bytes) -> Prior:
    """Raises `msgspec.MsgspecError` for bytes that are none."""
    return msgspec.json.decode(data, type=Prior)


def order(
    prior: Prior, usages: Iterable[Usage], tokens: Callable[[ToolId], int], now: float, half_life_s: float
) -> list[ToolId]:
    """Tools in the order in which they compete for a budget, of equals the first by name."""
    used = {each.tool: decayed(each, now, half_life_s) for each in usages}
    total = sum(used.values()) or 1.0
    worth = {
        tool: LEARNED * prior.need.get(tool, 0.0) + (1.0 - LEARNED) * used.get(tool, 0.0) / total
        for tool in {*prior.need, *used}
    }
    value = {tool: share / max(tokens(tool), 1) ** prior.thrift for tool, share in worth.items() if share > 0.0}
    return sorted(value, key=lambda tool: (-value[tool], tool))


def needs(episodes: Iterable[tuple[ToolId, ...]], half_life: float) -> dict[ToolId, float]:
    """Share of the calls that each tool is, of episodes oldest first; one counts half after `half_life` later ones."""
    weight: dict[ToolId, float] = {}
    held = list(episodes)
    for age, calls in enumerate(reversed(held)):
        for tool in calls:
            weight[tool] = weight.get(tool, 0.0) + 0.5 ** (age / half_life)
    total = sum(weight.values()) or 1.0
    return {tool: each / total for tool, each in weight.items()}


def coverage(listed: Iterable[ToolId], episodes: Iterable[tuple[ToolId, ...]]) -> list[float]:
    """Share of each episode's calls that are of listed tools; episodes without calls are left out."""
    shown = set(listed)
    return [sum(tool in shown for tool in calls) / len(calls) for calls in episodes if calls]


def learned_from(needs: Mapping[ToolId, float], thrift: float) -> Prior:
    """A prior of the tools that are needed at all, the share of each to six digits."""
    return Prior({tool: round(share, 6) for tool, share in sorted(needs.items()) if share > 0.0}, thrift)
