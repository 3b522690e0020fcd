"""Runs of learning that are ended at random, and what the next one is said to have done again."""

from __future__ import annotations

import signal
from hashlib import sha256
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from bench.growth.ended import finished, has_begun, rows
from bench.growth.learning import Task, fill
from foretool.server.config import loader as configs
from foretool.server.learning_schedule import LEARNING
from foretool.storage.opening import open_store
from foretool.storage.records import Tool, ToolId

RAW = b'{"name":"add","inputSchema":{"type":"object"}}'
ADD = Tool(ToolId("calc__add"), "calc", "add", RAW, sha256(RAW).hexdigest(), 9)


def test_each_run_is_told_and_the_last_one_runs_through(tmp_path: Path) -> None:
    path = fill(tmp_path, [ADD], iter([Task("add two numbers", (ADD.id,))] * 3), "none")
    ended, last = rows(path, 1, 0.1, 0.1)
    assert (ended["ended by"], ended["taken over"], ended["again"]) == (signal.SIGKILL.name, 0, "-")
    assert last["ended by"] == "nothing"
    assert {each["outcome"] for each in last["said"]["lessons"]} <= {"skipped", "kept"}
    assert [kind for _, kind in finished(path)] == [each for each in last["finished"].split() if each != "-"]


def test_a_run_has_begun_once_it_has_the_lead(tmp_path: Path) -> None:
    path = fill(tmp_path, [ADD], iter([Task("add two numbers", (ADD.id,))]), "none")
    assert not has_begun(path)
    with open_store(configs.load(path).storage) as store, store.lead(LEARNING) as lead:
        assert lead.take()
        assert has_begun(path)
    assert not has_begun(path)
