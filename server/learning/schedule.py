"""Starts learning on a schedule, in a process of its own with low priority, once enough was called since the last run.

Several proxies may share a store. The first of them learns for all, since a run is on record and holds a lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from foretool.server.config.variables import names_in
from foretool.server.system.processes import WORKER_FOLDER, worker_command, worker_environment
from foretool.server.transports.tasks import BackgroundWork
from foretool.storage.stores import StorageError, Store

LOOK_S: Final = 60.0
"""Seconds between two checks whether a run is due."""
SETTLED_S: Final = 600.0
"""Seconds after the start before which no run begins: the first minutes belong to the clients."""
LEAST_CALLS: Final = 20
"""Calls since the last run that make another one worth it."""

log = logging.getLogger("foretool.schedule")


class Schedule(BackgroundWork):
    """Starts a learning process when a run is due; `tick` is called about once a second."""

    def __init__(self, store: Store, config: Path, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self._look_at = clock() + SETTLED_S

    def tick(self, learn_s: float) -> None:
        """Start a run if one is due. `learn_s`: seconds between two runs; 0 means never."""
        now = self._clock()
        if not learn_s or now < self._look_at or self.is_working:
            return
        self._look_at = now + LOOK_S
        with contextlib.suppress(StorageError):
            if is_due(self._store, learn_s, now):
                self.begin(self._learn())

    async def _learn(self) -> None:
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
        if learner.returncode:
            lines = output.decode(errors="replace").strip().splitlines()
            last = lines[-1] if lines else "it said nothing"
            log.warning("learning ended with status %d: %s", learner.returncode, last)

    def _environment(self) -> dict[str, str]:
        """Return what the learner reads: our own settings, and the variables that the config names."""
        # A project's file does not choose the storage, and the learner cannot know whose file it reads.
        storage = {"FORETOOL_STORAGE": str(self._store.path)} if isinstance(self._store.path, Path) else {}
        return worker_environment(("FORETOOL_*", *names_in(self._config.read_text("utf-8", "replace"))), **storage)


def is_due(store: Store, learn_s: float, now: float) -> bool:
    """Tell whether the last run is long enough ago and enough was called since then. May raise `StorageError`."""
    last = next((each.created_at for each in store.artifacts.history("run", 1)), 0.0)
    if now - last < learn_s:
        return False
    calls = store.calls.recent(LEAST_CALLS)
    return len(calls) == LEAST_CALLS and calls[-1].at > last
