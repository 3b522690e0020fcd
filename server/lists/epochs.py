"""When a list may move: at the end of its epoch, and earlier where that breaks no prompt cache.

Early is, in the first week, when a session begins that shares the list with no other one of this process, and at any
time once nobody has used the list for longer than a prompt cache lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from foretool.server.config.loader import LiveConfig
from foretool.server.recording.recorder import Recorder
from foretool.storage.records import Usage

FIRST_S: Final = 7 * 86_400.0
"""For so long after the first session, what was used moves the list with every session that shares it with no other."""
QUIET_S: Final = 3600.0
"""Prompt caches of models last an hour at most: a list that nobody has used for longer may move at no cost."""


class Epochs:
    """Decides for the lists of all profiles; times are seconds since 1970."""

    def __init__(self, recorder: Recorder, config: LiveConfig) -> None:
        self._recorder = recorder
        self._config = config
        self._given_at: dict[str, float] = {}
        """By profile: when a client last got a list of it; none once that was found to be long ago."""

    def note_given(self, profile: str) -> None:
        """Take in that a client gets a list of a profile now."""
        self._given_at[profile] = self._recorder.now()

    def end(self, created_at: float) -> float | None:
        """Return when the epoch of a list ends, None if time never ends it."""
        epoch_s = self._config.settings.epoch_s
        return created_at + epoch_s if epoch_s else None

    def is_over(self, created_at: float) -> bool:
        end = self.end(created_at)
        return end is not None and self._recorder.now() >= end

    def may_move(self) -> bool:
        """Tell whether a session that begins, and shares its list with no other one, may get another list."""
        if not self._config.settings.epoch_s:
            return False
        now = self._recorder.now()
        return now - self._recorder.first_session_at() < FIRST_S or now - last_use(self._recorder.usage()) >= QUIET_S

    def is_quiet(self, profile: str) -> bool:
        """Tell, once for each quiet time, whether nobody has used a profile's lists for longer than caches last."""
        now = self._recorder.now()
        if not self._config.settings.epoch_s or now - self._given_at.get(profile, now) < QUIET_S:
            return False
        used = last_use(self._recorder.usage())
        if now - used < QUIET_S:
            self._given_at[profile] = used
            return False
        del self._given_at[profile]
        return True


def last_use(usages: Sequence[Usage]) -> float:
    """Return when a tool was last called, 0 if none was."""
    return max((each.last_at for each in usages), default=0.0)
