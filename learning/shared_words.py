"""Takes out of tasks what too few people have said, before anything is learned from them for all.

A model keeps words: the terms of its vocabulary stand in it as they are. So a word enters a training only if at least
three people have used it, and the tasks of sessions that may not be learned from stay out as a whole. Where
nobody called over HTTP there is one user, and nothing is taken out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from foretool.storage.records import Episode, MissedNeed

People = Mapping[str, tuple[str, bool]]
"""By session: whose it is, and whether it may be learned from."""
Clean = Callable[[str], str]

_WORD = re.compile(r"\w+")


def episode_session(episode: Episode) -> str:
    """Return the session that an episode of the log is of."""
    return re.split(r"[/:]", episode.key, maxsplit=1)[0]


def choose_episodes(episodes: Iterable[Episode], people: People) -> list[Episode]:
    """Return the episodes that may be learned from."""
    return [each for each in episodes if people.get(episode_session(each), ("", True))[1]]


def sharing(episodes: Sequence[Episode], people: People, least: int) -> Clean:
    """Return what takes the words out of a text that fewer than `least` people have used in these episodes."""
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
