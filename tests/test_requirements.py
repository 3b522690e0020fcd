"""The manifest in both directions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from requirements import MANIFEST, requirement

TESTS = Path(__file__).parent
MARK, TEST = re.compile(r"^@requirement\(([^()]*)\)\n", re.M), re.compile(r"^(?:async )?def (\w+)", re.M)


@cache
def named() -> tuple[tuple[str, str], ...]:
    """Every promise that a test names, with the test; read, not run, so that it holds for any selection of tests."""
    return tuple(_read_marks())


def _read_marks() -> Iterator[tuple[str, str]]:
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        marks = [*MARK.finditer(text)]
        assert len(marks) == text.count("\n@requirement("), f"{path.name}: write the ids out"
        for mark in marks:
            test = TEST.search(text, mark.end())
            assert test is not None
            for one in mark[1].split(","):
                if one.strip():
                    yield one.strip().strip('"'), f"{path.name}::{test[1]}"


@requirement("requirements")
def test_every_promise_has_a_test() -> None:
    assert sorted(set(MANIFEST) - {one for one, _ in named()}) == []


@requirement("requirements")
def test_every_promise_that_a_test_names_stands_in_the_manifest() -> None:
    assert sorted({f"{one} ({test})" for one, test in named() if one not in MANIFEST}) == []


@requirement("requirements")
def test_every_promise_says_where_it_comes_from_and_what_holds() -> None:
    for one, promise in MANIFEST.items():
        assert promise.source, one
        assert len(promise.behaviour) > 10, one
