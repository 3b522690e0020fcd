"""The tasks in other languages."""

from __future__ import annotations

import json
import re
from typing import Any

from bench.retrieval import everyday, languages
from foretool.retrieval.glossary import put_into_english


def held() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(languages.FILE.read_text("utf-8"))
    return read


def test_every_everyday_task_is_there_in_each_language_with_its_values_and_names() -> None:
    sets = languages.read_sets(held())
    tasks = sets["everyday en"]
    values = re.compile(r"[\w./:-]*[\w/]\.\w+|\d{4,}|[\w/]+/[\w-]+")
    for language in languages.EVERYDAY:
        for task, other in zip(tasks, sets[f"everyday {language}"], strict=True):
            assert other["tools"] == task["tools"]
            assert all(value in other["task"] for value in values.findall(task["task"])), other["task"]
        assert len({task["task"] for task in sets[f"everyday {language}"]}) == 65


def test_no_task_in_english_is_touched() -> None:
    sets = languages.read_sets(held())
    asked = [task["task"] for name in ("everyday en", "vague en", "mixed, in English") for task in sets[name]]
    assert len(asked) == 135 and all(put_into_english(task) is task for task in asked)


def test_every_right_tool_is_one_of_a_server_that_is_there() -> None:
    servers = json.loads(everyday.FILE.read_text("utf-8"))["servers"].keys()
    sets = languages.read_sets(held())
    assert len(sets["mixed"]) == 30 and all(len(sets[f"vague {language}"]) == 40 for language in languages.VAGUE)
    assert {tool.split("__")[0] for each in sets.values() for task in each for tool in task["tools"]} <= servers


def test_a_described_tool_is_asked_for_in_english_and_in_its_language() -> None:
    for language, described in held()["described"].items():
        served = {
            f"{server}__{each['name']}" for server, tools in languages.catalogs_of(described).items() for each in tools
        }
        sets = languages.read_described(language, described)
        assert list(sets) == [f"{language} tools, en", f"{language} tools, {language}"]
        assert all(set(task["tools"]) <= served for each in sets.values() for task in each)


def test_the_halves_are_counted_apart() -> None:
    assert languages.row_of("a", [1, 2, 6, 1, 0, 0]) == {
        "set": "a", "n": 6, "choose first": 0.33, "choose in five": 0.33, "report first": 0.33, "report in five": 0.67,
    }  # fmt: skip
