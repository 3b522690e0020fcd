"""What the page shows, read from the store and the config: plain values, no HTML.

Each function opens the store for one request and leaves it as it is. A proxy that runs beside it is not asked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from foretool.server import offline
from foretool.server.app import App
from foretool.server.config.loader import Config
from foretool.server.protocol import jsonrpc
from foretool.server.recording.costs import Costs, add_costs, by_client, read_costs
from foretool.server.trust.held_words import say_waiting
from foretool.server.upstreams.running import find_running, states_by_upstream
from foretool.storage.opening import open_existing_store
from foretool.storage.records import (
    Discovery,
    Exposure,
    Miss,
    MissCount,
    MissFilter,
    Noticed,
    SessionRecord,
    Tool,
    ToolId,
    ToolVersion,
    UpstreamState,
    Usage,
)
from foretool.storage.stores import Store

DAYS: Final = 14
"""How many days the overview looks back."""
SHOWN: Final = 200
"""How many misses and tools one page lists."""
TOP: Final = 5
_Z: Final = 1.959964
"""Of a 95 % interval."""


class Bar(Struct, frozen=True):
    """One day of the chart; heights are shares of the highest, 0 to 1."""

    day: str
    calls: int
    misses: int
    height: float
    missed: float


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
    """The 95 % interval of the miss rate; None without calls."""
    clients: Mapping[str, Costs]
    bars: Sequence[Bar]
    servers: Sequence[ServerRow]
    proxies: int
    tools: int
    full_tokens: int
    most_missed: Sequence[MissCount]
    latest: Sequence[Miss]
    warnings: Sequence[str]


class Step(Struct, frozen=True):
    """One thing on the timeline of a miss."""

    at: float
    kind: str
    what: str
    detail: str = ""
    is_miss: bool = False


class MissPage(Struct, frozen=True):
    """One miss and what stood around it."""

    miss: Miss
    session: SessionRecord | None
    exposure: Exposure | None
    discovery: Discovery | None
    steps: Sequence[Step]


class ToolRow(Struct, frozen=True):
    """One tool in the list of tools."""

    id: ToolId
    upstream: str
    summary: str
    tokens: int
    calls: int
    misses: int
    last_at: float
    is_pinned: bool
    is_yours: bool
    """The user's own words stand in place of the server's."""


class ToolPage(Struct, frozen=True):
    """One tool with what is known of it."""

    tool: Tool
    title: str
    description: str
    schema: str
    """Its input schema as indented JSON."""
    original: str
    """The server's description, where the user has written another one."""
    tokens: int
    usage: Usage | None
    versions: Sequence[ToolVersion]
    misses: Sequence[Miss]


def wilson(hits: int, of: int) -> tuple[float, float] | None:
    """Return the 95 % interval of a share (Wilson's score interval); None if `of` is 0."""
    if not of:
        return None
    share = min(hits / of, 1.0)
    middle = share + _Z * _Z / (2 * of)
    reach = _Z * math.sqrt(share * (1 - share) / of + _Z * _Z / (4 * of * of))
    below = 1 + _Z * _Z / of
    return max(0.0, (middle - reach) / below), min(1.0, (middle + reach) / below)


def read_overview(config: Config) -> Overview:
    """Return what the first page shows. Raises `StorageError`."""
    now = time.time()
    since = now - DAYS * 86_400
    with offline.read(config) as app:
        full = sum(app.catalog.tokens(tool.id) for tool in app.catalog.tools())
        rows = read_costs(app.store, since, now, full)
        total, wanted = add_costs(rows, ""), MissFilter(since=since)
        return Overview(
            total=total,
            bound=wilson(total.misses, total.calls),
            clients=by_client(rows),
            bars=make_bars(rows),
            servers=_read_servers(config, app),
            proxies=len(find_running(app.store.serving.states())),
            tools=len(app.catalog),
            full_tokens=full,
            most_missed=app.store.calls.count_misses(wanted)[:TOP],
            latest=app.store.calls.find_misses(wanted, TOP),
            warnings=(*config.warnings, *config.broken.values()),
        )


def make_bars(rows: Sequence[Costs]) -> list[Bar]:
    """Return calls and misses by day, the oldest first."""
    days: dict[str, list[Costs]] = {}
    for row in rows:
        days.setdefault(row.day, []).append(row)
    sums = {day: add_costs(own, "") for day, own in sorted(days.items())}
    most = max((each.calls for each in sums.values()), default=0) or 1
    return [
        Bar(day, each.calls, each.misses, each.calls / most, min(each.misses, each.calls) / most)
        for day, each in sums.items()
    ]


def _read_servers(config: Config, app: App) -> list[ServerRow]:
    states = states_by_upstream(find_running(app.store.serving.states()))
    held = {name: text for name, (_, text) in say_waiting(app.store.approvals.undecided(), config.servers).items()}
    rows = [
        ServerRow(
            name, server.address, len(app.catalog.of(name)), states.get(name),
            "; ".join(app.catalog.problems.get(name, ())), held.get(name, ""),
        )
        for name, server in config.servers.items()
    ]  # fmt: skip
    rows += [ServerRow(name, "", 0, None, problem, "") for name, problem in config.broken.items()]
    return [*rows, *(ServerRow(name, "", 0, None, "disabled in the config", "") for name in config.disabled)]


def read_misses(config: Config, wanted: MissFilter) -> tuple[int, list[Miss], list[MissCount]]:
    """Return how many misses fit, the newest of them, and the counts by tool and cause. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        counts = store.calls.count_misses(wanted)
        return sum(each.count for each in counts), store.calls.find_misses(wanted, SHOWN), counts


def read_clients(config: Config) -> list[str]:
    """Return the names of the clients on record."""
    with open_existing_store(config.storage) as store:
        return sorted({each.client for each in store.clients.all() if each.client})


def read_miss(config: Config, id: int, noticed: Mapping[Noticed, str]) -> MissPage | None:
    """Return one miss; None if there is none with this number. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        miss = store.calls.miss(id)
        if miss is None:
            return None
        exposure = store.sessions.exposure(miss.exposure) if miss.exposure else None
        discovery = store.discoveries.get(miss.discovery) if miss.discovery else None
        session = store.sessions.get(miss.session)
        return MissPage(miss, session, exposure, discovery, _steps(store, miss, exposure, discovery, session, noticed))


def _steps(
    store: Store, miss: Miss, exposure: Exposure | None, discovery: Discovery | None, session: SessionRecord | None,
    noticed: Mapping[Noticed, str],
) -> list[Step]:  # fmt: skip
    """Return what happened around a miss, in order."""
    steps: list[Step] = []
    if session is not None:
        said = " ".join(filter(None, (session.client or "a client without a name", session.version)))
        steps.append(Step(session.started_at, "session", f"{said} connects", f"profile {session.profile or 'default'}"))
    if exposure is not None:
        what = f"it gets its list; tools of servers: {len(exposure.tools)}, tokens: {exposure.tokens:,}"
        steps.append(Step(exposure.at, "list", what, f"policy {exposure.policy}, {exposure.reason}"))
    if miss.history:
        steps.append(Step(miss.at, "calls", "it calls " + ", then ".join(miss.history)))
    if discovery is not None:
        place = next((each.rank for each in discovery.matches if each.tool == miss.tool), 0)
        found = f"the tool is number {place} of {len(discovery.matches)}" if place else "the tool is not among them"
        what = f"it searches: {discovery.task or '(task not kept)'}"
        steps.append(Step(discovery.at, "search", what, f"confidence {discovery.level}; {found}"))
    call = store.calls.get(miss.call) if miss.call else None
    steps.append(
        Step(miss.at, "miss", f"it needs {miss.tool or 'a tool that was not found'}", noticed[miss.noticed], True)
    )
    if call is not None:
        steps.append(Step(call.at, "call", f"the call ends: {call.outcome}", f"after {call.took_ms:,.0f} ms"))
    kinds = ("session", "list", "calls", "search", "miss", "call")
    return sorted(steps, key=lambda step: (step.at, kinds.index(step.kind)))


def read_tools(config: Config, text: str, server: str) -> tuple[int, list[ToolRow]]:
    """Return how many tools fit and the first of them, the most called first. Raises `StorageError`."""
    with offline.read(config) as app:
        usage = {each.tool: each for each in app.store.calls.usage()}
        pinned = set(app.catalog.pins(config.settings.pin))
        nothing = Usage(ToolId(""), 0, 0, 0.0)
        rows = [
            ToolRow(
                tool.id, tool.upstream, _member(tool, "description").strip().partition("\n")[0][:200],
                app.catalog.tokens(tool.id), used.calls, used.misses, used.last_at, tool.id in pinned,
                tool.name in app.catalog.overrides.of(tool.upstream),
            )
            for tool in app.catalog.tools()
            if (not server or tool.upstream == server) and text.lower() in tool.id.lower()
            for used in (usage.get(tool.id, nothing),)
        ]  # fmt: skip
    rows.sort(key=lambda row: (-row.calls, -row.misses, row.id))
    return len(rows), rows[:SHOWN]


def read_tool(config: Config, name: str) -> ToolPage | None:
    """Return one tool; None if there is none of this exposed name. Raises `StorageError`."""
    with offline.read(config) as app:
        tool = app.catalog.get(ToolId(name))
        if tool is None:
            return None
        kept = next((each for each in app.catalog.listed(tool.upstream) if each.name == tool.name), tool)
        schema = jsonrpc.fields(tool.definition).get("inputSchema")
        said, written = _member(kept, "description"), _member(tool, "description")
        return ToolPage(
            tool=tool,
            title=_member(tool, "title"),
            description=written,
            schema=msgspec.json.format(bytes(schema), indent=2).decode() if schema is not None else "",
            original=said if said != written else "",
            tokens=app.catalog.tokens(tool.id),
            usage=next((each for each in app.store.calls.usage() if each.tool == tool.id), None),
            versions=app.store.catalog.versions(tool.upstream, tool.name),
            misses=[
                each for each in app.store.calls.find_misses(MissFilter(tool=tool.id), TOP) if each.tool == tool.id
            ],
        )


def _member(tool: Tool, name: str) -> str:
    return jsonrpc.member(jsonrpc.Raw(tool.definition), name) or ""


def servers_of(config: Config) -> list[str]:
    """Return the names of all usable servers."""
    return list(config.servers)


def read_filter(query: Mapping[str, str], causes: Collection[str], now: float) -> MissFilter:
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
        recovered=recovered,
    )
