"""The tasks of the bench of skills."""

from __future__ import annotations

import json

from bench.retrieval import skills


def test_every_task_has_one_right_skill_and_each_skill_says_when_to_use_it() -> None:
    held = json.loads(skills.FILE.read_text("utf-8"))
    assert (len(held["skills"]), len(held["tasks"])) == (300, 60)
    assert set(held["tasks"].values()) <= held["skills"].keys()
    assert all(skills.WHEN in said and skills.shorten(said) for said in held["skills"].values())


def test_words_alone_find_some_of_them() -> None:
    found = skills.results("none", short=False)
    assert found["tasks"] == 60 and 5 <= found["first"] <= found["shown"] < 30
