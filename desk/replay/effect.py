"""What a change of the config would have done to recorded tasks: misses, discovery turns and tokens, with intervals.

Both configs play the same tasks, so the differences are of pairs: a bootstrap over tasks gives their 95 % intervals.

`measure_diagnosis` measures each change that would have shown a missed tool.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from math import inf
from statistics import fmean
from typing import Final

from msgspec import Struct

from foretool.desk.replay.encoders import OpenedEncoders
from foretool.desk.replay.past import Before, read_past
from foretool.desk.replay.player import PlayedTask, Player
from foretool.desk.replay.queries import MOST, RecordedTask, read_tasks, searched_texts
from foretool.learning.results import paired_difference
from foretool.server.app import App
from foretool.server.catalog.search import Search
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config
from foretool.server.ledger.effects import Difference, Effect, Figures, ToolShift
from foretool.server.ledger.fixes import Fix, Kind, MeasuredFix, MissDiagnosis, open_own
from foretool.server.setup.documents import DocumentError
from foretool.server.setup.own_servers import change_config
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Miss
from foretool.storage.store import Store

_LEAST_PLAYED: Final = 5
"""Tasks that are played however long they take, by up to three configs."""
_LEAST_OF_MANY: Final = 15
"""So many times a task is played by a config in all, however long it takes, where there are more configs."""
_TOP: Final = 5
"""How many tools are named whose misses change."""
_UNSEEN: Final = ("unknown_name", "nothing_found")
"""What reveals misses that no task of the log tells of: they led to no call. Nor does a search that failed before the
one that did not."""

Progress = Callable[[float], None]
"""Takes the share of the tasks that were played."""


class Recorded(Struct, frozen=True):
    """What the recorded tasks took when they happened, per task."""

    misses: float
    discoveries: float


class Replays:
    """Plays the recorded tasks of one store, under the config in force once, and under any number of others."""

    def __init__(
        self, config: Config, store: Store, since: float, now: float, most: int = MOST, patience_s: float = inf,
        indexed: Search | None = None, around: Miss | None = None,
    ) -> None:  # fmt: skip
        """`patience_s`: seconds of the processor after which no further task is played, once the least number was;
        `indexed`: a search over the tools of the store; `around`: a miss whose own task is played whatever else is.
        Raises `StorageError`."""
        self._config = config
        self._indexed = indexed
        self._patience_s = patience_s
        self._store = store
        self.tasks: Sequence[RecordedTask] = read_tasks(store, since, now, most)
        self.own = _find_own(self.tasks, around)
        """The task of the miss that the replay is of; None if it is of none, or that led to no task."""
        if around is not None and self.own is None and len(self.tasks) == most:
            earlier = read_tasks(store, since, now, MOST)
            if (own := _find_own(earlier, around)) is not None:
                place = earlier.index(own)
                self.tasks, self.own = earlier[place : place + most], own
        self.found = len(self.tasks)
        """How many tasks there are, whether or not there was time to play them."""
        self._encoders = OpenedEncoders(list(searched_texts(self.tasks)))
        self._now: list[PlayedTask] | None = None

    @property
    def now(self) -> list[PlayedTask]:
        """The tasks, as played under the config in force."""
        if self._now is None:
            self._now = self.play(self._config)
        return self._now

    @cached_property
    def _before(self) -> Before:
        """What had happened before the first task."""
        return read_past(self._store, self.tasks[0].episode.at if self.tasks else 0.0)

    @cached_property
    def recorded(self) -> Recorded:
        """What these tasks took when they happened."""
        if not self.tasks:
            return Recorded(0.0, 0.0)
        since, sessions = self.tasks[0].episode.at - 60.0, {each.session.key for each in self.tasks}
        misses = [each for each in self._store.calls.misses(since) if each.session in sessions]
        searched = self._store.discoveries.count_by_session(since)
        count = len(self.tasks)
        searches = sum(searched.get(key, 0) for key in sessions)
        return Recorded(sum(map(_is_of_call, misses)) / count, searches / count)

    def play(self, config: Config, progress: Progress = lambda share: None) -> list[PlayedTask]:
        """Return what each task takes under a config."""
        return self._play([config], progress)[0]

    def play_all(self, configs: Sequence[Config]) -> list[list[PlayedTask]]:
        """Return what each task takes under each config, those under the config in force the first time too."""
        if self._now is not None:
            return self._play(configs, lambda share: None)
        self._now, *found = self._play([self._config, *configs], lambda share: None)
        return found

    def _play(self, configs: Sequence[Config], progress: Progress) -> list[list[PlayedTask]]:
        """Return what each task takes under each config. All of them play a task before any plays the next one, so that
        the encoder has as much to do for the tasks ahead as they have with this one."""
        found: list[list[PlayedTask]] = [[] for _ in configs]
        until = time.process_time() + self._patience_s
        least = min(_LEAST_PLAYED, max(_LEAST_OF_MANY // len(configs), 2))
        with ExitStack() as opened:
            opened.callback(self._encoders.close)
            players: list[Player] = []
            for config in configs:
                player = Player(config, self._store, self._before, self.tasks, self._encoders, self._indexed)
                opened.callback(player.close)
                players.append(player)
                self._indexed = self._indexed or player.app.search
            taken: list[RecordedTask] = []
            for number, task in enumerate(self.tasks, 1):
                if len(taken) >= least and time.process_time() >= until and task is not self.own:
                    continue
                taken.append(task)
                for player, played in zip(players, found, strict=True):
                    played.append(player.play(task))
                progress(number / len(self.tasks))
        # What is played later gets the same tasks, so that all of it can be compared.
        self.tasks, self._patience_s = taken, inf
        return found

    def effect(self, config: Config, progress: Progress = lambda share: None) -> Effect:
        """Return what the same tasks take now and under another config."""
        started = time.perf_counter()
        if self._now is None:
            self._now, then = self._play([self._config, config], progress)
        else:
            then = self.play(config, progress)
        return self._compare(then, started)

    def effect_of_nothing(self) -> Effect:
        """Return what the tasks take now, as an effect without any difference."""
        started = time.perf_counter()
        return self._compare(self.now, started)

    def _compare(self, then: Sequence[PlayedTask], started: float) -> Effect:
        sessions = len({each.session.key for each in self.tasks})
        took_s = round(time.perf_counter() - started, 1)
        return compare_tasks(self.now, then, sessions=sessions, took_s=took_s, of=self.found)


@contextmanager
def open_replays(config: Config, since: float, now: float, most: int = MOST) -> Iterator[Replays]:
    """Open the store of a config and read the tasks that can be played. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        yield Replays(config, store, since, now, most)


def compare_tasks(
    now: Sequence[PlayedTask], then: Sequence[PlayedTask], *, sessions: int = 0, took_s: float = 0.0, of: int = 0
) -> Effect:
    """Compare what the same tasks take under two configs; `of`: how many could have been played."""
    before, after = (Counter(tool for each in played for tool in each.missed) for played in (now, then))
    shifts = [ToolShift(tool, before[tool], after[tool]) for tool in {*before, *after} if before[tool] != after[tool]]
    shifts.sort(key=lambda each: (-abs(each.then - each.now), each.tool))
    return Effect(
        tasks=len(now),
        sessions=sessions,
        calls=sum(each.calls for each in now),
        guessed=max(sum(each.guessed for each in played) for played in (now, then)),
        now=_figures(now),
        then=_figures(then),
        misses=_difference(now, then, "misses"),
        discoveries=_difference(now, then, "discoveries"),
        tokens=_difference(now, then, "read"),
        shifts=tuple(shifts[:_TOP]),
        took_s=took_s,
        of=max(of, len(now)),
    )


def _find_own(tasks: Sequence[RecordedTask], miss: Miss | None) -> RecordedTask | None:
    """Return the task in which something was missed: the latest of its session that had begun by then."""
    if miss is None:
        return None
    begun = (each for each in reversed(tasks) if each.episode.at <= miss.at)
    return next((each for each in begun if each.session.key == miss.session), None)


def _is_of_call(miss: Miss) -> bool:
    return miss.noticed not in _UNSEEN and (miss.noticed != "search" or miss.call > 0)


def _figures(played: Sequence[PlayedTask]) -> Figures:
    def mean(name: str) -> float:
        return round(fmean(getattr(each, name) for each in played), 4) if played else 0.0

    names = ("misses", "hidden", "discoveries", "read", "listed", "unreachable")
    return Figures(*map(mean, names))


def _difference(now: Sequence[PlayedTask], then: Sequence[PlayedTask], name: str) -> Difference:
    after, before = ([float(getattr(each, name)) for each in played] for played in (then, now))
    return Difference(*paired_difference(after, before))


_PLAYED: Final = 100
"""How many of the latest tasks each change is tried on."""
_SINCE_S: Final = 30 * 86_400.0
"""How far back they may lie."""
_ORDER: Final[tuple[Kind, ...]] = (
    "enable", "approve", "profile", "pin", "budget", "policy", "description", "alias", "rule", "learn",
    "doctor",
)  # fmt: skip
"""Of two changes that take the same, the one whose kind stands first here comes first."""


def measure_diagnosis(app: App, diagnosis: MissDiagnosis, patience_s: float) -> list[MeasuredFix]:
    """Return the fixes of a miss with what each would have done to the latest tasks, the best first.
    `patience_s`: seconds of the processor after which fewer tasks have to do."""
    now = time.time()
    # The tasks around the miss tell most, however long ago that was.
    since = min(now - _SINCE_S, diagnosis.miss.at - _SINCE_S)
    replays = Replays(app.config, app.store, since, now, _PLAYED, patience_s, app.search, diagnosis.miss)
    return measure_fixes(replays, app.config, diagnosis.fixes, diagnosis.tool)


def measure_fixes(replays: Replays, config: Config, fixes: Iterable[Fix], tool: str) -> list[MeasuredFix]:
    """Return the fixes with what they would have done to the tasks on record, the best first. Changes that the config
    does not understand are left out.

    Those that spare the task of the miss most come first, so that the order is the same however many other tasks there
    was time for; of the others the one with the fewest misses, then searches, then tokens.
    """
    measured: list[tuple[tuple[float, ...], MeasuredFix]] = []
    changed: list[tuple[Fix, Config]] = []
    for fix in fixes:
        if not fix.changes or not replays.tasks:
            measured.append(((inf, _ORDER.index(fix.kind)), MeasuredFix(fix, None, 0)))
            continue
        with suppress(ConfigError, DocumentError):
            changed.append((fix, change_config(config, open_own(config), fix.changes)))
    played = replays.play_all([each for _, each in changed]) if changed else []
    for (fix, _), then in zip(changed, played, strict=True):
        before, after = (sum(each.missed.count(tool) for each in tasks) for tasks in (replays.now, then))
        effect = compare_tasks(replays.now, then, of=replays.found)
        means = (effect.misses.mean, effect.discoveries.mean, effect.tokens.mean)
        cost = (*_cost_of_own(replays, then), *means, _ORDER.index(fix.kind))
        measured.append((cost, MeasuredFix(fix, effect, before - after)))
    return [each for _, each in sorted(measured, key=lambda pair: pair[0])]


def _cost_of_own(replays: Replays, then: Sequence[PlayedTask]) -> tuple[float, float, float]:
    """Return the misses and searches that a change spares the task of the miss, below 0 each, and what it then reads
    more."""
    if replays.own is None:
        return 0.0, 0.0, 0.0
    place = replays.tasks.index(replays.own)
    before, after = replays.now[place], then[place]
    misses, searches = after.misses - before.misses, after.discoveries - before.discoveries
    return misses, searches, after.read - before.read if (misses, searches) < (0, 0) else 0.0
