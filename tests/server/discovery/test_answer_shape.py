"""How much an answer shows."""

from __future__ import annotations

from foretool.server.discovery.answer_shape import LEAST, enough


def test_a_tool_that_a_paragraph_names_is_not_all_that_it_needs() -> None:
    assert [enough(1, clauses) for clauses in (0, 1, 2, 8)] == [1, 1, LEAST + 2, LEAST + 14]
