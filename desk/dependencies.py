"""Which tools need the results of others, and how that is known: the graph that `foretool tools --needs` and the page
show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from foretool.retrieval.document import definition_fields
from foretool.retrieval.graph import Edge, Graph, flow_edges, schema_edges
from foretool.server import offline
from foretool.server.app import App
from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.config.loader import load
from foretool.storage.records import ToolId


def draw_graph(app: App) -> Graph:
    """Return the graph in use, and the edges of schemas and calls that it does not have yet."""
    tools = app.catalog.tools()
    names = {tool.id for tool in tools}
    learned = [edge for edge in learned_graph(app) or () if edge.before in names and edge.after in names]
    pairs = {(edge.before, edge.after) for edge in learned}
    seen = Graph(
        [*schema_edges([definition_fields(tool) for tool in tools]), *flow_edges(app.store.flows.all(), names)]
    )
    return Graph([*learned, *(edge for edge in seen if (edge.before, edge.after) not in pairs)])


def learned_graph(app: App) -> Graph | None:
    """Return the graph that is served, or None if none was learned or none can be read."""
    for _, model in app.store.artifacts.load_intact("tgr"):
        # These import numpy, which only a model needs.
        from foretool.retrieval.model_format import ModelError
        from foretool.server.catalog.models import open_model

        try:
            return open_model("tgr", model).graph
        except ModelError:
            continue
    return None


class Neighbours(Struct, frozen=True):
    """The dependencies of one tool, the surest first."""

    tool: ToolId
    needs: tuple[Edge, ...]
    """From the tools whose results it takes."""
    feeds: tuple[Edge, ...]
    """To the tools that take its result."""
    served: bool
    """Whether a learned graph is in use."""


def show_needs(path: Path | None, tool: str, *, as_json: bool) -> int:
    """Show all edges, the surest first, or those of one tool. Returns the exit status."""
    with offline.open_offline(load(path)) as app:
        found = app.catalog.find(tool) if tool else None
        if tool and found is None:
            return complain(f"tools --needs: {offline.say_unknown(app, tool)}", WRONG)
        with output.waiting("comparing the schemas of all tools"):
            graph = draw_graph(app)
        is_served = learned_graph(app) is not None
    if found is None:
        return output.show(list(graph), as_json, _print_all)
    around = Neighbours(found.id, tuple(graph.producers(found.id)), tuple(graph.consumers(found.id)), is_served)
    return output.show(around, as_json, _print_around)


def _cells(tool: ToolId, edge: Edge) -> tuple[str, str, str]:
    return tool, f"{edge.confidence:.2f}", "; ".join(edge.evidence)


def _print_all(edges: Sequence[Edge]) -> None:
    if not edges:
        output.say("No dependencies between tools are known yet; foretool finds them as tools are called.")
        return
    rows = [(edge.before, *_cells(edge.after, edge)) for edge in edges]
    output.table(("needed first…", "needed by…", "sure#", "because…"), rows)


def _print_around(around: Neighbours) -> None:
    needs = [_cells(edge.before, edge) for edge in around.needs]
    feeds = [_cells(edge.after, edge) for edge in around.feeds]
    for verb, rows in (("needs", needs), ("feeds", feeds)):
        if rows:
            output.table(("tool…", "sure#", "because…"), rows, title=f"{around.tool} {verb}")
    if not around.needs and not around.feeds:
        output.say(f"{around.tool}: no known dependencies.")
    elif not around.served:
        output.say("Ranking does not use this yet; `foretool learn` checks whether it helps.", "dim")
