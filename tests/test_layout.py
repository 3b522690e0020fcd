"""Every room has a folder of tests, so that one knows where to look and what is missing."""

from __future__ import annotations

from pathlib import Path

from requirements import requirement

ROOT = Path(__file__).parents[1]
TOP = ("server", "retrieval", "storage", "learning", "desk", "fleet")


def rooms() -> list[Path]:
    """Folders of the product that hold code of their own, relative to the repository."""
    files = (path for top in TOP for path in (ROOT / top).rglob("*.py") if path.name != "__init__.py")
    return sorted({path.parent.relative_to(ROOT) for path in files})


@requirement("layout")
def test_every_room_has_a_folder_of_tests() -> None:
    missing = [
        f"{room}: no test in tests/{room}" for room in rooms() if not any((ROOT / "tests" / room).glob("test_*.py"))
    ]
    assert missing == []


@requirement("layout")
def test_every_folder_of_tests_belongs_to_a_room() -> None:
    known = set(rooms())
    stray = [
        str(folder.relative_to(ROOT))
        for top in TOP
        for folder in sorted({path.parent for path in (ROOT / "tests" / top).rglob("test_*.py")})
        if folder.relative_to(ROOT / "tests") not in known
    ]
    assert stray == []
