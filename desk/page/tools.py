"""The tools by server: what each costs, how it is used, and whether clients see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from foretool.desk.page.viewers import Viewer, admits
from foretool.server import offline
from foretool.server.app import App
from foretool.server.config.loader import Config
from foretool.server.lists.maker import Place
from foretool.server.protocol import jsonrpc
from foretool.storage.records import Tool, ToolId, Usage

_SHOWN: Final = 200
"""How many tools the page names, shared by the servers."""
FEWEST: Final = 5
"""How many tools of each server it names at the fewest."""
_LATEST: Final = 30_000
"""Of so many latest calls the use of one profile is counted."""
_NEVER: Final = Usage(ToolId(""), 0, 0, 0.0)

Use = Literal["", "used", "never", "missed", "defined", "named", "hidden"]


class ToolRow(Struct, frozen=True):
    id: ToolId
    upstream: str
    summary: str
    tokens: int
    calls: int
    misses: int
    last_at: float
    place: Place
    """Where the list of the next client has it."""
    is_pinned: bool
    is_yours: bool
    """The user's own words stand in place of the server's."""
    waits: bool
    """A change of it waits for review."""


class ToolGroup(Struct, frozen=True):
    """The tools of one server that fit."""

    server: str
    tools: Sequence[ToolRow]
    """The first of them, the most called first."""
    total: int
    tokens: int
    calls: int
    misses: int


class ToolsPage(Struct, frozen=True):
    """The tools that fit, by server; the server with most calls comes first."""

    total: int
    groups: Sequence[ToolGroup]
    is_open: bool
    """Somebody has asked for some of them, so that they are shown at once."""
    shown: int = _SHOWN


def matching_tools(config: Config, viewer: Viewer, text: str, server: str, use: str) -> ToolsPage:
    """Return the tools that fit: `text` is a part of the name or of the first line of the description. Raises
    `StorageError`."""
    with offline.open_offline(config) as app:
        usage = read_usage(app, viewer)
        profile = config.profiles.get(viewer.profile or "", config.profiles[""])
        view = offline.view(app, profile)
        pinned = set(app.catalog.pins(profile.pin))
        held = {(each.server, each.name) for each in app.store.approvals.undecided() if each.kind == "tool"}
        rows = [
            ToolRow(
                tool.id, tool.upstream, text_member(tool, "description").strip().partition("\n")[0][:200],
                app.catalog.tokens(tool.id), used.calls, used.misses, used.last_at, view.place_of(tool.id),
                tool.id in pinned, tool.name in app.catalog.overrides.of(tool.upstream),
                (tool.upstream, tool.name) in held,
            )
            for tool in app.catalog.tools()
            if admits(config, viewer, tool.upstream) and (not server or tool.upstream == server)
            for used in (usage.get(tool.id, _NEVER),)
        ]  # fmt: skip
    rows = [row for row in rows if _fits(row, use) and text.lower() in f"{row.id}\n{row.summary}".lower()]
    rows.sort(key=lambda row: (-row.calls, -row.misses, row.id))
    by_server: dict[str, list[ToolRow]] = {}
    for row in rows:
        by_server.setdefault(row.upstream, []).append(row)
    most = max(_SHOWN // max(len(by_server), 1), FEWEST)
    groups = [_sum_up(name, own, most) for name, own in by_server.items()]
    groups.sort(key=lambda each: (-each.calls, each.server))
    return ToolsPage(len(rows), groups, bool(text or server or use))


def _sum_up(server: str, rows: Sequence[ToolRow], most: int) -> ToolGroup:
    return ToolGroup(
        server, rows[:most], len(rows), sum(row.tokens for row in rows), sum(row.calls for row in rows),
        sum(row.misses for row in rows),
    )  # fmt: skip


def _fits(row: ToolRow, use: str) -> bool:
    fits = {
        "used": row.calls > 0,
        "never": row.calls == 0,
        "missed": row.misses > 0,
        "defined": row.place == "defined",
        "named": row.place == "named",
        "hidden": row.place == "hidden",
    }
    return fits.get(use, True)


def read_usage(app: App, viewer: Viewer) -> dict[ToolId, Usage]:
    """Return how often each tool was called and missed, as far as this viewer may know."""
    if viewer.profile is None:
        return {each.tool: each for each in app.catalog.meanings.count_under_new_names(app.store.calls.usage())}
    return {each.tool: each for each in app.store.browsing.usage(viewer.profile, _LATEST)}


def text_member(tool: Tool, name: str) -> str:
    """Return a text member of a definition, or ""."""
    return jsonrpc.member(jsonrpc.Raw(tool.definition), name) or ""
