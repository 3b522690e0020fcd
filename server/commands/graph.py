"""`foretool graph`: which tools need what others give, and how that is known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from foretool.retrieval.fields import fields
from foretool.retrieval.graph import Edge, Graph, flow_edges, schema_edges
from foretool.server import offline
from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load
from foretool.server.offline import Offline
from foretool.storage.records import ToolId


@dataclass(frozen=True, slots=True)
class Around:
    """One tool's place in the graph."""

    tool: ToolId
    needs: tuple[Edge, ...]
    """What gives what it takes, the surest first."""
    feeds: tuple[Edge, ...]
    served: bool
    """Whether the graph in use, rather than one not learned yet, says so."""


@click.group("graph", invoke_without_command=True)
@config_option
@json_option
@click.pass_context
def command(context: click.Context, path: Path | None, as_json: bool) -> int:
    """Show which tools need what others give.

    Edges come from schemas (a tool takes a field that another gives), from calls (a value of one answer came back as an
    argument of another tool; the names of the fields are kept, never the value), and from training. Without a
    subcommand all of them are listed, the surest first.
    """
    if context.invoked_subcommand is not None:
        return 0
    config = load(path)
    with offline.read(config) as known:
        edges = list(drawn(known))
    if as_json:
        output.emit(edges)
        return 0
    if not edges:
        output.say("No tool of this config is known to need another's answer; calls will tell.")
        return 0
    output.table("", ("needed first", "by", "sure#", "because…"), [_row(edge) for edge in edges])
    return 0


@command.command("show")
@click.argument("tool")
@config_option
@json_option
def show(path: Path | None, as_json: bool, tool: str) -> int:
    """Show what one TOOL needs, and what needs it."""
    config = load(path)
    with offline.read(config) as known:
        found = known.app.catalog.find(tool)
        if found is None:
            close, _ = known.app.catalog.near(tool)
            meant = f"; did you mean {', '.join(close)}?" if close else ""
            return complain(f"graph show: no tool {tool!r} is known{meant} `foretool tools` lists them", WRONG)
        graph = Graph(drawn(known))
        served = _learned(known) is not None
    around = Around(found.id, tuple(graph.producers(found.id)), tuple(graph.consumers(found.id)), served)
    if as_json:
        output.emit(around)
    else:
        _print(around)
    return 0


def drawn(known: Offline) -> Graph:
    """All that is known: the graph in use, and what schemas and calls say that it does not have yet."""
    tools = known.app.catalog.tools()
    read = [fields(tool) for tool in tools]
    learned = _learned(known)
    names = {tool.id for tool in tools}
    told = [edge for edge in learned or () if edge.before in names and edge.after in names]
    have = {(edge.before, edge.after) for edge in told}
    now = Graph([*schema_edges(read), *flow_edges(known.store.flows.all(), names)])
    return Graph([*told, *(edge for edge in now if (edge.before, edge.after) not in have)])


def _learned(known: Offline) -> Graph | None:
    """The graph that serves, if one was learned and is whole."""
    # numpy is worth importing only where there is a model to read.
    for _, model in known.store.artifacts.load_intact("tgr"):
        from foretool.retrieval.model_format import ModelError
        from foretool.retrieval.rankers.tgr import Tgr

        try:
            return Tgr.loads(model).graph
        except ModelError:
            continue
    return None


def _row(edge: Edge) -> tuple[str, str, str, str]:
    return edge.before, edge.after, f"{edge.confidence:.2f}", "; ".join(edge.evidence)


def _print(around: Around) -> None:
    needs = [(edge.before, f"{edge.confidence:.2f}", "; ".join(edge.evidence)) for edge in around.needs]
    feeds = [(edge.after, f"{edge.confidence:.2f}", "; ".join(edge.evidence)) for edge in around.feeds]
    for title, rows in ((f"{around.tool} needs", needs), (f"{around.tool} feeds", feeds)):
        if rows:
            output.table(title, ("tool", "sure#", "because…"), rows)
    if not needs and not feeds:
        output.say(f"{around.tool} needs no other tool's answer, and none needs its, as far as is known.")
    if not around.served:
        output.say("Not used for ranking yet: `foretool learn` tries whether it helps.", "dim")
