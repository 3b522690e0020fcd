"""Writes the log of a user who has worked on many tasks: each with one search and calls of the tools that it needs.

A script writes it, no model: the first tasks (`tasks.TASKS`) in a shuffled order, again and again, over the last days.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Final

from bench.agents.tasks import SEED, TASKS, Task
from foretool.server.config.loader import load
from foretool.server.recording.costs import add_next
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, Match, SessionRecord, ToolId
from foretool.storage.store import Store

_BEFORE_S: Final = 3600.0
"""How long before the end of the log the last task was done."""
_APART_S: Final = 1800.0
"""Time between two tasks."""
_PART: Final = 2000
"""Calls that are added up at once."""


def work_through(config: Path, count: int, now: float) -> None:
    """Add the log of `count` tasks that end before `now` to the storage of a config."""
    with open_store(load(config).storage, busy_ms=10_000) as store:
        choose = random.Random(SEED)
        rounds = (choose.sample(TASKS, len(TASKS)) for _ in itertools.count())
        for number, task in enumerate(itertools.islice(itertools.chain.from_iterable(rounds), count)):
            _work(store, task, f"used-{number}", now - _BEFORE_S - (count - number) * _APART_S)
        store.calls.usage()  # counts what is not counted yet
        while add_next(store, now, _PART):
            pass
        store.artifacts.bump_version()  # the next list is that of a new day


def _work(store: Store, task: Task, key: str, at: float) -> None:
    needed = [tools[0] for tools in task.needs]
    store.sessions.begin(SessionRecord(key, "agent", "1", "legacy", "stdio", "", at))
    if needed:
        matches = tuple(Match(ToolId(tool), place, 9.0 - place, {}) for place, tool in enumerate(needed, 1))
        search = Discovery(key, at + 1, task.text, (), None, "medium", matches, 500, 5.0, probability=0.7)
        found = store.discoveries.add(search)
        store.calls.record(
            [
                Call(key, at + 2 + place, ToolId(tool), tool.partition("__")[0], "bridge", True, "ok", 20.0, True, "",
                     found)
                for place, tool in enumerate(needed)
            ],
            [],
        )  # fmt: skip
    store.sessions.end(key, at + 60)
