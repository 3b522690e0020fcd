"""How much work a schema may be: a bound for what tools have, none for what may run away."""

from __future__ import annotations

from typing import Any

import pytest

from foretool.server.methods.schema_work import MOST_NESTED, MOST_PARTS, estimate_work

TEXT = {"type": "string"}
DEFS = {"Point": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"a": TEXT, "b": {"enum": ["x", "y"], "default": {"deep": [{}]}}}},
        {"properties": {"a": {"anyOf": [TEXT, {"type": "null"}]}}, "required": ["a"], "additionalProperties": False},
        {"$defs": DEFS, "properties": {"from": {"$ref": "#/$defs/Point"}, "to": {"$ref": "#/$defs/Point"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"type": "array", "items": TEXT}}},
    ],
)
def test_what_most_tools_have_has_a_small_bound(schema: dict[str, Any]) -> None:
    work = estimate_work(schema)
    assert work is not None and work < 40


def union(steps: int) -> dict[str, Any]:
    defs: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(steps)}
    return {"$defs": {**defs, f"d{steps}": TEXT}, "$ref": "#/$defs/d0"}


def test_each_step_of_unions_of_references_multiplies_the_bound() -> None:
    small, large = estimate_work(union(5)), estimate_work(union(15))
    assert small is not None and large is not None
    assert small > 4**5 and large > 4**15


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}},
        {"patternProperties": {"^(a+)+$": {}}},
        {"properties": {"a": {"$ref": "#"}}},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$ref": "https://example.org/schema"},
        {"$ref": "#/nowhere"},
        {"$id": "urn:x"},
        {"$schema": "urn:mine"},
        {"uniqueItems": True},
        {"if": {}, "then": {}},
        {"const": {"a": 1}},
        {"enum": [[[1]]]},
        {"items": [TEXT]},
        {"properties": {"a": 1}},
        {"properties": {"a": {"type": "string", "format": "regex"}}},
        {"properties": {f"p{number}": TEXT for number in range(MOST_PARTS)}},
        nested(MOST_NESTED + 1),
        nested(100_000),
    ],
)
def test_what_may_run_away_has_none(schema: dict[str, Any]) -> None:
    assert estimate_work(schema) is None
