"""The list prior: which tools the next task is likely to need before a word of it is known.

`foretool learn` keeps it as JSON, so that a list is made without loading any model. A budget is filled by need per
token: two small tools that are needed now and then may be worth more than a large one that is needed often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field

from foretool.retrieval.rankers.usage import decay_usage
from foretool.storage.records import ToolId, Usage

SIZE_PENALTY = 0.5
"""How much the size of a tool counts until that was learned (`docs/benchmarks.md`)."""
LEARNED = 0.7
"""What the learned need counts beside plain usage, which knows what happened since the last learning run."""


class Prior(Struct, frozen=True):
    """How much each tool is needed."""

    need: dict[ToolId, float] = {}
    """The share of the calls of a coming task; the shares add up to 1 at most."""
    size_penalty: float = field(default=SIZE_PENALTY, name="thrift")
    """How much the size of a tool counts against it: at 0 not at all, at 1 as need per token."""


def order(
    prior: Prior, usages: Iterable[Usage], tokens: Callable[[ToolId], int], now: float, half_life_s: float
) -> list[ToolId]:
    """Sort tools as they compete for a budget; equal tools come by name."""
    used = {each.tool: decay_usage(each, now, half_life_s) for each in usages}
    total = sum(used.values()) or 1.0
    worth = {
        tool: LEARNED * prior.need.get(tool, 0.0) + (1.0 - LEARNED) * used.get(tool, 0.0) / total
        for tool in {*prior.need, *used}
    }
    value = {tool: share / max(tokens(tool), 1) ** prior.size_penalty for tool, share in worth.items() if share > 0.0}
    return sorted(value, key=lambda tool: (-value[tool], tool))


def needs(episodes: Sequence[tuple[ToolId, ...]], half_life: float) -> dict[ToolId, float]:
    """Each tool's share of the calls of episodes, oldest first; one counts half after `half_life` later ones."""
    weight: dict[ToolId, float] = {}
    for age, calls in enumerate(reversed(episodes)):
        for tool in calls:
            weight[tool] = weight.get(tool, 0.0) + 0.5 ** (age / half_life)
    total = sum(weight.values()) or 1.0
    return {tool: each / total for tool, each in weight.items()}


def coverage(listed: Iterable[ToolId], episodes: Iterable[tuple[ToolId, ...]]) -> list[float]:
    """For each episode the share of its calls that listed tools receive; episodes without calls are left out."""
    shown = set(listed)
    return [sum(tool in shown for tool in calls) / len(calls) for calls in episodes if calls]


def make_prior(needs: Mapping[ToolId, float], size_penalty: float) -> Prior:
    """Make a prior of the tools that are needed at all, with shares of six digits."""
    return Prior({tool: round(share, 6) for tool, share in sorted(needs.items()) if share > 0.0}, size_penalty)
