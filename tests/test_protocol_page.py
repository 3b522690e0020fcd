"""docs/protocol.md names promises that exist, each held by a test."""

from __future__ import annotations

import re
from pathlib import Path

from requirements import MANIFEST, requirement
from test_requirements import named

PAGE = Path(__file__).parents[1] / "docs" / "protocol.md"
KINDS = {"forwarded", "adapted", "ours", "declined", "-"}


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "| feature |" not in line]


@requirement("docs:protocol")
def test_every_row_names_promises_that_a_test_holds_us_to() -> None:
    held = {promise for promise, _ in named()} & set(MANIFEST)
    for feature, *_, promises in rows():
        ids = re.findall(r"`([^`]+)`", promises)
        assert ids, f"{feature}: no promise"
        assert set(ids) <= held, f"{feature}: no test holds {set(ids) - held}"


@requirement("docs:protocol")
def test_every_row_says_what_becomes_of_a_feature_in_each_era() -> None:
    assert len(rows()) > 40
    for feature, legacy, modern, how, _ in rows():
        assert {legacy, modern} <= KINDS, feature
        assert how, feature
