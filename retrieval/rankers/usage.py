"""Ranks by usage: among equals, tools that are used often and lately and servers in use come first.

Usage multiplies the score of the words by at most 1 + `HABIT` + `IN_USE`. So it never brings in a tool that shares no
word, and never lifts a tool over one whose words are clearly better. Without words, usage alone ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log1p

from foretool.storage.records import ToolId, Usage

MISS_WEIGHT = 3.0
"""How many calls one miss counts: the tool was needed and hidden."""
HALF_LIFE_S = 14 * 86_400.0
"""A tool that was last used this long ago counts half, in seconds."""
HABIT = 0.05
"""The share of its score that the most used tool gains."""
IN_USE = 0.05
"""The share of their score that the tools of a server in use gain."""


def decay_usage(usage: Usage, now: float, half_life_s: float) -> float:
    """Return the calls and misses of a tool, halved for every half-life since the last use."""
    age = max(now - usage.last_at, 0.0)
    return float((usage.calls + MISS_WEIGHT * usage.misses) * 0.5 ** (age / half_life_s))


def habits(usage: Mapping[ToolId, Usage], half_life_s: float = HALF_LIFE_S) -> dict[ToolId, float]:
    """Return how much each tool is used, from 0 to 1 for the most used; the time of the latest use stands for now."""
    now = max((each.last_at for each in usage.values()), default=0.0)
    amounts = {tool: log1p(decay_usage(each, now, half_life_s)) for tool, each in usage.items()}
    top = max(amounts.values(), default=0.0)
    return {tool: amount / top for tool, amount in amounts.items() if amount > 0.0}


def usage_shares(
    servers_in_use: Sequence[str],
    habit: Mapping[ToolId, float],
    slot_of: Mapping[ToolId, int],
    slots_of: Mapping[str, tuple[int, ...]],
) -> dict[int, float]:
    """Return what usage adds to each slot, as a share of what the words say; slots without a share are left out.
    `habit`: how much each tool is used, as `habits` says."""
    found = {slot_of[tool]: HABIT * amount for tool, amount in habit.items() if tool in slot_of}
    for server in set(servers_in_use):
        for slot in slots_of.get(server, ()):
            found[slot] = found.get(slot, 0.0) + IN_USE
    return found
