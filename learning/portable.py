"""Counts what the tasks on record say of tools, for a file that another store reads (`retrieval.portable_priors`).

No text, no argument and no result enters it. Where people called over HTTP, a tool or a pair of tools enters only if
at least three people used it, and the sessions of people who are not to be learned from stay out.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from foretool.learning.sampling import SampleLimits, read_sample
from foretool.learning.shared_words import People, choose_episodes, episode_session
from foretool.learning.timeline import rename_calls, trusted_tools
from foretool.retrieval.portable_priors import (
    MOST_FOLLOWED,
    MOST_PARAMETERS,
    MOST_TOOLS,
    Followed,
    ListFigures,
    PortablePriors,
    PriorTool,
    parameter_names,
)
from foretool.server.catalog.models import PRIOR
from foretool.server.lists.order import Prior
from foretool.storage.episodes import drop_calls
from foretool.storage.records import Episode, Tool, ToolId
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.server.catalog.catalog import Catalog

_COUNTED: Final = SampleLimits(tasks=20_000, calls=100_000, rare=2_000, read=100_000)
"""How much of the log is counted."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.:/@-]{1,128}")


def gather(store: Store, catalog: Catalog, least: int, now: float) -> PortablePriors:
    """Return what a store has learned. `least`: how many people have to stand behind a count where there are several.
    Raises `StorageError`."""
    tools = trusted_tools(store, catalog.tools())
    known = {tool.id: tool for tool in tools if _NAME.fullmatch(tool.upstream) and _NAME.fullmatch(tool.name)}
    imported, logged = read_sample(store, now, known, _COUNTED)
    people = store.sessions.people()
    least = least if any(person for person, _ in people.values()) else 1
    chosen = rename_calls([*imported, *choose_episodes(logged, people)], catalog.find)
    episodes = drop_calls([each for each in chosen if each.calls], known)
    counts = Counts(least)
    for each in episodes:
        counts.add(each, _person(each, people))
    return _write(counts, known, len(episodes), _list_figures(store), now)


def _person(episode: Episode, people: People) -> str:
    return people.get(episode_session(episode), ("", True))[0] if episode.source == "log" else ""


class Counts:
    """How often tools were called, followed each other, and ended a task, and by whom."""

    def __init__(self, least: int) -> None:
        """`least`: fewer people do not make a count."""
        self.least = max(least, 1)
        self._calls: Counter[ToolId] = Counter()
        self._ended: Counter[ToolId] = Counter()
        self._pairs: Counter[tuple[ToolId, ToolId]] = Counter()
        self._people: dict[object, set[str]] = defaultdict(set)

    def add(self, episode: Episode, person: str) -> None:
        """Count one task of a person."""
        for tool in episode.calls:
            self._calls[tool] += 1
            self._people[tool].add(person)
        for pair in pairwise(episode.calls):
            self._pairs[pair] += 1
            self._people[pair].add(person)
        if episode.ended:
            last = episode.calls[-1]
            self._ended[last] += 1
            self._people[last, None].add(person)

    def calls(self) -> dict[ToolId, int]:
        """Return the calls of each tool that enough people used, the most used first."""
        return {tool: count for tool, count in self._calls.most_common() if self._is_shared(tool)}

    def ended(self, tool: ToolId) -> int:
        """Return how many tasks a tool ended; 0 if too few people did so."""
        return self._ended[tool] if self._is_shared((tool, None)) else 0

    def pairs(self) -> dict[tuple[ToolId, ToolId], int]:
        """Return how often enough people called one tool right after another one, the most frequent first."""
        return {pair: count for pair, count in self._pairs.most_common() if self._is_shared(pair)}

    def _is_shared(self, what: object) -> bool:
        return len(self._people.get(what, ())) >= self.least


def _write(
    counts: Counts, known: Mapping[ToolId, Tool], tasks: int, lists: ListFigures | None, now: float
) -> PortablePriors:
    calls = dict(list(counts.calls().items())[:MOST_TOOLS])
    place = {tool: number for number, tool in enumerate(calls)}
    followed = [
        Followed(place[before], place[after], times)
        for (before, after), times in counts.pairs().items()
        if before in place and after in place
    ]
    tools = tuple(
        PriorTool(each.upstream, each.name, _parameters(each), count, counts.ended(tool))
        for tool, count in calls.items()
        for each in (known[tool],)
    )
    day = time.strftime("%Y-%m-%d", time.gmtime(now))
    return PortablePriors("foretool-priors", 1, day, counts.least, tasks, tools, tuple(followed[:MOST_FOLLOWED]), lists)


def _parameters(tool: Tool) -> tuple[str, ...]:
    names: Sequence[str] = parameter_names(tool.definition)
    return tuple(name for name in names if _NAME.fullmatch(name))[:MOST_PARAMETERS]


def _list_figures(store: Store) -> ListFigures | None:
    """Return what was learned about lists and is in use."""
    for _, data in store.artifacts.load_intact(PRIOR):
        try:
            prior = msgspec.json.decode(data, type=Prior)
        except msgspec.MsgspecError:
            continue
        return ListFigures(min(max(prior.size_penalty, 0.0), 1.0), prior.fill)
    return None
