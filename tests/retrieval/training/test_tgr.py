"""Training draws a graph from schemas, with the evidence of each edge."""

from __future__ import annotations

import json

import pytest

from foretool.retrieval.rankers.tgr import Tgr
from foretool.retrieval.training import Material, TooLittle
from foretool.retrieval.training.tgr import METHOD
from foretool.storage.records import Tool, ToolId


def tool(name: str, takes: str, gives: str) -> Tool:
    definition = {
        "name": name,
        "inputSchema": {"properties": {each: {} for each in takes.split()}, "required": takes.split()},
        "outputSchema": {"properties": {each: {} for each in gives.split()}},
    }
    return Tool(ToolId(f"u__{name}"), "u", name, json.dumps(definition).encode(), "")


TOOLS = (tool("login", "user", "token"), tool("post", "token text", "post_id"), tool("sum", "a b", "total"))


def nothing(_: str, __: float) -> None:
    """No progress is shown."""


def test_training_leaves_a_graph_with_its_evidence() -> None:
    model = Tgr.loads(METHOD.train(Material(TOOLS, ()), nothing))
    (edge,) = model.graph.producers(ToolId("u__post"))
    assert (edge.before, edge.evidence) == ("u__login", ("schema: u__post requires 'token', u__login gives it",))


def test_tools_without_any_dependency_are_too_little() -> None:
    with pytest.raises(TooLittle, match="no dependency among 1 tools"):
        METHOD.train(Material(TOOLS[2:], ()), nothing)
