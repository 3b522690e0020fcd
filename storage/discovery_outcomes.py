"""Works out from the log whether each discovery had found the tool that was needed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from foretool.storage.records import Discovery, DiscoveryOutcome, Need
from foretool.storage.stores import DiscoveryStore

FOLLOWS_S: Final = 1800.0
"""A need later than this has nothing to do with the discovery."""


def discovery_outcomes(log: DiscoveryStore, limit: int = 2000) -> list[DiscoveryOutcome]:
    """Return the outcomes of the latest `limit` discoveries, the oldest first. May raise `StorageError`.

    A tool that was called on behalf of a discovery was needed, at its rank. If none was called, and the same
    conversation searched again or called another hidden tool soon after, then the needed tool was not in the answer.
    Discoveries that nothing followed are left out: their outcome is unknown.
    """
    answered = log.answered(limit)[::-1]
    if not answered:
        return []
    oldest = min(each.at for each in answered)
    called = log.first_calls(answered[0].id, oldest)
    missed = _followed([each for each in answered if each.id not in called], log.needs(oldest))
    return [
        DiscoveryOutcome(each.at, each.probability, _rank(each, called.get(each.id)))
        for each in answered
        if each.id in called or each.id in missed
    ]


def _followed(discoveries: Iterable[Discovery], needs: Iterable[Need]) -> set[int]:
    """Return the ids of the discoveries after which their conversation soon needed another tool.

    Each is taken out as soon as that is known, so that many needs do not look at many discoveries.
    """
    pending: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for each in discoveries:
        pending.setdefault((each.session, each.handle), []).append((each.at, each.id))
    for own in pending.values():
        own.sort()
    found: set[int] = set()
    for need in needs:
        if own := pending.get((need.session, need.handle), []):
            soon_before = slice(bisect_left(own, (need.at - FOLLOWS_S,)), bisect_left(own, (need.at,)))
            found.update(id for _, id in own[soon_before])
            del own[soon_before]
    return found


def _rank(discovery: Discovery, tool: str | None) -> int | None:
    return next((match.rank for match in discovery.matches if match.tool == tool), None)
