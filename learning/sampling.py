"""Chooses the tasks that learning reads, so that a run costs the same however long the log is.

Most of them are the latest tasks. Beside these stand older tasks of the tools that the latest ones hardly use, so that
a rare tool is not forgotten. The same log gives the same choice, so most tasks are the same from run to run.

What too few people have said is taken out of the tasks before anything is learned from them for all. A model keeps
words: the terms of its vocabulary stand in it as they are. So a word enters a training only if at least three people
have used it, and the tasks of sessions that may not be learned from stay out as a whole. Where nobody called over HTTP
there is one user, and nothing is taken out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.storage.episodes import read_episodes, read_episodes_between
from foretool.storage.records import Episode, MissedNeed, ToolId
from foretool.storage.store import Store

_AROUND: Final = 60
"""Calls before and after one of a rare tool that are read for its task."""
People = Mapping[str, tuple[str, bool]]
"""By session: whose it is, and whether it may be learned from."""
Clean = Callable[[str], str]

_WORD = re.compile(r"\w+")


class SampleLimits(Struct, frozen=True):
    """How many calls are read from the log, and how many tasks are chosen from them."""

    tasks: int = 2_400
    """The latest tasks at most."""
    calls: int = 9_000
    """Calls of the latest tasks at most; a task has at most 64."""
    rare: int = 600
    """Older tasks at most."""
    of_tool: int = 8
    """Tasks of each tool that are wanted."""
    read: int = 24_000
    """Latest calls that are read."""
    searched: int = 2_000_000
    """Calls before them among which those of rare tools are looked for."""


LIMITS: Final = SampleLimits()


def read_sample(
    store: Store, now: float, tools: Mapping[ToolId, object], limits: SampleLimits = LIMITS
) -> tuple[list[Episode], list[Episode]]:
    """Return the chosen imported episodes and the chosen ones of the log, each the oldest first. Calls of other than
    these `tools` do not make a tool rare."""
    latest = read_episodes(store, now, limits.read)
    older = read_rare(store, now, latest, tools, limits)
    log = [*reversed(latest), *reversed(older)]
    chosen = choose_tasks(chain(log, store.artifacts.latest_demonstrations()), limits)
    chosen.reverse()
    return [each for each in chosen if each.source == "import"], [each for each in chosen if each.source != "import"]


def choose_tasks(episodes: Iterable[Episode], limits: SampleLimits = LIMITS) -> list[Episode]:
    """Choose among episodes that come the newest first; they are never held all at once."""
    chosen: list[Episode] = []
    counts: Counter[ToolId] = Counter()
    calls = rare = 0
    for each in episodes:
        is_recent = len(chosen) - rare < limits.tasks and (calls + len(each.calls) <= limits.calls or not chosen)
        if not is_recent:
            if rare >= limits.rare or all(counts[tool] >= limits.of_tool for tool in each.calls):
                continue
            rare += 1
        else:
            calls += len(each.calls)
        counts.update(set(each.calls))
        chosen.append(each)
    return chosen


def read_rare(
    store: Store, now: float, latest: Iterable[Episode], tools: Mapping[ToolId, object], limits: SampleLimits
) -> list[Episode]:
    """Return older tasks of the tools that the latest tasks hardly use, the oldest first."""
    before = store.calls.first_of_latest(limits.read)
    if before <= 1:
        return []
    counts = Counter(tool for each in latest for tool in set(each.calls))
    called = {each.tool: each.calls for each in store.calls.usage() if each.tool in tools}
    rare = [tool for tool, calls in called.items() if counts[tool] < min(limits.of_tool, calls)]
    found = store.calls.latest_of(rare, limits.of_tool, before, limits.searched)[: limits.rare]
    wanted = set(rare)
    episodes = [
        each
        for first, last in _ranges(sorted(found), before)
        for each in read_episodes_between(store, now, first, last)
        if not wanted.isdisjoint(each.calls)
    ]
    return sorted(episodes, key=lambda each: each.at)


def _ranges(places: Iterable[int], before: int) -> Iterator[tuple[int, int]]:
    """Yield what to read around these ids, in rising order and none twice."""
    start = end = 0
    for place in places:
        if end and place - _AROUND <= end:
            end = place + _AROUND
            continue
        if end:
            yield start, min(end, before - 1)
        start, end = max(place - _AROUND, 1), place + _AROUND
    if end:
        yield start, min(end, before - 1)


def episode_session(episode: Episode) -> str:
    return re.split(r"[/:]", episode.key, maxsplit=1)[0]


def choose_episodes(episodes: Iterable[Episode], people: People) -> list[Episode]:
    return [each for each in episodes if people.get(episode_session(each), ("", True))[1]]


def sharing(episodes: Sequence[Episode], people: People, least: int) -> Clean:
    """Return a function that removes from a text the words that fewer than `least` people have used in these
    episodes."""
    if least <= 1 or not any(person for person, _ in people.values()):
        return lambda text: text
    users: dict[str, set[str]] = {}
    for each in episodes:
        person = people.get(episode_session(each), ("", True))[0]
        for text in each.tasks:
            for word in set(_words(text)):
                users.setdefault(word, set()).add(person)
    shared = {word for word, said_by in users.items() if len(said_by) >= least}

    def clean(text: str) -> str:
        kept = _WORD.sub(lambda found: found[0] if found[0].casefold() in shared else " ", text)
        return " ".join(kept.split()) if _WORD.search(kept) else ""

    return clean


def clean_episodes(episodes: Iterable[Episode], clean: Clean) -> list[Episode]:
    """Return the episodes with cleaned tasks; values of arguments stay out where a text had to be cleaned."""
    found = []
    for each in episodes:
        tasks = tuple(filter(None, map(clean, each.tasks)))
        found.append(each if tasks == each.tasks else replace(each, tasks=tasks, arguments=()))
    return found


def clean_missed(missed: Iterable[MissedNeed], clean: Clean) -> list[MissedNeed]:
    """Return the needs in cleaned words, without those that have none left."""
    cleaned = (replace(each, task=clean(each.task)) for each in missed)
    return [each for each in cleaned if each.task]


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]
