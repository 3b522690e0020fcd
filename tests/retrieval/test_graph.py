"""The dependency graph: which edges definitions tell, and what they do to a ranking."""

from __future__ import annotations

import json

import pytest
from requirements import requirement

from foretool.retrieval.document import Fields, definition_fields
from foretool.retrieval.graph import FIELD, LAMBDA, Edge, Graph, schema_edges
from foretool.storage.records import Tool, ToolId


def read(name: str, takes: str = "", gives: str | None = None, upstream: str = "u", optional: str = "") -> Fields:
    """A tool with these parameters and result fields, separated by blanks."""
    properties = {each: {} for each in (*takes.split(), *optional.split())}
    definition = {"name": name, "inputSchema": {"properties": properties, "required": takes.split()}}
    if gives is not None:
        definition["outputSchema"] = {"properties": {each: {} for each in gives.split()}}
    return definition_fields(Tool(ToolId(f"{upstream}__{name}"), upstream, name, json.dumps(definition).encode(), ""))


def told(tools: list[Fields]) -> dict[tuple[str, str], float]:
    return {(edge.before, edge.after): edge.confidence for edge in Graph(schema_edges(tools))}


@requirement("graph:schema")
def test_a_tool_depends_on_what_gives_the_token_it_requires() -> None:
    login = read("login", "user password", "token expires status")
    delete = read("delete_account", "token", "status")
    (edge,) = Graph(schema_edges([login, delete]))
    told = "schema: u__delete_account requires 'token', u__login gives it"
    assert edge == Edge(ToolId("u__login"), ToolId("u__delete_account"), 0.9, (told,))


def test_fields_that_a_user_often_knows_and_optional_ones_count_less() -> None:
    today = read("get_today", "", "date")
    assert told([today, read("book", "date")]) == {("u__get_today", "u__book"): FIELD}
    assert told([today, read("book", optional="date")]) == {("u__get_today", "u__book"): FIELD / 2}


def test_what_a_tool_only_passes_on_and_words_without_meaning_make_no_edge() -> None:
    assert told([read("a", "token", "token"), read("b", "token")]) == {}
    assert told([read("a", "", "result status"), read("b", "result status")]) == {}


def test_edges_stay_within_an_upstream() -> None:
    tools = [read("login", "", "token", "one"), read("post", "token", None, "two")]
    assert told(tools) == {}


def test_without_output_schemas_names_tell_where_ids_come_from() -> None:
    tools = [read("list_issues", "repo"), read("close_issue", "issue_id"), read("list_pulls", "repo")]
    assert told(tools) == {("u__list_issues", "u__close_issue"): 0.3}


def test_evidence_for_one_pair_adds_up() -> None:
    geocode = read("geocode", "address", "latitude longitude")
    weather = read("weather", "latitude longitude")
    (edge,) = Graph(schema_edges([geocode, weather]))
    assert edge.confidence == pytest.approx(1 - (1 - FIELD) ** 2)
    assert len(edge.evidence) == 2


@requirement("graph:propagation")
def test_a_prerequisite_has_its_share_of_the_best_tool_that_depends_on_it() -> None:
    a, b, c, d = (ToolId(each) for each in "abcd")
    graph = Graph([Edge(a, b, 1.0, ()), Edge(a, c, 0.5, ()), Edge(c, b, 0.5, ()), Edge(d, c, 1.0, ())])
    raised = graph.raised({a: 1.0, b: 4.0, c: 3.0})
    # a: max(1, .9 x 4 by b, .5 x 3 by c) = 3.6; c: .5 x 4 = 2 stays under its own 3; d: .9 x 3 = 2.7.
    assert {tool: round(each.score, 6) for tool, each in raised.items()} == {a: 4 * LAMBDA, d: 3 * LAMBDA}
    assert raised[a].edge == Edge(a, b, 1.0, ())


def test_what_does_not_fit_lifts_nothing() -> None:
    a, b = ToolId("a"), ToolId("b")
    assert Graph([Edge(a, b, 1.0, ())]).raised({b: 0.0}) == {}


def test_both_ends_of_an_edge_are_found() -> None:
    a, b, c = (ToolId(each) for each in "abc")
    graph = Graph([Edge(a, c, 0.5, ()), Edge(b, c, 0.9, ())])
    assert [edge.before for edge in graph.producers(c)] == [b, a]
    assert [edge.after for edge in graph.consumers(a)] == [c]
    assert (list(graph.producers(a)), len(list(graph))) == ([], 2)
