"""A version bump is one line."""

from __future__ import annotations

from typing import Any

import pytest

from foretool.server.trust.held_words import describe_held, say_waiting, why_held
from foretool.storage.records import Definition, HeldHead


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ([("tool", "kept")] * 30 + [("tool", "new")] * 2, "30 tools changed, 2 tools new"),
        ([("prompt", "withheld"), ("instructions", "kept")], "1 prompt changed, its instructions changed"),
        ([("launch", "withheld"), ("prompt_text", "new")], "1 prompt text new, its command changed"),
        ([("resource", "kept"), ("template", "new")], "1 resource changed, 1 resource template new"),
    ],
)
def test_a_version_bump_is_one_line(kinds: list[tuple[Any, Any]], words: str) -> None:
    held = [Definition("w", kind, str(place), "", b"", effect=effect) for place, (kind, effect) in enumerate(kinds)]
    assert describe_held(held).startswith(words)


def test_what_waits_is_said_by_server_with_the_way_out() -> None:
    held = [HeldHead("w", "tool", "a", "h", "new"), HeldHead("gone", "tool", "a", "h", "new")]
    ((server, (hashes, text)),) = say_waiting(held, {"w"}).items()
    assert (server, hashes) == ("w", {"h"})
    assert text == "w: 1 tool new; nobody has approved this, so it is not served; see foretool review w"
    assert "foretool review w" in why_held("w")
