"""Which proxies run, by what each has on record of its upstreams; a killed one does not take that back."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from msgspec import Struct

from foretool.server.system.processes import is_running
from foretool.server.upstreams.upstream import State
from foretool.storage.records import UpstreamState

FAILING: Final = frozenset((State.RETRYING.value, State.UNLISTED.value))
"""States in which an upstream needs somebody's help."""


class RecordedProxy(Struct, frozen=True):
    """A process that serves, or that was killed while serving."""

    pid: int
    started_at: float
    is_running: bool
    upstreams: tuple[UpstreamState, ...]


def find_proxies(states: Iterable[UpstreamState]) -> list[RecordedProxy]:
    """Return the proxies that these states belong to, the one that started first at the head."""

    def by_proxy(state: UpstreamState) -> tuple[float, int]:
        return state.started_at, state.pid

    return [
        RecordedProxy(pid, started_at, is_running(pid, started_at), tuple(own))
        for (started_at, pid), own in groupby(sorted(states, key=by_proxy), by_proxy)
    ]


def find_running(states: Iterable[UpstreamState]) -> list[RecordedProxy]:
    """Return the proxies that run, the one that started first at the head."""
    return [proxy for proxy in find_proxies(states) if proxy.is_running]


def states_by_upstream(proxies: Iterable[RecordedProxy]) -> dict[str, UpstreamState]:
    """Return one state of each upstream: one that fails if there is one, else that of the last proxy."""
    found: dict[str, UpstreamState] = {}
    for proxy in proxies:
        for state in proxy.upstreams:
            known = found.get(state.upstream)
            if known is None or known.state not in FAILING or state.state in FAILING:
                found[state.upstream] = state
    return found
