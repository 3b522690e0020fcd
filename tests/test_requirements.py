"""The manifest in both directions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from requirements import MANIFEST, requirement

TESTS = Path(__file__).parent


def named() -> Iterator[tuple[str, str]]:
    """Every promise that a test names, with the test; read, not run, so that it holds for any selection of tests."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "requirement":
                        for argument in mark.args:
                            assert isinstance(argument, ast.Constant), f"{path.name}: {node.name}: write the id out"
                            yield str(argument.value), f"{path.name}::{node.name}"


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
