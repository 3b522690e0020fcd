"""What a model wrote for a bridge, and what is understood by it. Whole conversations: test_bridge.py."""

from __future__ import annotations

from typing import Any

import pytest

from foretool.server.calls.bridged_calls import read_call
from foretool.server.protocol.jsonrpc import decode_value, raw

SCHEMA = {"type": "object", "properties": {"key": {"type": "string"}, "params": {"type": "object"}, "n": {}}}
NONE: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
ANY = {"type": "object"}


@pytest.mark.parametrize(
    ("schema", "written", "arguments"),
    [
        (SCHEMA, {"name": "t", "arguments": {"key": "A"}}, {"key": "A"}),
        (SCHEMA, {"name": "t", "arguments": '{"key": "A"}'}, {"key": "A"}),
        (SCHEMA, {"name": "t", "arguments": '"{\\"key\\": \\"A\\"}"'}, {"key": "A"}),
        (SCHEMA, '{"name": "t", "arguments": {"key": "A"}}', {"key": "A"}),
        (NONE, {"name": "t"}, {}),
        (NONE, {"name": "t", "arguments": None}, {}),
        (NONE, {"name": "t", "arguments": ""}, {}),
        (NONE, {"name": "t", "arguments": []}, {}),
        (NONE, {"name": "t", "reason": "why not"}, {}),
        (SCHEMA, {"name": "t", "args": {"key": "A"}}, {"key": "A"}),
        (SCHEMA, {"name": "t", "input": '{"key": "A"}', "arguments": {}}, {"key": "A"}),
        (SCHEMA, {"name": "t", "params": {"key": "A"}}, {"key": "A"}),
        (SCHEMA, {"name": "t", "params": {"page": 2}}, {"params": {"page": 2}}),
        (SCHEMA, {"name": "t", "key": "A", "reason": "why not"}, {"key": "A"}),
        (SCHEMA, {"name": "t", "n": 1, "arguments": {"key": "A", "n": 2}}, {"key": "A", "n": 2}),
        (SCHEMA, {"name": "t", "n": 1, "arguments": {"key": "A"}}, {"n": 1, "key": "A"}),
        (ANY, {"name": "t", "x": 1, "handle": "h"}, {"x": 1}),
        (ANY, {"name": "t", "x": 1, "arguments": {"y": 2}}, {"y": 2}),
        (SCHEMA, {"tool": "t", "arguments": {"key": "A"}}, {"key": "A"}),
        (SCHEMA, {"tool_name": "t", "key": "A"}, {"key": "A"}),
        (SCHEMA, {"arguments": {"name": "t", "arguments": {"key": "A"}}}, {"key": "A"}),
        (SCHEMA, {"arguments": {"name": "t", "key": "A"}}, {"key": "A"}),
        (SCHEMA, {"name": "t", "arguments": {"arguments": {"key": "A"}}}, {"key": "A"}),
        (SCHEMA, {"name": "t", "arguments": {"params": {"page": 2}}}, {"params": {"page": 2}}),
        (ANY, {"name": "t", "arguments": {"args": {"key": "A"}}}, {"args": {"key": "A"}}),
        (SCHEMA, {"name": "t", "arguments": "text"}, "text"),
        (SCHEMA, {"name": "t", "arguments": [1]}, [1]),
    ],
)
def test_a_call_is_understood_as_it_is_meant(schema: Any, written: Any, arguments: Any) -> None:
    call = read_call(raw(written))
    assert call.name == "t"
    assert decode_value(call.arguments(schema)) == arguments


def test_a_tool_of_ours_gets_what_stands_beside_its_name_too() -> None:
    call = read_call(raw({"name": "discover_tools", "task": "x", "arguments": {"limit": 3}, "handle": "h"}))
    assert decode_value(call.own_arguments) == {"task": "x", "handle": "h", "limit": 3}


def test_arguments_with_very_many_names_are_taken_as_they_are() -> None:
    many = {"arguments": {f"n{number}": number for number in range(100_001)}}
    call = read_call(raw({"name": "t", "arguments": many, "n": 1}))
    assert call.arguments(SCHEMA) == raw(many), "taking them apart may take a second"
