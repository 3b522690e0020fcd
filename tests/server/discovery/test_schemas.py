"""Schemas in an answer: whole, trimmed, with their shared definitions said once."""

from __future__ import annotations

from typing import Any

from foretool.retrieval.tokens import estimate
from foretool.server.discovery.schemas import Schemas
from foretool.server.protocol.jsonrpc import decode_value, encode
from foretool.storage.records import Tool, ToolId


def tool(name: str, properties: dict[str, Any], **members: Any) -> Tool:
    schema = {"type": "object", "properties": properties, **members}
    return Tool(ToolId(name), "calc", name, encode({"name": name, "inputSchema": schema}), "")


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def added(tools: list[Tool], left: int = 10_000, cap: int = 1000) -> tuple[list[dict[str, Any]], Schemas]:
    schemas, cards = Schemas(left, cap), [{"name": one.name} for one in tools]
    for one, card in zip(tools, cards, strict=True):
        schemas.add(card, one)
    return cards, schemas


def schemas_of(cards: list[dict[str, Any]]) -> list[Any]:
    return [decode_value(card["inputSchema"]) for card in cards]


POINT = {"type": "object", "properties": {"x": {"type": "number"}}}
LINE = {"type": "object", "properties": {"from": ref("Point")}}


def test_a_shared_definition_never_refers_to_one_that_is_not() -> None:
    one = tool("a", {"l": ref("Line")}, **{"$defs": {"Line": LINE, "Point": POINT}})
    other = tool("b", {"l": ref("Line")}, **{"$defs": {"Line": LINE}})
    cards, schemas = added([one, other])
    assert schemas.shared() == {}
    assert schemas_of(cards)[0]["$defs"] == {"Line": LINE, "Point": POINT}


def test_a_shared_definition_costs_its_tokens_once() -> None:
    big = {"type": "string", "description": "word " * 100}
    tools = [tool(name, {"p": ref("Big")}, **{"$defs": {"Big": big}}) for name in ("a", "b", "c")]
    _, alone = added(tools[:1])
    _, all_three = added(tools)
    first, more = 10_000 - alone.left, alone.left - all_three.left
    assert first > estimate(big["description"])
    assert 0 < more < first / 2


def test_a_schema_whose_definitions_are_no_object_is_taken_as_it_is() -> None:
    cards, schemas = added([tool("a", {}, **{"$defs": [1]}), tool("b", {}, **{"$defs": [1]})])
    assert schemas.shared() == {}
    assert schemas_of(cards)[1]["$defs"] == [1]


def test_nothing_is_added_beyond_the_budget_but_what_was_asked_for() -> None:
    wide = tool("wide", {f"p{n}": {"type": "string", "description": "text " * 20} for n in range(40)})
    schemas, card = Schemas(5, 300), {}
    schemas.add(card, wide)
    said = 'its schema is left out; discover_tools(names=["wide"]) shows it'
    assert card == {"call": "wide(p0?: string, p1?: string, …)", "trimmed": said}
    schemas.add(card, wide, whole=True)
    assert len(decode_value(card["inputSchema"])["properties"]) == 40
    assert schemas.left < 0


def test_of_a_schema_that_is_too_large_even_when_trimmed_the_outermost_properties_are_shown() -> None:
    inner = {
        "type": "object",
        "properties": {f"q{n}": {"type": "string", "description": "text " * 20} for n in range(20)},
    }
    deep = tool("deep", {f"p{n}": inner for n in range(15)})
    schemas, card = Schemas(1000, 300), {}
    schemas.add(card, deep)
    shown = decode_value(card["inputSchema"])["properties"]
    assert list(shown) == [f"p{n}" for n in range(15)]
    assert shown["p0"] == {
        "type": "object",
        "description": "(properties: q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11, …)",
    }
    assert card["trimmed"] == 'discover_tools(names=["deep"]) shows the whole schema'
    assert schemas.left >= 0
