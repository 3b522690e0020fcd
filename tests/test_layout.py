"""Every source file has its test file, so that one knows where to look and what is missing."""

from __future__ import annotations

from pathlib import Path

from requirements import requirement

ROOT = Path(__file__).parents[1]
WITHOUT_CODE = {"__init__.py"}

ELSEWHERE = {
    "server/diagnosis.py": "types alone",
    "server/local/windows.py": "needs Windows, where it has not been run",
    "server/transports/client/base.py": "types alone",
    "server/transports/upstream/base.py": "types alone",
    "storage/stores.py": "types alone",
}
"""Source files without a test file, and why."""

CONVERSATIONS = {
    "server/clients/tool_list.py": "tests/scenarios/test_growing_list.py",
    "server/methods/discover_tools.py": "tests/scenarios/test_conversations.py",
    "server/methods/forwarder.py": "tests/scenarios/test_progress_and_cancellation.py",
    "server/methods/instruction_files.py": "tests/server/methods/test_instructions.py",
    "server/methods/prompts.py": "tests/scenarios/test_resources_and_prompts.py",
    "server/methods/tool_lookup.py": "tests/scenarios/test_misses.py",
    "server/methods/upstream_events.py": "tests/scenarios/test_lists_of_upstreams.py",
    "server/reload.py": "tests/scenarios/test_reload.py",
    "server/serve.py": "tests/scenarios/test_processes.py",
}
"""Source files that show what they do in whole conversations only, and where these are."""


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
        if str(source) not in {**ELSEWHERE, **CONVERSATIONS} and not (ROOT / expected(source)).is_file()
    ]
    assert missing == []


@requirement("layout")
def test_the_exceptions_are_still_needed() -> None:
    stale = [
        source for source in ELSEWHERE if not (ROOT / source).is_file() or (ROOT / expected(Path(source))).is_file()
    ]
    assert stale == []


@requirement("layout")
def test_the_conversations_exist() -> None:
    assert [each for each in CONVERSATIONS.values() if not (ROOT / each).is_file()] == []
