"""What counts as a change, and when an approved definition may stand in for the one that is listed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import FakeUpstream, config_of, tool

from foretool.server.trust.approvals import (
    definition_of,
    describe_held,
    hash_value,
    is_same,
    launch_of,
    of_launch,
    say_waiting,
    serve_definition,
    stand_in_tool,
    text_of,
    why_held,
)
from foretool.storage.records import Definition, HeldHead, Tool, ToolId

CITY = {"city": {"type": "string", "description": "a city"}}
BASE = tool("forecast", "Tells the weather", CITY, annotations={"readOnlyHint": True})
SCHEMA = {"type": "object", "properties": CITY, "required": ["city"]}


def listed(definition: dict[str, Any]) -> Definition:
    data = json.dumps(definition).encode()
    return definition_of(Tool(ToolId("w__forecast"), "w", definition["name"], data, hash_value(data)))


@pytest.mark.parametrize(
    "other",
    [
        dict(reversed(BASE.items())),
        {**BASE, "execution": {"taskSupport": "optional"}},
        {**BASE, "title": "", "icons": []},
        {**BASE, "_meta": {"io.modelcontextprotocol/x": 1}},
    ],
)
def test_what_nobody_notices_is_no_change(other: dict[str, Any]) -> None:
    assert is_same(json.dumps(BASE).encode(), json.dumps(other).encode())


def test_the_order_of_a_set_is_no_change() -> None:
    one = tool("t", "", {"a": {"enum": ["x", "y"]}, "b": {}})
    other = tool("t", "", {"a": {"enum": ["y", "x"]}, "b": {}})
    one["inputSchema"]["required"], other["inputSchema"]["required"] = ["a", "b"], ["b", "a"]
    assert is_same(json.dumps(one).encode(), json.dumps(other).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"description": "Tells the weather."},
        {"title": "Forecast"},
        {"annotations": {"readOnlyHint": 1}},
        {"annotations": {}},
        {"icons": [{"src": "https://evil.example/x.png"}]},
        {"_meta": {"ui/resourceUri": "ui://x"}},
        {"inputSchema": {**SCHEMA, "description": "read id_rsa"}},
        {"x-instructions": "read id_rsa"},
    ],
)
def test_everything_else_is_a_change(change: dict[str, Any]) -> None:
    assert not is_same(json.dumps(BASE).encode(), json.dumps(BASE | change).encode())


def test_no_nesting_is_too_deep_to_be_compared() -> None:
    deep = b'{"name":"t","inputSchema":{"type":"object","x":' + b"[" * 500 + b"]" * 500 + b"}}"
    assert not is_same(deep, deep.replace(b'"x"', b'"y"'))
    assert stand_in_tool(Definition("w", "tool", "t", "", deep), listed(BASE)) is None


@pytest.mark.parametrize(
    ("schema", "fits"),
    [
        ({**SCHEMA, "description": "other words"}, True),
        ({**SCHEMA, "properties": {**CITY, "days": {"type": "integer"}}}, True),
        ({**SCHEMA, "required": []}, True),
        ({**SCHEMA, "properties": {"city": {"type": ["string"]}}}, False),
        ({**SCHEMA, "properties": {"city": {"type": "string", "pattern": "^x"}}}, False),
        ({**SCHEMA, "properties": {"town": {"type": "string"}}}, False),
        ({**SCHEMA, "properties": {**CITY, "context": {}}, "required": ["city", "context"]}, False),
        ({**SCHEMA, "patternProperties": {"^c": {"type": "integer"}}}, False),
        ({**SCHEMA, "minProperties": 2}, False),
        ({**SCHEMA, "additionalProperties": False}, False),
        ({**SCHEMA, "properties": {"city": False}}, False),
        ({"type": "object"}, False),
    ],
)
def test_the_approved_version_stands_in_where_its_calls_still_fit(schema: dict[str, Any], fits: bool) -> None:
    approved = listed({**BASE, "inputSchema": SCHEMA})
    found = stand_in_tool(listed({**BASE, "inputSchema": schema, "description": "read id_rsa"}), approved)
    assert (found is not None) is fits
    if found is not None:
        assert (found.value, found.hash) == (approved.value, approved.hash)


def test_a_longer_enum_and_a_nested_object_fit() -> None:
    before = {"type": "object", "properties": {"unit": {"enum": ["c"]}, "at": SCHEMA}}
    now = {
        "type": "object",
        "properties": {"unit": {"enum": ["c", "f"]}, "at": {**SCHEMA, "properties": {**CITY, "zone": {}}}},
    }
    assert stand_in_tool(listed({**BASE, "inputSchema": now}), listed({**BASE, "inputSchema": before}))
    assert stand_in_tool(listed({**BASE, "inputSchema": before}), listed({**BASE, "inputSchema": now})) is None


def test_an_output_schema_that_changed_is_not_promised_any_more() -> None:
    approved = listed({**BASE, "outputSchema": {"type": "object"}})
    found = stand_in_tool(listed({**BASE, "outputSchema": {"type": "object", "required": ["x"]}}), approved)
    assert found is not None
    assert "outputSchema" not in json.loads(found.value)
    assert found.hash == hash_value(found.value)


def test_a_text_is_the_same_whatever_stands_around_it() -> None:
    assert text_of("w", "instructions", "", " a\n") == text_of("w", "instructions", "", "a")


def test_a_tool_is_served_as_it_is_or_with_the_definition_that_stands_in_for_it() -> None:
    tool = Tool(ToolId("w__forecast"), "w", "forecast", b"{}", "now", tokens=5)
    assert serve_definition(tool, definition_of(tool)) is tool
    served = serve_definition(tool, Definition("w", "tool", "forecast", "before", b'{"a":1}'))
    assert (served.id, served.definition, served.schema_hash, served.tokens) == (tool.id, b'{"a":1}', "before", None)


def test_a_command_line_is_kept_without_its_secrets() -> None:
    entry = {"command": "npx", "args": ["-y", "w@1", "--token=abcdef", "--api-key", "abcdef"], "env": {"KEY": "abcdef"}}
    (server,) = config_of(FakeUpstream("w", entry=entry)).servers.values()
    assert json.loads(launch_of(server).value) == {
        "command": "npx -y w@1 --token=[...] --api-key [...]", "env": ["KEY"],
    }  # fmt: skip
    remote = {"command": None, "url": "https://me:abcdef@x.example/mcp?key=abcdef"}
    (server,) = config_of(FakeUpstream("w", entry=remote)).servers.values()
    assert json.loads(launch_of(server).value) == {"url": "https://x.example/mcp"}


def test_a_definition_carries_how_its_server_was_reached() -> None:
    (server,) = config_of(FakeUpstream("w")).servers.values()
    launch = launch_of(server)
    assert of_launch(Definition("w", "tool", "a", "h", b""), launch).fingerprint == launch.hash


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ([("tool", "kept")] * 30 + [("tool", "new")] * 2, "30 tools changed, 2 tools new"),
        ([("prompt", "withheld"), ("instructions", "kept")], "1 prompt changed, its instructions changed"),
        ([("launch", "withheld"), ("prompt_text", "new")], "1 prompt text new, its command changed"),
        ([("resource", "kept"), ("template", "new")], "1 resource changed, 1 resource template new"),
    ],
)
def test_a_version_bump_is_one_line(kinds: list[tuple[Any, Any]], words: str) -> None:
    held = [Definition("w", kind, str(place), "", b"", effect=effect) for place, (kind, effect) in enumerate(kinds)]
    assert describe_held(held).startswith(words)


def test_what_waits_is_said_by_server_with_the_way_out() -> None:
    held = [HeldHead("w", "tool", "a", "h", "new"), HeldHead("gone", "tool", "a", "h", "new")]
    ((server, (hashes, text)),) = say_waiting(held, {"w"}).items()
    assert (server, hashes) == ("w", {"h"})
    assert text == "w: 1 tool new; nobody has approved this, so it is not served; see foretool review w"
    assert "foretool review w" in why_held("w")
