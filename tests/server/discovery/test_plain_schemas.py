"""Schemas without noise, and cut schemas that do not lie."""

from __future__ import annotations

from typing import Any

import pytest

from foretool.server.discovery.plain_schemas import trim, without_noise


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def test_what_says_nothing_to_a_caller_is_left_out() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "get_timeArguments",
        "type": "object",
        "additionalProperties": False,
        "required": [],
        "properties": {
            "time_zone": {"title": "Time Zone", "type": "string", "default": None, "minLength": 0},
            "count": {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991},
            "size": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991, "default": 10},
            "tags": {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {}},
        },
    }
    assert without_noise(schema) == {
        "type": "object",
        "properties": {
            "time_zone": {"type": "string"},
            "count": {"type": "integer"},
            "size": {"type": "integer", "exclusiveMinimum": 0, "default": 10},
            "tags": {"type": "object", "propertyNames": {"type": "string"}},
        },
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"properties": {"title": {"type": "string"}, "$schema": {"type": "string"}, "required": {"const": 1}}},
        {"properties": {"n": {"maximum": 100, "minimum": True, "default": False}}},
        {"properties": {"a": {"title": "The name of the account"}}},
        {"enum": [None, False, {}], "default": 0},
        {"$id": "https://a.example/x", "properties": {"a": {"$ref": "https://a.example/x#/b"}}},
        {"minLength": False, "required": ["a"]},
        True,
        [1],
    ],
)
def test_everything_else_stays(schema: Any) -> None:
    assert without_noise(schema) == schema


def test_a_schema_that_is_nested_without_end_is_read_to_a_depth() -> None:
    deep: dict[str, Any] = {"$schema": "x"}
    for _ in range(500):
        deep = {"properties": {"a": deep}, "$schema": "x"}
    assert "$schema" not in without_noise(deep)


def test_a_cut_schema_keeps_what_a_first_call_needs_and_tells_every_cut() -> None:
    schema = {
        "type": "object",
        "$defs": {"big": {}, "Mode": {"type": "string", "enum": ["a"], "properties": {"again": ref("Mode")}}},
        "required": ["mode"],
        "properties": {
            "mode": {"enum": list(range(50)), "description": "word " * 40},
            "deep": {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "null"}}}}},
            "odd": True,
            "ref": {**ref("Mode"), "description": "how"},
            "lost": ref("nowhere"),
            "one": {"anyOf": [{"type": "null"}] * 6},
        },
    }
    assert trim(schema) == {
        "type": "object",
        "required": ["mode"],
        "properties": {
            "mode": {
                "examples": list(range(12)),
                "description": f"{'word ' * 19}word… (12 of 50 values)",
            },
            "deep": {"type": "object", "properties": {"a": {"type": "object", "description": "(properties: b)"}}},
            "ref": {
                "type": "string", "enum": ["a"], "description": "how",
                "properties": {"again": {"type": "string", "enum": ["a"], "description": "(properties: again)"}},
            },
            "lost": {},
            "one": {"anyOf": [{"type": "null"}] * 4, "description": "(4 of 6 forms)"},
        },
    }  # fmt: skip


def test_properties_that_are_cut_are_named() -> None:
    properties = {f"p{number}": {"type": "string"} for number in range(40)}
    found = trim({"type": "object", "properties": properties, "required": ["p39", "nowhere"]})
    assert list(found["properties"]) == ["p39", *(f"p{number}" for number in range(19))]
    assert found["description"].startswith("(20 more properties: p19, p20,")
    assert found["description"].endswith(", …)")
