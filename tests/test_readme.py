"""The README and the pages beside it: links lead somewhere, commands exist, JSON is JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from foretool.server.commands.group import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = [README, *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_command_in_the_readme_exists() -> None:
    named = set(re.findall(r"(?m)^foretool ([a-z-]+)\b", "\n".join(_code(README))))
    assert named <= set(COMMANDS)


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len(README.read_bytes()) <= 8 * 1024


def test_what_a_client_is_to_be_given_is_json_that_starts_foretool() -> None:
    blocks = re.findall(r"```json\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    entries = [next(iter(json.loads(block).values())) for block in blocks]
    assert [Path(entry["foretool"]["command"]).name for entry in entries] == ["foretool"]
    for entry in entries:
        serve, option, config = entry["foretool"]["args"]
        assert (serve, option, Path(config).is_absolute()) == ("serve", "--config", True)


def test_both_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    if not (ROOT / "Makefile").is_file():
        pytest.skip("a source distribution has no Makefile")
    targets = re.findall(r"(?m)^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert set(re.findall(r"(?m)^make (\w+)", README.read_text(encoding="utf-8"))) <= set(targets)


def _code(page: Path) -> list[str]:
    """What stands in code blocks and between backticks."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    return [*blocks, *re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))]
