"""Learns whether filling a list pays: do tools that nobody has used yet spare more turns than their tokens cost?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from msgspec import Struct

from foretool.retrieval.evaluation import interval
from foretool.retrieval.tokens import fill_budget
from foretool.storage.records import Episode, ToolId

HIDDEN_CALL: Final = 4_000.0
"""What a hidden call costs at most, in tokens: an answer of about 1,000, and a turn in which the model reads everything
again."""


class ListSize(Struct, frozen=True):
    """The tokens that a list may take."""

    tokens: Callable[[ToolId], int]
    whole: int
    """Of a list with our own tools."""
    own: int
    """Of our own tools."""

    @property
    def budget(self) -> int:
        """What is left for the tools of upstreams."""
        return max(self.whole - self.own, 0)


@dataclass(frozen=True)
class ListFill:
    """Replays lists that are filled with tools which are probably needed (`retrieval.priors`)."""

    size: ListSize
    first: Sequence[ToolId]
    """The tools that compete for what usage leaves, best first."""

    def gains(self, listed: Sequence[ToolId], later: Sequence[Episode]) -> list[float]:
        """Return for each later conversation the tokens that a filled list would have spared, less those it takes.

        A tool that is found once stays known, so each called tool counts once. [] if nothing fits beside `listed`.
        """
        left = self.size.budget - sum(map(self.size.tokens, listed))
        known = set(listed)
        added = set(fill_budget((tool for tool in self.first if tool not in known), self.size.tokens, left))
        if not added:
            return []
        cost = sum(map(self.size.tokens, added))
        called: dict[str, set[ToolId]] = {}
        for number, episode in enumerate(later):
            # An imported task is a conversation of its own; a key of the log is a session and a number.
            session = episode.key.rpartition(":")[0] if episode.source == "log" else f"import {number}"
            called.setdefault(session, set()).update(episode.calls)
        return [HIDDEN_CALL * len(added & tools) - cost for tools in called.values() if tools]


def judge(gains: Sequence[float], now: bool) -> tuple[bool, list[float]]:
    """Say whether lists are to be filled, with the mean gain between the ends of its 95 % interval; as `now` where the
    interval contains 0, or nothing was replayed."""
    if not gains:
        return now, []
    low, high = interval(gains)
    found = [round(each, 1) for each in (low, fmean(gains), high)]
    return (True if low > 0.0 else False if high < 0.0 else now), found
