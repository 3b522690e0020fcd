"""Which proxies run, by what each has on record of its upstreams; a killed one does not take that back."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from msgspec import Struct

from foretool.server.system.processes import is_running, machine_name
from foretool.server.upstreams.upstream import State
from foretool.storage.records import UpstreamState

FAILING: Final = frozenset((State.RETRYING.value, State.UNLISTED.value))
"""States in which an upstream needs somebody's help."""
BEAT_S: Final = 30.0
"""How often a proxy says that it runs, where other machines use the same database."""
GONE_S: Final = 180.0
"""A proxy of another machine that was silent for so long does not run any more, also if the clocks differ a little."""


class RecordedProxy(Struct, frozen=True):
    """A process that serves, or that was killed while serving."""

    pid: int
    started_at: float
    is_running: bool
    upstreams: tuple[UpstreamState, ...]
    machine: str = ""
    """The other machine on which it runs; "" for this one."""


def find_proxies(states: Iterable[UpstreamState]) -> list[RecordedProxy]:
    """Return the proxies that these states belong to, the one that started first at the head."""

    here, now = machine_name(), time.time()

    def by_proxy(state: UpstreamState) -> tuple[float, str, int]:
        return state.started_at, "" if state.machine == here else state.machine, state.pid

    found = []
    for (started_at, machine, pid), group in groupby(sorted(states, key=by_proxy), by_proxy):
        own = tuple(group)
        runs = now - max(each.seen_at for each in own) < GONE_S if machine else is_running(pid, started_at)
        found.append(RecordedProxy(pid, started_at, runs, own, machine))
    return found


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
