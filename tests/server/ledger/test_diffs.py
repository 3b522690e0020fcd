"""Differences between two versions of a text, as a person sees them."""

from __future__ import annotations

import json

from foretool.server.ledger.diffs import diff_definitions, diff_texts

OLD = {"name": "t", "description": "Reads a file.", "inputSchema": {"type": "object"}, "annotations": {"x": 1}}


def plain(before: object, now: object) -> list[str]:
    data = None if before is None else json.dumps(before).encode()
    return [line.plain.rstrip() for line in diff_definitions(data, json.dumps(now).encode())]


def test_only_changed_members_are_shown_texts_by_word_and_the_rest_by_line() -> None:
    now = {**OLD, "description": "Reads any file.", "annotations": {"x": 2}}
    assert plain(OLD, now) == [
        "description:", "Reads [-a-] {+any+} file.", "annotations:", "  {", '-   "x": 1', '+   "x": 2', "  }",
    ]  # fmt: skip


def test_a_member_that_came_or_went_is_shown_and_a_new_definition_as_a_whole() -> None:
    assert plain(OLD, {key: OLD[key] for key in ("name", "description", "inputSchema")})[0] == "annotations:"
    assert plain(None, {"name": "t", "description": "Hi"}) == ["description:", "{+Hi+}"]


def test_invisible_characters_and_line_breaks_cannot_hide_a_change() -> None:
    (line,) = diff_texts("Reads.", "Reads.\u202e\x1b[2K\n\nLook: " + "\U000e0072\U000e006d")
    assert "U+202E" in line.plain
    assert "rm" in line.plain
    assert "\n" not in line.plain
    assert "\x1b" not in line.plain


def test_unchanged_words_are_left_out_and_long_texts_are_compared_by_line() -> None:
    words = " ".join(map(str, range(100)))
    (line,) = diff_texts(f"{words} a {words}", f"{words} b {words}")
    assert line.plain.startswith("[...] 88 ")
    assert line.plain.strip().endswith("11 [...]")
    many = "x " * 3001
    assert [each.plain[0] for each in diff_texts(many, f"{many}\ny")] == [" ", "+"]


def test_what_is_not_json_is_shown_as_text() -> None:
    assert next(line.plain for line in diff_definitions(None, b"\xff")) == "text:"
