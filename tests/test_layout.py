"""Every source file has its test file, so that one knows where to look and what is missing."""

from __future__ import annotations

from pathlib import Path

from requirements import requirement

ROOT = Path(__file__).parents[1]
WITHOUT_CODE = {"__init__.py"}
ALTERNATIVES = {"edges": "edge", "links": "link", "commands": "command"}
"""Folders of interchangeable things, and what their tests' names begin with."""

ELSEWHERE = {
    "server/edges/base.py": "types alone",
    "server/links/base.py": "types alone",
}
"""Files without a test file of their own name, and why."""


def expected(source: Path) -> set[str]:
    """Where the tests of a source file may stand."""
    top, *folders = source.parent.parts
    plain = "/".join(["tests", top, *folders, f"test_{source.name}"])
    if folders and folders[0] in ALTERNATIVES:
        return {plain, f"tests/{top}/test_{ALTERNATIVES[folders[0]]}_{source.name}"}
    # Two test files of one name cannot be collected together: the second carries the name of its top folder.
    return {plain, "/".join(["tests", top, *folders, f"test_{top}_{source.name}"])}


@requirement("layout")
def test_every_source_file_has_its_test_file() -> None:
    sources = [
        path.relative_to(ROOT)
        for top in ("server", "retrieval", "storage")
        for path in sorted((ROOT / top).rglob("*.py"))
        if path.name not in WITHOUT_CODE
    ]
    missing = [
        f"{source}: none of {sorted(expected(source))}"
        for source in sources
        if str(source) not in ELSEWHERE and not any((ROOT / test).is_file() for test in expected(source))
    ]
    assert missing == []


@requirement("layout")
def test_the_exceptions_are_still_needed() -> None:
    stale = [
        source
        for source in ELSEWHERE
        if not (ROOT / source).is_file() or any((ROOT / test).is_file() for test in expected(Path(source)))
    ]
    assert stale == []
