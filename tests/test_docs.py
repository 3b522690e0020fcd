"""The pages name only files and modules that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("server", "retrieval", "storage", "bench", "demo", "docs", "tests")
OF_USERS = {"docs/style.md"}
"""Examples of files that a user has."""

pytestmark = pytest.mark.skipif(not (ROOT / "Makefile").is_file(), reason="a source distribution has no bench/")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_on_a_page_exists(page: Path) -> None:
    path = rf"(?<![\w./~-])(?:{'|'.join(FOLDERS)})/(?:[\w-]+/)*(?:[\w-]+\.\w+)?(?![\w/])"
    named = set(re.findall(path, page.read_text(encoding="utf-8"))) - OF_USERS
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_bench_module_on_a_page_exists(page: Path) -> None:
    named = re.findall(r"(?:python -m |`)(bench(?:\.\w+)*)\b(?!/)", page.read_text(encoding="utf-8"))
    assert [module for module in sorted(set(named)) if not _is_module(module)] == []


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
