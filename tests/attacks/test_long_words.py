"""Texts of servers and people that are built to be read again and again by one pattern: each is read in one go."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from foretool.desk.commands.export import _FORMULA_WITHIN
from foretool.learning.enrichment.answer import _ADDRESS
from foretool.retrieval.languages import _QUOTED
from foretool.server.config.keyrings import keyring_names
from foretool.server.config.variables import secrets_in_url
from foretool.server.trust.approvals import _SECRET
from foretool.server.trust.findings import fold_letters
from foretool.server.trust.lookalikes import Names

SIZE = 50_000

READERS: dict[str, tuple[Callable[[str], object], str]] = {
    "a description of one word": (lambda text: Names([]).mentioned("evil", text), "a"),
    "a description of letters and digits": (lambda text: Names([]).mentioned("evil", text), "a1"),
    "a description of one word in two scripts": (lambda text: fold_letters(f"{text} \u03b1"), "a"),
    "a launch of one word": (lambda text: _SECRET.sub("", text), "key"),
    "a launch of one option": (lambda text: _SECRET.sub("", text), "-key"),
    "an address of questions": (lambda text: [*secrets_in_url(text)], "?"),
    "a wish of one word": (lambda text: _ADDRESS.sub("", text), "a"),
    "a cell of blanks": (lambda text: _FORMULA_WITHIN.sub("", text), "\t"),
    "a task of quotes": (lambda text: _QUOTED.sub("", text), "\u201c"),
    "a value of references": (lambda text: keyring_names(text), "${keyring:"),
}


@pytest.mark.parametrize("kind", READERS)
def test_a_text_is_read_in_one_go_however_long_its_words_are(kind: str) -> None:
    read, unit = READERS[kind]
    began = time.process_time()
    read(unit * (SIZE // len(unit)))
    assert time.process_time() - began < 0.5
