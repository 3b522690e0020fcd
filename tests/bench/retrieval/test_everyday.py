"""The everyday tasks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.learning.known_tools import read_known
from bench.retrieval import everyday
from foretool.retrieval.glossary import has_han

# Words that say nothing of what a task is about.
_SMALL = """
    a an the of to in on for and or is are was i me my you your please can could would with that this it be as at by
    from need want like some what which who
"""
SMALL_WORDS = frozenset(_SMALL.split())


def telling_words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower())) - SMALL_WORDS


def test_every_task_names_tools_of_servers_that_are_there() -> None:
    held = json.loads(everyday.FILE.read_text("utf-8"))
    tasks = [*held["tasks"], *held["check"]]
    assert len(held["tasks"]) == 33
    assert len(tasks) == len({each["task"] for each in tasks})
    assert len(held["servers"]) >= 15
    for each in tasks:
        assert each["tools"] and {tool.split("__")[0] for tool in each["tools"]} <= held["servers"].keys()


@pytest.mark.slow
def test_no_task_is_worded_like_a_wish_that_comes_with_foretool() -> None:
    held = json.loads(everyday.FILE.read_text("utf-8"))
    wishes = [(wish, telling_words(wish)) for each in read_known() for wish in each.wishes]
    for task in (*held["tasks"], *held["check"]):
        words = telling_words(task["task"])
        alike = [wish for wish, said in wishes if 2 * len(words & said) > len(words | said)]
        assert not alike, task["task"]


def test_every_task_is_there_in_chinese_with_the_same_tools_values_and_names() -> None:
    held = json.loads(everyday.FILE.read_text("utf-8"))
    tasks = [*held["tasks"], *held["check"]]
    asked = everyday.in_chinese(tasks)
    assert json.loads(everyday.CHINESE.read_text("utf-8")).keys() == {each["task"] for each in tasks}
    for task, other in zip(tasks, asked, strict=True):
        assert other["tools"] == task["tools"] and has_han(other["task"])
        values = re.findall(r"[\w./:-]*[\w/]\.\w+|\d{4,}|[\w/]+/[\w-]+", task["task"])
        assert all(value in other["task"] for value in values), other["task"]


def test_a_program_of_npm_is_the_one_that_its_package_names(tmp_path: Path) -> None:
    home = tmp_path / "node_modules" / "@a" / "b"
    home.mkdir(parents=True)
    (home / "package.json").write_text('{"bin": {"b": "dist/index.js"}}')
    (home / "dist").mkdir()
    (home / "dist" / "index.js").write_text("")
    server = {"from": "npm", "package": "@a/b", "args": ["{folder}/x"]}
    assert everyday.entry(tmp_path, server) == {
        "command": "node", "args": [str(home / "dist" / "index.js"), f"{tmp_path}/x"]
    }  # fmt: skip


def test_a_place_is_that_of_the_first_right_tool() -> None:
    answer = {"structuredContent": {"matches": [{"name": "a__b"}, {"name": "a__c"}]}}
    assert everyday.place_of(answer, {"tools": ["a__c", "a__d"]}) == 2
    assert everyday.place_of(answer, {"tools": ["a__e"]}) == 0


def test_a_proxy_is_ready_once_nothing_starts_and_tools_are_found_by_meaning() -> None:
    meaning = [{"why": "meaning; used before"}]
    assert everyday.is_ready({"matches": meaning}, by_meaning=True)
    assert not everyday.is_ready({"matches": [{"why": "words: a"}]}, by_meaning=True)
    assert everyday.is_ready({"matches": []}, by_meaning=False)
    assert not everyday.is_ready({"matches": meaning, "absent": "Server a is starting"}, by_meaning=True)
    note = "search by meaning is still being prepared"
    assert not everyday.is_ready({"matches": meaning, "note": note}, by_meaning=True)
