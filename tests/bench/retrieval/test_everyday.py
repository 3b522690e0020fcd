"""The everyday tasks."""

from __future__ import annotations

import json
from pathlib import Path

from bench.retrieval import everyday


def test_every_task_names_tools_of_servers_that_are_there() -> None:
    held = json.loads(everyday.FILE.read_text("utf-8"))
    tasks = [*held["tasks"], *held["check"]]
    assert len(held["tasks"]) == 33
    assert len(tasks) == len({each["task"] for each in tasks})
    assert len(held["servers"]) >= 15
    for each in tasks:
        assert each["tools"] and {tool.split("__")[0] for tool in each["tools"]} <= held["servers"].keys()


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
