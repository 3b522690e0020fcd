"""Sessions: which there were, and what happened in one, in order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from foretool.desk.page.access import Viewer
from foretool.server.config.loader import Config
from foretool.server.ledger.story import (
    StoryStep,
    sort_steps,
    tell_call,
    tell_list,
    tell_miss,
    tell_search,
    tell_session,
)  # fmt: skip
from foretool.storage.opening import open_existing_store
from foretool.storage.records import FAILED, Call, Miss, SessionRecord, SessionSum

SHOWN: Final = 100
"""How many sessions one page lists."""
_MOST: Final = 400
"""How many calls, searches and misses of one session are shown, from its beginning."""


class Revealed(StoryStep, frozen=True, kw_only=True):
    """A step that was a miss, or revealed one."""

    miss: int
    """The number of the miss."""


class SessionPage(Struct, frozen=True):
    """One session and its steps in order."""

    session: SessionRecord
    steps: Sequence[StoryStep]
    calls: int
    refused: int
    failed: int
    misses: int
    is_cut: bool
    """There were more steps than are shown."""


def read_sessions(config: Config, viewer: Viewer, client: str, before: float) -> list[SessionSum]:
    """Return the latest sessions that began before a time (0 is now). Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        return store.browsing.sessions(before or time.time() + 60, SHOWN, viewer.profile, client[:200])


def read_session(config: Config, viewer: Viewer, key: str) -> SessionPage | None:
    """Return one session; None if this viewer may see none with this key. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        session = store.sessions.get(key)
        if session is None or not (viewer.sees_all or session.profile == viewer.profile):
            return None
        calls = store.browsing.calls_of(key, _MOST)
        misses = store.browsing.misses_of(key, _MOST)
        until = calls[-1].at if len(calls) == _MOST else time.time()
        searches = store.discoveries.of_session(key, session.started_at - 1, until)
        lists = [each for each in store.sessions.exposures(key) if each.at <= until]
    steps = [*map(tell_list, lists[:_MOST]), *map(tell_search, searches[:_MOST]), *tell_calls(calls, misses)]
    ordered = sort_steps([*steps, *tell_other_misses(calls, misses)])
    refused, failed = (sum(call.outcome in wanted for call in calls) for wanted in (("refused",), FAILED))
    shown = [tell_session(session), *ordered]
    return SessionPage(session, shown, len(calls), refused, failed, len(misses), len(calls) == _MOST)


def tell_calls(calls: Sequence[Call], misses: Sequence[Miss]) -> list[StoryStep]:
    """Return calls as steps; those that revealed a miss say which."""
    revealed = {miss.call: miss.id for miss in misses if miss.call}
    return [_reveal(tell_call(call), revealed[call.id]) if call.id in revealed else tell_call(call) for call in calls]


def tell_other_misses(calls: Sequence[Call], misses: Sequence[Miss]) -> list[StoryStep]:
    """Return the misses as steps that no call of these revealed."""
    known = {call.id for call in calls}
    return [_reveal(tell_miss(miss), miss.id) for miss in misses if miss.call not in known]


def _reveal(step: StoryStep, miss: int) -> Revealed:
    return Revealed(step.at, step.kind, step.what, step.tokens, miss=miss)
