"""What is on record: the misses that fit a filter, the sessions, and what happened around a miss or in a session."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.desk.page.viewers import Viewer, admits, conceal, count_misses, find_misses, may_see_call
from foretool.server.config.loader import Config
from foretool.server.ledger.story import (
    MissStory,
    StoryStep,
    read_miss_story,
    sort_steps,
    tell_call,
    tell_list,
    tell_miss,
    tell_search,
    tell_session,
)  # fmt: skip
from foretool.storage.opening import open_existing_store
from foretool.storage.records import FAILED, Call, Miss, MissCount, MissFilter, SessionRecord, SessionSum

MOST_MISSES: Final = 50
"""How many misses one page lists."""

_SECONDS: Final = re.compile(r"\d{1,11}(\.\d{1,9})?", re.ASCII)
MOST_SESSIONS: Final = 100
"""How many sessions one page lists."""
_MOST: Final = 400
"""How many calls, searches and misses of one session are shown, from its beginning."""


def read_misses(config: Config, viewer: Viewer, wanted: MissFilter) -> tuple[int, list[Miss], list[MissCount]]:
    """Return how many misses fit, the newest of them, and the counts by tool and cause. Raises `StorageError`."""
    if wanted.server and not admits(config, viewer, wanted.server):
        return 0, [], []
    with open_existing_store(config.storage) as store:
        counts = count_misses(store, viewer, wanted)
        return sum(each.count for each in counts), find_misses(store, viewer, wanted, MOST_MISSES), counts


def read_clients(config: Config, viewer: Viewer) -> list[str]:
    """Return the names of the clients on record; none to somebody who may see one profile alone."""
    if not viewer.sees_all:
        return []
    with open_existing_store(config.storage) as store:
        return sorted({each.client for each in store.clients.all() if each.client})


def servers_of(config: Config, viewer: Viewer) -> list[str]:
    """Return the names of the usable servers that a viewer may see."""
    return [name for name in config.servers if admits(config, viewer, name)]


def read_miss(config: Config, viewer: Viewer, id: int) -> MissStory | None:
    """Return one miss with its conversation from the beginning of the session; None if this viewer may see none with
    this number. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        if (miss := store.calls.miss(id)) is None:
            return None
        found = read_miss_story(
            store, conceal(viewer, miss), lambda call: may_see_call(config, viewer, call), prompts=viewer.sees_all
        )
    session = found.session
    if not (viewer.sees_all or (session is not None and session.profile == viewer.profile)):
        return None
    return replace(found, story=(tell_session(session), *found.story)) if session is not None else found


def time_before(query: Mapping[str, str]) -> float:
    """Return the time of the query parameter that asks for earlier records; 0 without one."""
    text = query.get("before", "")
    return float(text) if _SECONDS.fullmatch(text) else 0.0


def read_filter(query: Mapping[str, str], causes: Collection[str], now: float, viewer: Viewer) -> MissFilter:
    """Return the filter that a form sent; what it does not understand counts as not given."""
    days = {"1d": 1, "7d": 7, "30d": 30}.get(query.get("since", ""))
    cause: Any = query.get("cause", "")
    recovered = {"yes": True, "no": False}.get(query.get("recovered", ""))
    return MissFilter(
        since=now - days * 86_400 if days else 0.0,
        until=time_before(query) or None,
        server=query.get("server", "")[:200],
        tool=query.get("tool", "")[:200],
        cause=cause if cause in causes else None,
        client=query.get("client", "")[:200],
        profile=viewer.profile,
        recovered=recovered,
    )


class Revealed(StoryStep, frozen=True, kw_only=True):
    """A step of a session that was a miss, or that revealed one."""

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
        return store.browsing.sessions(before or time.time() + 60, MOST_SESSIONS, viewer.profile, client[:200])


def read_session(config: Config, viewer: Viewer, key: str) -> SessionPage | None:
    """Return one session; None if this viewer may see none with this key. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        session = store.sessions.get(key)
        if session is None or not (viewer.sees_all or session.profile == viewer.profile):
            return None
        read = store.browsing.calls_of(key, _MOST)
        calls = [each for each in read if may_see_call(config, viewer, each)]
        misses = [conceal(viewer, each) for each in store.browsing.misses_of(key, _MOST)]
        until = read[-1].at if len(read) == _MOST else time.time()
        searches = store.discoveries.of_session(key, session.started_at - 1, until)
        lists = [each for each in store.sessions.exposures(key) if each.at <= until]
    steps = [*map(tell_list, lists[:_MOST]), *map(tell_search, searches[:_MOST]), *tell_calls(calls, misses)]
    ordered = sort_steps([*steps, *tell_other_misses(calls, misses)])
    refused, failed = (sum(call.outcome in wanted for call in calls) for wanted in (("refused",), FAILED))
    shown = [tell_session(session), *ordered]
    return SessionPage(session, shown, len(calls), refused, failed, len(misses), len(read) == _MOST)


def tell_calls(calls: Sequence[Call], misses: Sequence[Miss]) -> list[StoryStep]:
    """Return calls as steps; those that revealed a miss say which."""
    revealed = {miss.call: miss.id for miss in misses if miss.call}
    return [_reveal(tell_call(call), revealed[call.id]) if call.id in revealed else tell_call(call) for call in calls]


def tell_other_misses(calls: Sequence[Call], misses: Sequence[Miss]) -> list[StoryStep]:
    """Return as steps the misses that none of these calls revealed."""
    known = {call.id for call in calls}
    return [_reveal(tell_miss(miss), miss.id) for miss in misses if miss.call not in known]


def _reveal(step: StoryStep, miss: int) -> Revealed:
    return Revealed(step.at, step.kind, step.what, step.tokens, miss=miss)
