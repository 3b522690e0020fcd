"""Learns for each client up to how many tokens a list of all tools costs it less than discoveries do.

A list that hides tools costs its own tokens and a price for each discovery; a list of all tools costs its tokens alone.
So what a client's conversations took, in the mean, is the size at which both cost the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from foretool.learning.results import MethodResult, Say, interval
from foretool.storage.records import ConversationCost
from foretool.storage.store import Store

HIDDEN_CALL: Final = 4_000.0
"""What a hidden call costs at most, in tokens: an answer of about 1,000, and a turn in which the model reads everything
again."""


_WHOLE: Final = "whole"
"""The name of this part of a run."""
LEAST: Final = 20
"""Conversations of a client from which its threshold is measured."""
MOST: Final = 200
"""Latest conversations of a client that count."""
_MOST_READ: Final = 5_000
MOST_TOKENS: Final = 16_000
"""The largest threshold, however much a client searches: some 100 tools. Longer lists make models choose worse."""


class Threshold(Struct, frozen=True):
    """Up to how many tokens listing all tools is cheaper for one client than discoveries, and what that was computed
    from."""

    client: str
    tokens: int
    conversations: int
    list_tokens: float
    discoveries: float
    """In the mean of a conversation."""


@dataclass(frozen=True)
class WholeLists:
    """Measures for each client up to how many tokens a list of all tools is cheaper than discoveries."""

    store: Store

    def learn(self, say: Say) -> MethodResult:
        """Measure the threshold of each client with enough conversations, and keep it in the client ledger. Other
        clients keep the one that they had."""
        say(_WHOLE, "adding up conversations", 0.0)
        before = {each.client: each.whole_tokens for each in self.store.clients.all()}
        found = list(measure_fill(self.store.sessions.conversations(_MOST_READ)))
        if not found:
            return MethodResult(_WHOLE, "skipped", f"no client has {LEAST} conversations whose list hid tools")
        for each in found:
            self.store.clients.set_whole(each.client, each.tokens)
        outcome = "promoted" if any(before.get(each.client) != each.tokens for each in found) else "kept"
        return MethodResult(_WHOLE, outcome, "; ".join(map(_describe, found)), {"clients": found})


def measure_fill(conversations: Sequence[ConversationCost]) -> Iterator[Threshold]:
    """Yield the threshold of each client that has enough conversations, of which the latest come first.

    The lower end of the 95 % interval counts, because a list of all tools is paid in every conversation.
    """
    of_client: dict[str, list[ConversationCost]] = {}
    for each in conversations:
        of_client.setdefault(each.client, []).append(each)
    for client, every in of_client.items():
        latest = every[:MOST]
        if not client or len(latest) < LEAST:
            continue
        low, _ = interval([each.list_tokens + HIDDEN_CALL * each.discoveries for each in latest])
        lists, searches = (sum(kind) / len(latest) for kind in zip(*map(_costs, latest), strict=True))
        yield Threshold(client, min(int(low), MOST_TOKENS), len(latest), round(lists, 1), round(searches, 3))


def _costs(each: ConversationCost) -> tuple[int, int]:
    return each.list_tokens, each.discoveries


def _describe(found: Threshold) -> str:
    return (
        f"{found.client}: all tools up to {found.tokens:,} tokens ({found.discoveries:.2f} discoveries and a list of"
        f" {found.list_tokens:,.0f} tokens a conversation, {found.conversations} conversations)"
    )
