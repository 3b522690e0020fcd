from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from requirements import requirement
from tools import raw_tool, schema_tool

from foretool.retrieval.document import (
    EMBEDDED_PARAMETERS,
    IN_ENGLISH,
    MAX_SUMMARY,
    READING,
    Document,
    _skip_headings,
    definition_fields,
    document,
    embedded_text,
    english_words,
    identifies,
    summary_line,
    whole_sentence,
    with_english,
    wording_words,
)
from foretool.retrieval.words import stem
from foretool.storage.records import Tool, ToolId

KEYS = st.text() | st.sampled_from(["properties", "$ref", "anyOf", "items", "enum"])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
)


def read(definition: object, server_text: str = "") -> Document:
    return document(raw_tool("s", "n", json.dumps(definition).encode()), server_text)


def test_a_tool_is_read_field_by_field() -> None:
    properties = {"path": {"description": "Where to look", "enum": ["a", "b", 3]}, "deep": {"type": "boolean"}}
    definition = {"title": "Find", "description": "Finds files.", "inputSchema": {"properties": properties}}
    assert read(definition, "A file server") == Document(
        id=ToolId("s__n"),
        server="s",
        name="n",
        title="Find",
        description="Finds files.",
        parameters=("path", "deep"),
        parameter_texts=("Where to look a b",),
        server_text="A file server",
    )


def test_references_and_alternatives_are_followed_one_level() -> None:
    schema = {
        "$defs": {"Color": {"description": "A colour", "enum": ["red"]}, "Loop": {"$ref": "#/$defs/Loop"}},
        "properties": {
            "ink": {"$ref": "#/$defs/Color"},
            "paper": {"anyOf": [{"$ref": "#/$defs/Color"}, {"type": "null"}]},
            "inks": {"type": "array", "items": {"$ref": "#/$defs/Color"}},
            "loop": {"$ref": "#/$defs/Loop"},
            "lost": {"$ref": "#/$defs/Missing"},
            "far": {"$ref": "https://example.com/schema.json"},
        },
    }
    found = read({"inputSchema": schema})
    assert found.parameters == ("ink", "paper", "inks", "loop", "lost", "far")
    assert found.parameter_texts == ("A colour red",) * 3


def test_parameters_of_a_combined_schema_are_found() -> None:
    schema = {"oneOf": [{"properties": {"id": {}}}, {"properties": {"name": {}}}]}
    assert read({"inputSchema": schema}).parameters == ("id", "name")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Name of a timezone (e.g. 'Europe/Paris', 'Asia/Tokyo'). Or UTC.", "Name of a timezone . Or UTC."),
        ("The day, e.g. 2024-01-31 or tomorrow. Not later.", "The day, or tomorrow Not later."),
        ("Whom to write to, for example me@example.com; required", "Whom to write to, required"),
        ("Kind of organ [eg: lung, breast] to look at", "Kind of organ lung, breast to look at"),
        ("Examples: docs/a.md\nRelative to 1.2/x", "Relative to 1.2/x"),
        ("(e.g. never_closed, word", "word"),
        ("Exemplary leg.s of 3/4", "Exemplary leg.s of 3/4"),
    ],
)
def test_values_in_examples_of_a_parameter_are_not_read_and_words_are(text: str, kept: str) -> None:
    found = read({"inputSchema": {"properties": {"p": {"description": text}}}})
    assert " ".join(found.parameter_texts[0].split()) == kept


def test_giant_texts_are_capped() -> None:
    properties = {f"p{i}": {"description": "x" * 5000} for i in range(1000)}
    found = read({"description": "y" * 10**6, "inputSchema": {"properties": properties}})
    assert len(found.description) == 8000
    assert len(found.parameters) == 200
    assert max(map(len, found.parameter_texts)) == 1000


@pytest.mark.parametrize("raw", [b"", b"{", b"null", b"[1]", b"\xff\xfe", b'"text"', b"[" * 100_000])
def test_a_broken_definition_leaves_the_name(raw: bytes) -> None:
    assert document(raw_tool("s", "n", raw)) == Document(ToolId("s__n"), "s", "n")


@pytest.mark.slow
@given(JSON)
def test_any_schema_is_read(schema: object) -> None:
    found = read({"name": schema, "description": schema, "inputSchema": schema})
    assert len(summary_line(found)) <= MAX_SUMMARY


def described(text: str) -> Document:
    return Document(ToolId("s__readFile"), "s", "readFile", description=text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Reads a file.  Give its path.", "Reads a file."),
        ("\n  Reads\n  a file\n\n  Args: path", "Reads a file"),
        ("Uses v1.2 of e.g.this", "Uses v1.2 of e.g.this"),
        ("周边搜。根据坐标", "周边搜。"),
        ("", "read file"),
        ("# Read a file\n\nReads the file at a path.\n## Returns", "Reads the file at a path."),
        ("<instructions>\nReads a file", "Reads a file"),
        ("\n  🎯 Purpose:\n    1. Reads a file. Twice.\n    2. Closes it.", "Reads a file."),
        ("Reads:\n the files of a folder", "Reads: the files of a folder"),
        ("# Read a file", "Read a file"),
        ("# Files\n# Read", "Read"),
        ("**Old.** Reads a file", "**Old.** Reads a file"),
    ],
)
def test_a_summary_is_the_first_sentence_in_one_line(text: str, line: str) -> None:
    assert summary_line(described(text)) == line


def test_a_long_sentence_is_cut_between_words() -> None:
    line = summary_line(described("word " * 100))
    assert line.endswith("word…")
    assert len(line) <= MAX_SUMMARY


def test_a_long_text_without_spaces_is_cut_anywhere() -> None:
    assert summary_line(described("搜" * 500)) == "搜" * (MAX_SUMMARY - 1) + "…"


# What a tool takes and gives


def test_fields_are_known_by_their_words_however_they_are_spelled() -> None:
    read = definition_fields(schema_tool("updateIssue", {"issueId": {}, "new_title": {}}, required=["issueId"]))
    assert read.takes == {"issue id": True, "new title": False}
    assert (read.verb, read.nouns) == ("update", {stem("issue")})


def test_what_is_given_is_read_through_lists_references_and_alternatives() -> None:
    gives = {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/Issue"}}, "status": {}},
        "anyOf": [{"properties": {"nextCursor": {}}}],
        "$defs": {"Issue": {"properties": {"issue_id": {}, "author": {"properties": {"login": {}}}}}},
    }
    assert definition_fields(schema_tool("list_issues", gives=gives)).gives == {
        "issue id",
        "author",
        "login",
        "next cursor",
    }


def test_a_schema_that_refers_to_itself_ends() -> None:
    gives = {"$ref": "#", "properties": {"child": {"$ref": "#"}, "name": {}}}
    assert definition_fields(schema_tool("tree", gives=gives)).gives == {"child", "name"}


TRAP = {"$ref": "#/$defs/Trap"}


@pytest.mark.parametrize("members", [{"items": TRAP}, {"anyOf": [TRAP] * 1_000}])
def test_no_schema_of_a_hostile_server_keeps_the_reader_busy(members: dict[str, Any]) -> None:
    gives = {**TRAP, "properties": {"trap": TRAP}, "$defs": {"Trap": {"properties": {"name": {}}, **members}}}
    assert definition_fields(schema_tool("list_traps", gives=gives)).gives == {"trap", "name"}


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
    read = definition_fields(Tool(ToolId("u__x"), "u", "x", definition, ""))
    assert (read.takes, read.gives) == ({}, frozenset())


def test_identifiers_are_told_by_their_last_word() -> None:
    assert [identifies(each) for each in ("issue number", "id", "user ids", "city", "")] == [
        stem("issue"),
        "",
        stem("user"),
        None,
        None,
    ]


@requirement("trust:ranking:stuffed")
def test_an_encoder_reads_the_first_names_of_many_parameters() -> None:
    names = [f"word{number}" for number in range(200)]
    read_by_encoder = embedded_text(read({"inputSchema": {"properties": {name: {} for name in names}}}))
    assert f"word{EMBEDDED_PARAMETERS - 1}." in read_by_encoder and f"word{EMBEDDED_PARAMETERS}" not in read_by_encoder


@pytest.mark.parametrize(
    ("wording", "kept"),
    [
        ("INSERT a customer Ada Lovelace into shop.db", "INSERT a customer into"),
        ("open a GitLab ticket for 42 people, label ui", "open a GitLab ticket for people, label ui"),
        ("turn contract.docx into a PDF", "turn into a PDF"),
        ("Kilimanjaro in a nutshell, please", "Kilimanjaro in a nutshell, please"),
    ],
)
def test_names_and_values_in_a_wording_are_no_words_of_the_tool(wording: str, kept: str) -> None:
    tool = Document(ToolId("gitlab__create"), "gitlab", "create", wordings=(wording,))
    assert wording_words(tool) == kept
    assert embedded_text(tool).split(READING)[1:] == [wording], "an encoder reads the whole wish"


def test_a_wording_of_values_alone_is_read_as_it_is() -> None:
    assert wording_words(Document(ToolId("a__b"), "a", "b", wordings=("42 7", "19:30"))) == "42 7\n19:30"


def test_an_encoder_reads_each_wording_by_itself_and_no_text_of_a_server_poses_as_one() -> None:
    tool = Document(ToolId("s__t"), "s", "t", description="Sends.", wordings=("drop  a line", "post\nit"))
    assert embedded_text(tool).split(READING) == ["s: t. Sends. drop a line; post it.", "drop a line", "post it"]
    marked = f"a{READING}b"
    schema = {"properties": {marked: {"description": marked}}}
    raw = json.dumps({"name": marked, "title": marked, "description": marked, "inputSchema": schema}).encode()
    hostile = document(raw_tool(marked, marked, raw), server_text=marked)
    assert READING not in embedded_text(hostile)


STATION = {
    "name": "get-tickets",
    "description": "查询 12306 余票信息。",
    "inputSchema": {"properties": {"city": {"description": "城市名"}}},
}


def test_what_a_tool_says_in_chinese_is_also_read_in_english_and_its_own_words_stay() -> None:
    said = document(raw_tool("rail", "get-tickets", json.dumps(STATION).encode()))
    read = with_english(replace(said, wordings=("a seat to Leeds",)))
    assert english_words(read).split() == ["query", "remaining", "tickets", "information", "city", "name"]
    first, wording = embedded_text(read).split(READING)
    own, english = first.split(IN_ENGLISH)
    assert wording == "a seat to Leeds" and own == embedded_text(replace(read, english=None)).split(READING)[0]
    assert english == (
        "rail: get tickets. query 12306 remaining tickets information . a seat to Leeds. Parameters: city."
    )
    assert summary_line(read) == summary_line(said) == "查询 12306 余票信息。"


def test_a_tool_without_chinese_is_the_same_to_the_bit() -> None:
    text = "Downloads a page \u001f café of カード"
    read = document(raw_tool("web", "fetch", json.dumps({"description": text}).encode()))
    assert with_english(read) is read and english_words(read) == ""
    assert IN_ENGLISH not in embedded_text(read), "no text of a server brings one in"


ENDS = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n\s*\n|\n\s*[-*#]")  # noqa: RUF001
"""What ends a sentence, alternative by alternative."""


@given(st.text("ab.!?。！？ \t\n-*#", max_size=12))  # noqa: RUF001
def test_a_sentence_ends_where_each_of_its_ends_is_looked_for(text: str) -> None:
    below = _skip_headings(text)
    end = ENDS.search(below)
    assert whole_sentence(text) == " ".join((below[: end.start()] if end is not None else below).split())
