"""SECURITY.md says every promise about trust in the words of the manifest, and promises nothing that no test holds."""

from __future__ import annotations

import re
from pathlib import Path

from requirements import MANIFEST, requirement

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
PROMISED = PAGE.partition("## What holds")[2].partition("## What is not promised")[0]


def as_written(behaviour: str) -> str:
    return f"- {behaviour[0].upper()}{behaviour[1:]}."


@requirement("trust:page")
def test_every_promise_about_trust_stands_in_security_md_and_no_other() -> None:
    promises = {as_written(each.behaviour) for name, each in MANIFEST.items() if name.startswith("trust:")}
    assert set(re.findall(r"^- .*$", PROMISED, re.MULTILINE)) == promises


@requirement("trust:page")
def test_the_page_and_the_operators_page_lead_to_each_other() -> None:
    assert "](docs/security.md)" in PAGE
    assert "](../SECURITY.md)" in (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
