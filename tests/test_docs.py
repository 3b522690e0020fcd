"""The pages name only files, modules and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("server", "retrieval", "storage", "learning", "desk", "fleet", "bench", "demo", "docs", "tests")
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_heading_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text(encoding="utf-8"))
    wanted = {(page.parent / file if file else page, heading) for file, heading in links}
    assert sorted(heading for file, heading in wanted if heading not in _headings(file)) == []


def test_the_benchmarks_are_what_the_results_make_of_them() -> None:
    from bench.publish import PAGE, write_page

    assert PAGE.read_text(encoding="utf-8") == write_page()


def _headings(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    titles = re.findall(r"(?m)^#+ (.+)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
