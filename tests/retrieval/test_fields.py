"""What a tool takes and gives, read from definitions of strangers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretool.retrieval.fields import fields, identifies
from foretool.retrieval.words import stem
from foretool.storage.records import Tool, ToolId


def tool(name: str, takes: dict[str, Any] | None = None, gives: Any = None, required: Any = None) -> Tool:
    definition = {
        "name": name,
        "inputSchema": {"type": "object", "properties": takes or {}, "required": required or []},
    }
    if gives is not None:
        definition["outputSchema"] = gives
    return Tool(ToolId(f"u__{name}"), "u", name, json.dumps(definition).encode(), "")


def test_fields_are_known_by_their_words_however_they_are_spelled() -> None:
    read = fields(tool("updateIssue", {"issueId": {}, "new_title": {}}, required=["issueId"]))
    assert read.takes == {"issue id": True, "new title": False}
    assert (read.verb, read.nouns) == ("update", {stem("issue")})


def test_what_is_given_is_read_through_lists_references_and_alternatives() -> None:
    gives = {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/Issue"}}, "status": {}},
        "anyOf": [{"properties": {"nextCursor": {}}}],
        "$defs": {"Issue": {"properties": {"issue_id": {}, "author": {"properties": {"login": {}}}}}},
    }
    assert fields(tool("list_issues", gives=gives)).gives == {"issue id", "author", "login", "next cursor"}


def test_a_schema_that_refers_to_itself_ends() -> None:
    gives = {"$ref": "#", "properties": {"child": {"$ref": "#"}, "name": {}}}
    assert fields(tool("tree", gives=gives)).gives == {"child", "name"}


@pytest.mark.parametrize(
    "definition",
    [
        b"",
        b"null",
        b"[]",
        b'{"inputSchema": 3, "outputSchema": []}',
        b'{"inputSchema": {"properties": [], "required": 1}}',
    ],
)
def test_whatever_is_malformed_is_left_out(definition: bytes) -> None:
    read = fields(Tool(ToolId("u__x"), "u", "x", definition, ""))
    assert (read.takes, read.gives) == ({}, frozenset())


def test_identifiers_are_told_by_their_last_word() -> None:
    assert [identifies(each) for each in ("issue number", "id", "user ids", "city", "")] == [
        stem("issue"),
        "",
        stem("user"),
        None,
        None,
    ]
