"""Every source file has its test file, so that one knows where to look and what is missing."""

from __future__ import annotations

from pathlib import Path

from requirements import requirement

ROOT = Path(__file__).parents[1]
WITHOUT_CODE = {"__init__.py"}

ELSEWHERE = {
    "server/transports/client/base.py": "types alone",
    "server/transports/upstream/base.py": "types alone",
    "storage/stores.py": "types alone",
}
"""Source files without a test file, and why."""


def expected(source: Path) -> Path:
    """Where the tests of a source file stand: the tree of tests mirrors the tree of sources."""
    return Path("tests") / source.parent / f"test_{source.name}"


@requirement("layout")
def test_every_source_file_has_its_test_file() -> None:
    sources = [
        path.relative_to(ROOT)
        for top in ("server", "retrieval", "storage")
        for path in sorted((ROOT / top).rglob("*.py"))
        if path.name not in WITHOUT_CODE
    ]
    missing = [
        f"{source}: {expected(source)} is missing"
        for source in sources
        if str(source) not in ELSEWHERE and not (ROOT / expected(source)).is_file()
    ]
    assert missing == []


@requirement("layout")
def test_the_exceptions_are_still_needed() -> None:
    stale = [
        source for source in ELSEWHERE if not (ROOT / source).is_file() or (ROOT / expected(Path(source))).is_file()
    ]
    assert stale == []
