"""The misses that fit a filter, and one of them with the conversation around it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from foretool.server.config.loader import Config
from foretool.server.page.viewer import Viewer, admits
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Call, Discovery, Exposure, Miss, MissCount, MissFilter, Noticed, SessionRecord
from foretool.storage.stores import Store

SHOWN: Final = 200
"""How many misses one page lists."""
BEFORE_S: Final = 1800.0
AFTER_S: Final = 600.0
"""How long before and after a miss the conversation is told."""
STEPS_BEFORE: Final = 12
STEPS_AFTER: Final = 3


class Step(Struct, frozen=True):
    """One thing on a timeline."""

    at: float
    kind: str
    what: str
    detail: str = ""
    is_miss: bool = False
    miss: int = 0
    """The number of the miss that it was, where the timeline is of more than one."""


class MissPage(Struct, frozen=True):
    """One miss and what stood around it."""

    miss: Miss
    session: SessionRecord | None
    exposure: Exposure | None
    discovery: Discovery | None
    steps: Sequence[Step]


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


def read_miss(config: Config, viewer: Viewer, id: int, noticed: Mapping[Noticed, str]) -> MissPage | None:
    """Return one miss; None if this viewer may see none with this number. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        miss = store.calls.miss(id)
        session = store.sessions.get(miss.session) if miss else None
        if miss is None or not (viewer.sees_all or (session is not None and session.profile == viewer.profile)):
            return None
        exposure = store.sessions.exposure(miss.exposure) if miss.exposure else None
        discovery = store.discoveries.get(miss.discovery) if miss.discovery else None
        return MissPage(miss, session, exposure, discovery, _tell(store, miss, exposure, session, noticed))


def _tell(
    store: Store, miss: Miss, exposure: Exposure | None, session: SessionRecord | None, noticed: Mapping[Noticed, str]
) -> list[Step]:
    """Return what happened around a miss, in order."""
    since, until = miss.at - BEFORE_S, miss.at + AFTER_S
    steps = [
        *map(tell_search, store.discoveries.of_session(miss.session, since, until)),
        *map(tell_call, (call for call in store.calls.of_session(miss.session, since, until))),
    ]
    before = [step for step in sort_steps(steps) if step.at < miss.at or (step.at == miss.at and step.kind != "call")]
    after = [step for step in sort_steps(steps) if step not in before]
    own = Step(miss.at, "miss", f"it needs {miss.tool or 'a tool that was not found'}", noticed[miss.noticed], True)
    first = [tell_session(session)] if session else []
    listed = [tell_list(exposure)] if exposure else []
    return [*sort_steps([*first, *listed, *before[-STEPS_BEFORE:]]), own, *after[:STEPS_AFTER]]


def sort_steps(steps: Collection[Step]) -> list[Step]:
    """Return steps in order; at one instant what was shown comes before what was done."""
    kinds = ("session", "list", "named", "search", "miss", "call")
    return sorted(steps, key=lambda step: (step.at, kinds.index(step.kind)))


def tell_session(session: SessionRecord) -> Step:
    """Return the beginning of a session as a step."""
    said = " ".join(filter(None, (session.client or "a client without a name", session.version)))
    return Step(session.started_at, "session", f"{said} connects", f"profile {session.profile or 'default'}")


def tell_list(shown: Exposure) -> Step:
    """Return a list, or another text that named tools, as a step."""
    if shown.reason in ("list", "growth", "epoch"):
        what = f"it gets its list; tools of servers: {len(shown.tools)}, tokens: {shown.tokens:,}"
        return Step(shown.at, "list", what, f"policy {shown.policy}, {shown.reason}")
    return Step(shown.at, "named", f"it is told of {', '.join(shown.tools)}", f"in a text of kind {shown.reason}")


def tell_search(search: Discovery) -> Step:
    """Return a search as a step."""
    asked = search.task or ", ".join(search.names) or "(task not kept)"
    found = ", ".join(match.tool for match in search.matches[:3]) or "no tool"
    more = f" and {len(search.matches) - 3} more" if len(search.matches) > 3 else ""
    return Step(search.at, "search", f"it searches: {asked}", f"confidence {search.level}; found {found}{more}")


def tell_call(call: Call) -> Step:
    """Return a call as a step."""
    hidden = "; it was not in its list" if call.hidden else ""
    took = "" if call.outcome == "refused" else f" after {call.took_ms:,.0f} ms"
    return Step(call.at, "call", f"it calls {call.tool}", f"{call.outcome}{took}{hidden}")


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
