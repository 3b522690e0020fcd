"""The queries that rankings are measured on: recorded tasks in their own words, or a file of queries.

A recorded task is asked in the words of its first search, else of its prompt, and needs the tools that it called. What
came after a task began may not rank it: with each query stands what was known by then.

A `RecordedTask` can be played again: it says what was called, by whom, and in which words, if they are known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from foretool.server.catalog.names import names_for_demonstrations
from foretool.server.config.files import read_rows
from foretool.server.discovery.query_vectors import texts_of_prompt, texts_of_search
from foretool.storage.episodes import GAP_S, MOST_CALLS, read_latest_episodes
from foretool.storage.records import SHELL_CLIENT, Episode, MissFilter, SessionRecord, Tool, ToolId, Usage
from foretool.storage.store import Store

MOST: Final = 1000
"""How many tasks are played, the latest ones."""


class RecordedTask(Struct, frozen=True):
    """One task from the records, with its prompt, searches and calls."""

    episode: Episode
    session: SessionRecord
    handle: str
    """The conversation within the session; "" if not known."""
    prompt: str
    """The user's words, where a prompt hook recorded them; else ""."""
    searches: tuple[str, ...]
    """The words that the client searched with, in order; empty if it never did and no prompt is known."""
    is_last: bool
    """Whether no later task of the session is known."""
    bypassed: tuple[ToolId, ...] = ()
    """Tools that commands of the client's shell went round in its course."""


def read_tasks(store: Store, since: float, now: float, most: int = MOST) -> list[RecordedTask]:
    """Return the tasks that began since a time and called a tool with success or went round one, the oldest first; the
    latest `most`. Raises `StorageError`."""
    episodes, bypassed = _with_bypasses(store, read_latest_episodes(store, now, since, most), since, most)
    first = min((each.at for each in episodes), default=now)
    prompts = {each.text for each in store.tasks.prompts(first - GAP_S)}
    places: dict[str, int] = {}
    for number, episode in enumerate(episodes):
        places[_session_of(episode)] = number
    sessions: dict[str, SessionRecord] = {}
    found = []
    for number, episode in enumerate(episodes):
        key = _session_of(episode)
        if key not in sessions:
            known = store.sessions.get(key)
            sessions[key] = known or SessionRecord(key, "", "", "legacy", "stdio", "", episode.at)
        if sessions[key].client == SHELL_CLIENT:
            continue  # no model made the calls of `foretool call`, and no other figure counts them
        task = _read_task(episode, sessions[key], prompts, is_last=places[key] == number)
        found.append(replace(task, bypassed=tuple(bypassed[episode.key])))
    return found


def _with_bypasses(
    store: Store, episodes: Sequence[Episode], since: float, most: int
) -> tuple[list[Episode], dict[str, list[ToolId]]]:
    """Return the episodes, and which tools were gone round in each, by its key. A session that went round a tool before
    its first task, or called none, has an episode without calls for that."""
    misses = sorted(store.calls.find_misses(MissFilter(since=since, cause="bypass"), most), key=lambda miss: miss.at)
    found = list(episodes)
    bypassed: dict[str, list[ToolId]] = defaultdict(list)
    for miss in misses:
        own = [each for each in found if _session_of(each) == miss.session and each.at <= miss.at]
        if not own:
            own = [Episode((), at=miss.at, key=f"{miss.session}:shell")]
            found += own
        bypassed[max(own, key=lambda each: each.at).key].append(ToolId(miss.tool))
    return sorted(found, key=lambda each: each.at)[-most:], bypassed


def _read_task(episode: Episode, session: SessionRecord, prompts: set[str], *, is_last: bool) -> RecordedTask:
    first = episode.tasks[0] if episode.tasks else ""
    prompt = first if first in prompts else ""
    searches = episode.tasks[1:] if prompt and len(episode.tasks) > 1 else episode.tasks
    handle = episode.key.rpartition(":")[0].partition("/")[2]
    return RecordedTask(episode, session, handle, prompt, searches, is_last)


def _session_of(episode: Episode) -> str:
    return episode.key.partition("/")[0].partition(":")[0]


def searched_texts(tasks: Sequence[RecordedTask]) -> Iterator[str]:
    """Yield what an encoder reads of the recorded prompts and searches, in the order of the tasks."""
    for task in tasks:
        if task.prompt:
            yield from texts_of_prompt(task.prompt)
        for text in task.searches:
            yield from texts_of_search(text)


def last_tasks(tasks: Sequence[RecordedTask]) -> dict[str, float]:
    """Return when each session began its last task, by the key of the session."""
    found: dict[str, float] = defaultdict(float)
    for each in tasks:
        found[each.session.key] = max(found[each.session.key], each.episode.at)
    return dict(found)


_FORMAT: Final = (
    'expected an object with "query" (text), "calls" (list of tool names) and, if one of them is enough, "any": true'
)


class NeededTools(Struct, frozen=True):
    """A query and the tools that it needs."""

    text: str
    needs: tuple[frozenset[ToolId], ...]
    """One set for each need: the tools of which one meets it."""
    at: float
    """When it was asked; models that were promoted later may not rank it."""
    usage: Mapping[ToolId, Usage]
    """How often each tool had been used by then."""


class QuerySet(Struct, frozen=True):
    """Queries to measure with, and how many records could not be used as one."""

    queries: tuple[NeededTools, ...]
    wordless: int = 0
    """Tasks whose words are not on record."""
    unknown: int = 0
    """Tasks without a tool that is known and may be found."""


def read_log(store: Store, tools: Sequence[Tool], since: float, now: float, most: int) -> QuerySet:
    """Return the latest `most` tasks since a time that called one of `tools`. Raises `StorageError`."""
    names = names_for_demonstrations(tools)
    usage: dict[ToolId, Usage] = {}
    found: list[NeededTools] = []
    wordless = unknown = 0
    for task in read_tasks(store, 0.0, now, most=MOST_CALLS):
        called = [names[each] for each in task.episode.calls if each in names]
        if (at := task.episode.at) >= since:
            text = task.searches[0] if task.searches else task.prompt
            if not text.strip():
                wordless += 1
            elif not called:
                unknown += 1
            else:
                needs = tuple(frozenset((each,)) for each in dict.fromkeys(called))
                found.append(NeededTools(text, needs, at, dict(usage)))
        for tool in called:
            before = usage.get(tool)
            usage[tool] = Usage(tool, (before.calls if before else 0) + 1, 0, at)
    return QuerySet(tuple(found[-most:]), wordless, unknown)


class _Row(Struct):
    query: str
    calls: list[str]
    any: bool = False


_row = msgspec.json.Decoder(_Row)


def read_queries(path: Path, tools: Sequence[Tool], usage: Sequence[Usage], now: float) -> QuerySet:
    """Return the queries of a file with an object a line, as if they were asked now. Raises `ValueError` with the line
    that is wrong, or the file."""
    names = names_for_demonstrations(tools)
    known = {each.tool: each for each in usage}
    found: list[NeededTools] = []
    wordless = unknown = 0
    for _, row in read_rows(path, _row.decode, _FORMAT):
        called = [names[each] for each in row.calls if each in names]
        if not row.query.strip():
            wordless += 1
        elif not called or (len(called) < len(row.calls) and not row.any):
            unknown += 1
        else:
            needs = (frozenset(called),) if row.any else tuple(frozenset((each,)) for each in dict.fromkeys(called))
            found.append(NeededTools(row.query, needs, now, known))
    return QuerySet(tuple(found), wordless, unknown)
