"""Draws the graph of TGR from schemas and from values that flowed between calls.

The paper draws it by a discriminator (`bench.papers.published.tgr`), which finds no dependency of other servers.
"""

from __future__ import annotations

from foretool.learning.rankers.tgr import dumps
from foretool.learning.training import Material, Method, Progress, TooLittle
from foretool.retrieval.document import definition_fields
from foretool.retrieval.graph import flow_edges, merge_edges, schema_edges


def train(material: Material, progress: Progress) -> bytes:
    """Return the graph as bytes. Raises `TooLittle`."""
    progress("reading schemas", 0.0)
    read = [definition_fields(tool) for tool in material.tools]
    edges = [*schema_edges(read), *flow_edges(material.flows, {each.id for each in read})]
    if not edges:
        raise TooLittle(f"tgr: no dependency among {len(read)} tools: none gives a field that another takes")
    progress("done", 1.0)
    return dumps(merge_edges(edges))


METHOD = Method(minimum=0, train=train)
"""It learns from schemas; episodes only add to it."""
