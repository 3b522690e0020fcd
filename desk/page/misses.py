"""The misses that fit a filter, and one of them with the conversation around it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from msgspec.structs import replace

from foretool.desk.page.access import Viewer, admits
from foretool.server.config.loader import Config
from foretool.server.ledger.story import MissStory, read_miss_story, tell_session
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Miss, MissCount, MissFilter

SHOWN: Final = 50
"""How many misses one page lists."""

_SECONDS: Final = re.compile(r"\d{1,11}(\.\d{1,9})?", re.ASCII)


def read_misses(config: Config, wanted: MissFilter) -> tuple[int, list[Miss], list[MissCount]]:
    """Return how many misses fit, the newest of them, and the counts by tool and cause. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        counts = store.calls.count_misses(wanted)
        return sum(each.count for each in counts), store.calls.find_misses(wanted, SHOWN), counts


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
        found = read_miss_story(store, miss, prompts=viewer.sees_all)
    session = found.session
    if not (viewer.sees_all or (session is not None and session.profile == viewer.profile)):
        return None
    return replace(found, story=(tell_session(session), *found.story)) if session is not None else found


def time_before(query: Mapping[str, str]) -> float:
    """Return the time before which an address asks for what was earlier; 0 if it names none."""
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
