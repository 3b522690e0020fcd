"""The first page: how often a needed tool was hidden, what lists cost, the servers, and what to look at."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from foretool.desk.page.viewer import Viewer, admits
from foretool.server import offline
from foretool.server.app import App
from foretool.server.config.loader import Config
from foretool.server.recording.costs import FEWEST, Costs, add_costs, by_client, read_costs
from foretool.server.trust.held_words import say_waiting
from foretool.server.upstreams.running import find_running, states_by_upstream
from foretool.storage.records import Artifact, Miss, MissCount, MissFilter, ProfileCount, UpstreamState

DAYS: Final = 14
"""How many days the overview looks back."""
LATEST: Final = 30_000
"""Of so many latest calls those of one profile are counted."""
AT_ONCE: Final = 10_000
"""So many calls that are not added up are read for the page; of more it says that they are still to come."""
TOP: Final = 5
_Z: Final = 1.959964
"""Of a 95 % interval."""


class Bar(Struct, frozen=True):
    """One day of the chart; heights are shares of the highest, 0 to 1."""

    day: str
    calls: int
    hidden: int
    height: float
    unseen: float


class ServerRow(Struct, frozen=True):
    """One server of the config."""

    name: str
    address: str
    tools: int
    state: UpstreamState | None
    """As the proxy that started last says; None if no proxy runs."""
    problem: str
    held: str


class Overview(Struct, frozen=True):
    """The first page."""

    total: Costs
    bound: tuple[float, float] | None
    """The 95 % interval of the miss rate; None without a rate."""
    clients: Mapping[str, Costs]
    bars: Sequence[Bar]
    servers: Sequence[ServerRow]
    proxies: int
    tools: int
    full_tokens: int
    models: Sequence[Artifact]
    """What was learned and serves now."""
    most_missed: Sequence[MissCount]
    latest: Sequence[Miss]
    warnings: Sequence[str]
    waiting: int
    """Calls that no figure counts yet, because they are still being added up."""
    fewest: int = FEWEST
    """Tasks whose end is known from which rates are formed."""


def wilson(hits: int, of: int) -> tuple[float, float] | None:
    """Return the 95 % interval of a share (Wilson's score interval); None if `of` is 0."""
    if not of:
        return None
    share = min(hits / of, 1.0)
    middle = share + _Z * _Z / (2 * of)
    reach = _Z * math.sqrt(share * (1 - share) / of + _Z * _Z / (4 * of * of))
    below = 1 + _Z * _Z / of
    return max(0.0, (middle - reach) / below), min(1.0, (middle + reach) / below)


def read_overview(config: Config, viewer: Viewer) -> Overview:
    """Return what the first page shows. Raises `StorageError`."""
    now = time.time()
    since = now - DAYS * 86_400
    with offline.read(config) as app:
        tools = [tool for tool in app.catalog.tools() if admits(config, viewer, tool.upstream)]
        full = sum(app.catalog.tokens(tool.id) for tool in tools)
        waiting = app.store.costs.waiting() if viewer.profile is None else 0
        waiting = waiting if waiting > AT_ONCE else 0
        rows = (
            read_costs(app.store, since, now, full, reads_rest=not waiting)
            if viewer.profile is None
            else count_profile(app.store.browsing.counts(viewer.profile, since, LATEST))
        )
        wanted = MissFilter(since=since, profile=viewer.profile)
        total = add_costs(rows, "")
        return Overview(
            total=total,
            bound=wilson(total.rated_misses, total.rated_calls) if total.has_rates else None,
            clients=by_client(rows),
            bars=make_bars(rows),
            servers=_read_servers(config, app, viewer),
            proxies=len(find_running(app.store.serving.states())),
            tools=len(tools),
            full_tokens=full,
            models=list_models(app) if viewer.sees_all else (),
            most_missed=app.store.calls.count_misses(wanted)[:TOP],
            latest=app.store.calls.find_misses(wanted, TOP),
            warnings=(*config.warnings, *config.broken.values()) if viewer.sees_all else (),
            waiting=waiting,
        )


def count_profile(counts: Iterable[ProfileCount]) -> list[Costs]:
    """Return what one profile did by day and client, the latest day first; tokens are not known of one profile."""
    found: dict[tuple[str, str], Costs] = {}
    for each in counts:
        day = datetime.fromtimestamp(each.at).astimezone().strftime("%Y-%m-%d")
        row = found.setdefault((day, each.client), Costs(day, each.client or "(unnamed)"))
        row.calls += each.calls
        row.hidden += each.hidden
        row.misses += each.misses
        row.discoveries += each.discoveries
    return sorted(found.values(), key=lambda each: (each.day, each.calls, each.client), reverse=True)


def list_models(app: App) -> list[Artifact]:
    """Return what was learned and serves, each kind in words."""
    served = app.store.artifacts.served().values()
    return sorted(served, key=lambda each: each.kind)


def make_bars(rows: Sequence[Costs]) -> list[Bar]:
    """Return calls, and those of tools that lists lacked, by day, the oldest first."""
    days: dict[str, list[Costs]] = {}
    for row in rows:
        days.setdefault(row.day, []).append(row)
    sums = {day: add_costs(own, "") for day, own in sorted(days.items())}
    most = max((each.calls for each in sums.values()), default=0) or 1
    return [Bar(day, each.calls, each.hidden, each.calls / most, each.hidden / most) for day, each in sums.items()]


def _read_servers(config: Config, app: App, viewer: Viewer) -> list[ServerRow]:
    states = states_by_upstream(find_running(app.store.serving.states()))
    held = {name: text for name, (_, text) in say_waiting(app.store.approvals.held(), config.servers).items()}
    rows = [
        ServerRow(
            name, server.address if viewer.sees_all else "", len(app.catalog.of(name)), states.get(name),
            "; ".join(app.catalog.problems.get(name, ())), held.get(name, ""),
        )
        for name, server in config.servers.items() if admits(config, viewer, name)
    ]  # fmt: skip
    if not viewer.sees_all:
        return rows
    rows += [ServerRow(name, "", 0, None, problem, "") for name, problem in config.broken.items()]
    return [*rows, *(ServerRow(name, "", 0, None, "disabled in the config", "") for name in config.disabled)]
