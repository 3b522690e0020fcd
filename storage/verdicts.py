"""What came of discoveries: which of the tools found was called, or that none was and something else followed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from foretool.storage.records import Match, Verdict
from foretool.storage.store import Store

FOLLOWS_S: Final = 1800.0
"""What happens later than this has nothing to do with the answer."""

_DISCOVERIES: Final = """
    SELECT id, session, handle, at, probability, matches FROM discoveries
    WHERE at >= ? AND names = '[]' AND matches != '[]' ORDER BY id DESC LIMIT ?
"""
# Of each group SQLite takes the other columns from the row with the least id.
_CALLS: Final = "SELECT discovery, tool, min(id) FROM calls WHERE discovery >= ? AND at >= ? GROUP BY discovery"
_OTHERS: Final = """
    SELECT session, handle, at FROM discoveries WHERE at >= ? AND names = '[]'
    UNION ALL SELECT session, handle, at FROM calls WHERE at >= ? AND hidden = 1 AND discovery = 0
"""

_matches = msgspec.json.Decoder(list[Match])


def verdicts(store: Store, since: float = 0.0, limit: int = 2000) -> list[Verdict]:
    """The oldest first, of the latest `limit` discoveries. Those nothing followed are left out: nobody knows.

    A tool that was called in their name was needed, at its rank. Where none was, and the same conversation asked again
    or called another hidden tool soon after, what it needed was not in the answer. May raise `StorageError`.
    """
    return list(_told(store, since, limit))[::-1]


def _told(store: Store, since: float, limit: int) -> Iterator[Verdict]:
    rows = store.read(_DISCOVERIES, (since, limit))
    if not rows:
        return
    oldest = min(row[3] for row in rows)
    # `rows` is the newest first.
    called = {discovery: tool for discovery, tool, _ in store.read(_CALLS, (rows[-1][0], oldest))}
    open_ones: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for id, session, handle, at, *_ in reversed(rows):
        if id not in called:
            open_ones.setdefault((session, handle), []).append((at, id))
    followed = _followed(open_ones, store.read_each(_OTHERS, (oldest, oldest)))
    for id, _, _, at, probability, matches in rows:
        if id in called:
            yield Verdict(at, probability, _rank(matches, called[id]))
        elif id in followed:
            yield Verdict(at, probability, None)


def _followed(
    open_ones: dict[tuple[str, str], list[tuple[float, int]]], others: Iterable[tuple[str, str, float]]
) -> set[int]:
    """Those discoveries of a conversation, by time and id, that another need of it came soon after; each is taken out
    as soon as that is known, so that many needs do not look at many discoveries."""
    for theirs in open_ones.values():
        theirs.sort()
    found: set[int] = set()
    for session, handle, at in others:
        if theirs := open_ones.get((session, handle), []):
            soon_before = slice(bisect_left(theirs, (at - FOLLOWS_S,)), bisect_left(theirs, (at,)))
            found.update(id for _, id in theirs[soon_before])
            del theirs[soon_before]
    return found


def _rank(matches: Any, tool: str) -> int | None:
    return next((match.rank for match in _matches.decode(matches) if match.tool == tool), None)
