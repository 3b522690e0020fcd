"""Arguments of `call_tool`. Whole conversations: tests/scenarios/test_bridge.py."""

from __future__ import annotations

from typing import Any

import pytest

from foretool.server.methods.call_tool import argument_errors


@pytest.mark.parametrize(
    ("schema", "arguments", "errors"),
    [
        ({"type": "object", "required": ["a"]}, {}, 1),
        ({"type": "object", "properties": {"a": {"type": "number"}}}, {"a": "x"}, 1),
        ({"type": "object"}, {"a": 1}, 0),
        ({"type": "object", "properties": {"a": {"$ref": "https://example.org/x"}}}, {"a": 1}, 0),
        ({"type": 5}, {}, 0),
    ],
)
def test_arguments_are_checked_by_the_schema_and_a_broken_schema_checks_nothing(
    schema: dict[str, Any], arguments: Any, errors: int
) -> None:
    assert len(argument_errors(schema, arguments)) == errors
