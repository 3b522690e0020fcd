"""Which tools need the results of others: the graph that `foretool tools --needs` and the page show."""

from __future__ import annotations

from foretool.retrieval.document import definition_fields
from foretool.retrieval.graph import Graph, flow_edges, schema_edges
from foretool.server.app import App


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
