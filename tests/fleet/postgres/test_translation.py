"""The SQL of the subjects, as PostgreSQL reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretool.fleet.postgres.translation import read_text, regular_expression, translate, write_values


@pytest.mark.parametrize(
    ("sql", "translated"),
    [
        ("SELECT ? WHERE a = :name", "SELECT %s WHERE a = %(name)s"),
        ("SELECT '?%:x', \"a?\" -- ? :y\n", "SELECT '?%%:x', \"a?\" -- ? :y\n"),
        ("LIMIT ?", "LIMIT nullif(greatest(%s, -1), -1)"),
        ("LIMIT :most", "LIMIT nullif(greatest(%(most)s, -1), -1)"),
        ("LIMIT -1 OFFSET ?", "LIMIT ALL OFFSET %s"),
        ("?::jsonb", "%s::jsonb"),
    ],
)
def test_places_of_values_are_translated_outside_of_texts(sql: str, translated: str) -> None:
    assert translate(sql) == translated


@given(st.text(st.sampled_from("\0\uffff01a")))
def test_any_text_comes_back(text: str) -> None:
    (written,) = write_values((text,))
    assert "\0" not in written
    assert read_text(written) == text


def test_truth_is_a_number_and_half_a_character_a_question_mark() -> None:
    assert write_values({"a": True, "b": "\ud800"}) == {"a": 1, "b": "?"}


@pytest.mark.parametrize(
    ("pattern", "expression"),
    [
        ("git__*", "^(?:git__.*)$"),
        ("a.b?", "^(?:a\\.b.)$"),
        ("[ab]c", "^(?:[ab]c)$"),
        ("[^a]", "^(?:[^a])$"),
        ("[a", "^(?:\\[a)$"),
        ("[]]", "^(?:[\\]])$"),
    ],
)
def test_patterns_of_tools_become_regular_expressions(pattern: str, expression: str) -> None:
    assert regular_expression(pattern) == expression
