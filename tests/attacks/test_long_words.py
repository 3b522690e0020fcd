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
from foretool.server.setup.documents import open_document
from foretool.server.setup.leaving import _fits
from foretool.server.setup.secrets import find_secrets
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
    "an argument of one word": (lambda text: [*find_secrets({"command": "x", "args": [text]})], "a."),
    "an address of many parts": (lambda text: [*find_secrets({"url": f"https://{text}"})], "/a?b&"),
    "a line of comments": (lambda text: _without_server(text), "/*/"),
}


def _without_server(comments: str) -> str:
    """Remove a server from a client's file in whose line there are comments and another server before it."""
    document = open_document(f'{{"mcpServers": {{\n{comments} "x": {{}}, "y": {{}}\n}}}}', "json")
    document.remove(("mcpServers", "y"), with_comments=True)
    document.remove(("mcpServers", "x"), with_comments=True)
    return document.text()


@pytest.mark.parametrize("kind", READERS)
def test_a_text_is_read_in_one_go_however_long_its_words_are(kind: str) -> None:
    read, unit = READERS[kind]
    began = time.process_time()
    read(unit * (SIZE // len(unit)))
    assert time.process_time() - began < 0.5


def test_words_with_many_references_are_compared_in_one_go() -> None:
    began = time.process_time()
    assert not _fits(["a"] * 2000, "a" * 1990)
    assert _fits(["--key=", " --other=", ""], "--key=1 --other=2")
    assert not _fits(["--key=", "=1"], "--key=1")
    assert not _fits([*"ab" * 500, "c"], "ab" * 5000)
    assert time.process_time() - began < 0.5
