"""The recorded tasks that can be played again: what was called, by whom, and in which words, if they are known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from foretool.server.discovery.query_vectors import texts_of_prompt, texts_of_search
from foretool.storage.episodes import GAP_S, read_latest_episodes
from foretool.storage.records import Episode, SessionRecord
from foretool.storage.stores import Store

MOST: Final = 1000
"""How many tasks are played, the latest ones."""


class RecordedTask(Struct, frozen=True):
    """One task of the log."""

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


def read_tasks(store: Store, since: float, now: float, most: int = MOST) -> list[RecordedTask]:
    """Return the tasks that began since a time and called a tool with success, the oldest first; the latest `most`.
    Raises `StorageError`."""
    episodes = read_latest_episodes(store, now, since, most)
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
        found.append(_read_task(episode, sessions[key], prompts, is_last=places[key] == number))
    return found


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
