"""Starts learning on a schedule, in a process of its own with low priority, once enough was called since the last run.

Several proxies may share a store. One process learns for all: it has the lead (`Store.lead`), and its run
is on record.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from foretool.server.config.files import read_regular
from foretool.server.config.variables import variable_names
from foretool.server.system.processes import WORKER_FOLDER, worker_command, worker_environment
from foretool.server.transports.tasks import BackgroundWork
from foretool.storage.places import MEMORY, ServerAddress
from foretool.storage.store import Store

LOOK_S: Final = 60.0
"""Seconds between two checks whether a run is due."""
SETTLED_S: Final = 600.0
"""Seconds after the start before which no run begins: the first minutes belong to the clients."""
LEAST_CALLS: Final = 20
"""Calls since the last run that make another one worth it."""

_AHEAD_S: Final = 3600.0
"""A run on record that is so far ahead of the clock shows that the clock was set back."""

LEARNING: Final = "learning"
"""The work whose lead one learner of a store has, and the end of the name of its file."""

log = logging.getLogger("foretool.schedule")


class Schedule(BackgroundWork):
    """Starts a learning process when a run is due; `tick` is called about once a second."""

    def __init__(self, store: Store, config: Path, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self._look_at = clock() + SETTLED_S
        self._failures = 0
        """Runs in a row that failed."""

    def tick(self, learn_s: float) -> None:
        """Start a run if one is due. `learn_s`: seconds between two runs; 0 means never."""
        now = self._clock()
        self._look_at = min(self._look_at, now + max(SETTLED_S, learn_s))  # the clock may have been set back
        if not learn_s or now < self._look_at or self.is_working:
            return
        self._look_at = now + LOOK_S
        if is_due(self._store, learn_s, now) and self._store.lead(LEARNING).holder() is None:
            self.begin(self._learn(learn_s))

    async def _learn(self, learn_s: float) -> None:
        command = worker_command("foretool", "learn", "--background", "--json", "--config", str(self._config))
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        try:
            learner = await asyncio.create_subprocess_exec(
                *command, stdin=nothing, stdout=nothing, stderr=pipe, cwd=WORKER_FOLDER, env=self._environment()
            )
        except OSError as error:
            log.warning("learning did not start: %s", error)
            return
        try:
            _, output = await learner.communicate()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                learner.terminate()
            await learner.wait()
            raise
        self._failures = self._failures + 1 if learner.returncode else 0
        if learner.returncode:
            # What ends it once may do so again, after minutes of work.
            self._look_at = self._clock() + min(LOOK_S * 4**self._failures, learn_s)
            lines = output.decode(errors="replace").strip().splitlines()
            last = lines[-1] if lines else "it said nothing"
            log.warning("learning ended with status %d: %s", learner.returncode, last)

    def _environment(self) -> dict[str, str]:
        """Return what the learner reads: our own settings, and the variables that the config names."""
        # A project's file does not choose the storage, and the learner cannot know whose file it reads.
        # Not as a word of its command line, which every user of the machine may read: it may hold a password.
        place = self._store.path
        written = place.written if isinstance(place, ServerAddress) else str(place)
        storage = {"FORETOOL_STORAGE": written} if written != MEMORY else {}
        return worker_environment(
            ("FORETOOL_*", "PG*", *variable_names(read_regular(self._config).decode("utf-8", "replace"))), **storage
        )


def is_due(store: Store, learn_s: float, now: float) -> bool:
    """Return whether the last run is long enough ago and enough was called since then. May raise `StorageError`."""
    last = next((each.created_at for each in store.artifacts.history("run", 1)), 0.0)
    calls = store.calls.recent(LEAST_CALLS)
    if last > now + _AHEAD_S:
        # The clock was set back since: what was called since then cannot be told by time.
        return len(calls) == LEAST_CALLS
    return now - last >= learn_s and len(calls) == LEAST_CALLS and calls[-1].at > last
