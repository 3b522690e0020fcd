"""One tool: its words, its versions, what it needs and feeds, who calls it after what, and when it was missed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec
from msgspec import Struct
from rich.text import Text

from foretool.desk.dependencies import draw_graph
from foretool.desk.page.tools import read_usage, text_member
from foretool.desk.page.viewers import Viewer, admits
from foretool.retrieval.graph import Edge, Graph
from foretool.server import offline
from foretool.server.app import App
from foretool.server.config.loader import Config
from foretool.server.ledger.diffs import diff_definitions
from foretool.server.lists.maker import Place
from foretool.server.offline import ReadWordings, find_wordings
from foretool.server.protocol import jsonrpc
from foretool.storage.records import Miss, MissFilter, Neighbour, Tool, ToolId, ToolVersion, Usage

_TOP: Final = 5
"""How many misses of it are named."""
_MOST: Final = 8
"""How many neighbours of it are named on each side."""
_VERSIONS: Final = 20
"""How many of its latest versions are shown."""
_LATEST: Final = 20_000
"""Of so many latest calls it is counted what comes before and after the tool."""


class Version(Struct, frozen=True):
    """One earlier or present definition of a tool, and how it differs from the one before."""

    hash: str
    first_seen: float
    tokens: int | None
    lines: Sequence[Text]
    """Empty for the first one."""


class ToolPage(Struct, frozen=True):
    tool: Tool
    title: str
    description: str
    schema: str
    """Its input schema as indented JSON."""
    original: str
    """The server's description, where the user has written another one."""
    wordings: ReadWordings | None
    """What a language model has written for the search."""
    tokens: int
    usage: Usage | None
    place: Place
    """Where the list of the next client has it."""
    waits: str
    """What the state of its review is, "" if nothing of it waits."""
    versions: Sequence[Version]
    """The newest first."""
    needs: Sequence[Edge]
    feeds: Sequence[Edge]
    before: Sequence[Neighbour]
    after: Sequence[Neighbour]
    misses: Sequence[Miss]


def read_tool(config: Config, viewer: Viewer, name: str, graphs: Graphs) -> ToolPage | None:
    """Return one tool; None if this viewer may see none of this exposed name. Raises `StorageError`."""
    with offline.open_offline(config) as app:
        tool = app.catalog.get(ToolId(name))
        if tool is None or not admits(config, viewer, tool.upstream):
            return None
        kept = next((each for each in app.catalog.listed(tool.upstream) if each.name == tool.name), tool)
        schema = jsonrpc.fields(tool.definition).get("inputSchema")
        said, written = text_member(kept, "description"), text_member(tool, "description")
        graph = graphs.draw(app)
        needs = [edge for edge in graph.producers(tool.id) if _may_see(app, config, viewer, edge.before)][:_MOST]
        feeds = [edge for edge in graph.consumers(tool.id) if _may_see(app, config, viewer, edge.after)][:_MOST]
        neighbours = app.store.browsing.neighbours(tool.id, _LATEST, viewer.profile)
        profile = config.profiles.get(viewer.profile or "", config.profiles[""])
        return ToolPage(
            tool=tool,
            title=text_member(tool, "title"),
            description=written,
            schema=msgspec.json.format(bytes(schema), indent=2).decode() if schema is not None else "",
            original=said if said != written else "",
            wordings=find_wordings(app.catalog, app.store, tool, with_shipped=config.settings.shipped_wordings),
            tokens=app.catalog.tokens(tool.id),
            usage=read_usage(app, viewer).get(tool.id),
            place=offline.view(app, profile).place_of(tool.id),
            waits=_read_state(app, tool),
            versions=_read_versions(app.store.catalog.versions(tool.upstream, tool.name)),
            needs=needs,
            feeds=feeds,
            before=[each for each in neighbours if each.is_before][:_MOST],
            after=[each for each in neighbours if not each.is_before][:_MOST],
            misses=[
                each
                for each in app.store.calls.find_misses(MissFilter(tool=tool.id, profile=viewer.profile), _TOP)
                if each.tool == tool.id
            ],
        )


class Graphs:
    """Keeps the graph of all tools, which compares every schema with every other, until a tool changes."""

    def __init__(self) -> None:
        self._made_from: object = None
        self._graph = Graph()

    def draw(self, app: App) -> Graph:
        """Return the graph of the tools, the calls and the trained model as they are now."""
        flows = app.store.flows.all()
        newest = max((flow.last_at for flow in flows), default=0.0)
        made_from = (
            {tool.schema_hash for tool in app.catalog.tools()},
            len(flows),
            newest,
            app.store.artifacts.version,
        )
        if made_from != self._made_from:
            self._graph, self._made_from = draw_graph(app), made_from
        return self._graph


def _may_see(app: App, config: Config, viewer: Viewer, name: ToolId) -> bool:
    tool = app.catalog.get(name)
    return tool is not None and admits(config, viewer, tool.upstream)


def _read_state(app: App, tool: Tool) -> str:
    undecided = app.store.approvals.undecided(tool.upstream)
    return next((each.state for each in undecided if each.kind == "tool" and each.name == tool.name), "")


def _read_versions(versions: Sequence[ToolVersion]) -> list[Version]:
    latest = versions[-_VERSIONS:]
    lines = [
        [],
        *(diff_definitions(old.definition, new.definition) for old, new in pairwise(latest)),
    ]
    found = [
        Version(each.schema_hash, each.first_seen, each.tokens, difference)
        for each, difference in zip(latest, lines, strict=True)
    ]
    return found[::-1]
