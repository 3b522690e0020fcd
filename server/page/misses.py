"""The misses that fit a filter, and one of them with the conversation around it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from foretool.server.config.loader import Config
from foretool.server.ledger import story
from foretool.server.page.viewer import Viewer, admits
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Discovery, Exposure, Miss, MissCount, MissFilter, SessionRecord

SHOWN: Final = 200
"""How many misses one page lists."""


class MissPage(Struct, frozen=True):
    """One miss and what stood around it."""

    miss: Miss
    session: SessionRecord | None
    exposure: Exposure | None
    discovery: Discovery | None
    steps: Sequence[story.Step]


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


def read_miss(config: Config, viewer: Viewer, id: int) -> MissPage | None:
    """Return one miss; None if this viewer may see none with this number. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        miss = store.calls.miss(id)
        session = store.sessions.get(miss.session) if miss else None
        if miss is None or not (viewer.sees_all or (session is not None and session.profile == viewer.profile)):
            return None
        exposure = store.sessions.exposure(miss.exposure) if miss.exposure else None
        discovery = store.discoveries.get(miss.discovery) if miss.discovery else None
        told = story.read_story(store, miss, prompts=viewer.sees_all)
        return MissPage(miss, session, exposure, discovery, [*map(story.tell_session, filter(None, [session])), *told])


def read_filter(query: Mapping[str, str], causes: Collection[str], now: float, viewer: Viewer) -> MissFilter:
    """Return the filter that a form sent; what it does not understand counts as not given."""
    days = {"1d": 1, "7d": 7, "30d": 30}.get(query.get("since", ""))
    cause: Any = query.get("cause", "")
    recovered = {"yes": True, "no": False}.get(query.get("recovered", ""))
    return MissFilter(
        since=now - days * 86_400 if days else 0.0,
        server=query.get("server", "")[:200],
        tool=query.get("tool", "")[:200],
        cause=cause if cause in causes else None,
        client=query.get("client", "")[:200],
        profile=viewer.profile,
        recovered=recovered,
    )
