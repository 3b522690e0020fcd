"""A correct `serve` command line is read; `test_serving.py` compares it with what click reads."""

from __future__ import annotations

import pytest

from foretool.server.commands.window import read_options


def test_options_are_read_by_name() -> None:
    assert read_options(["serve", "--alone", "--profile", "x"]) == {"--alone": "", "--profile": "x"}
    assert read_options(["serve", "--http", "--config=a"]) == {"--http": "", "--config": "a"}


@pytest.mark.parametrize("words", [[], ["status"], ["serve", "--alone=1"], ["serve", "word"], ["serve", "--config"]])
def test_what_is_no_correct_command_line_is_left_to_click(words: list[str]) -> None:
    assert read_options(words) is None
