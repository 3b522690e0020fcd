"""Reads misses as what training learns from: the words of a search, the tool that it was for, and what stood above it.

An episode joins all words of a task with all of its calls. A miss says which words were for which tool. Only misses of
searches are read, of those that showed the tool and of those that did not: others have no words that belong to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final

from foretool.storage.records import MissedNeed, MissFilter, ToolId
from foretool.storage.stores import Store

MOST: Final = 2_000
"""How many misses are read, the latest ones."""
SHOWN: Final = 5
"""How many tools that stood above the needed one are kept."""


def read_missed(
    store: Store,
    tools: Mapping[ToolId, object],
    people: Mapping[str, tuple[str, bool]] | None = None,
) -> list[MissedNeed]:
    """Return the needs that misses revealed, the oldest first; without tools that are gone, and without the sessions of
    `people` that may not be learned from."""
    latest = store.calls.find_misses(MissFilter(), MOST)
    misses = [each for each in latest if each.query and each.discovery and each.tool in tools]
    answers = {each.id: each for each in store.discoveries.answered(MOST)} if misses else {}
    found = []
    for each in reversed(misses):
        if people is not None and not people.get(each.session, ("", True))[1]:
            continue
        answer = answers.get(each.discovery)
        # A search that did not show the tool had all that it showed above it.
        least = each.rank or inf
        above = [match.tool for match in answer.matches if match.rank < least] if answer else []
        shown = tuple(tool for tool in above if tool in tools and tool != each.tool)[:SHOWN]
        found.append(MissedNeed(each.at, each.query, ToolId(each.tool), shown))
    return found
