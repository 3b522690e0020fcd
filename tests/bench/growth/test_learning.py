"""The log that learning is measured on says what the tasks of a set say, however many there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from bench.growth.learning import Task, fill, rank, read_set, repeat
from foretool.server.config import loader as configs
from foretool.storage.opening import open_store
from foretool.storage.records import ToolId
from foretool.storage.sampling import read_sample


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    folder.mkdir()
    tools = [{"name": f"{verb}.it", "server": "of things", "description": f"{verb}s it"} for verb in ("add", "remove")]
    tasks = [
        {"query": f"please add number {number}", "calls": ["of things/add.it", "remove.it"]} for number in range(9)
    ]
    for name, rows in (("tools", tools), ("train", [*tasks, {"query": "x", "calls": ["gone"]}]), ("dev", tasks[:2])):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def test_tasks_beyond_the_set_are_the_same_in_other_words() -> None:
    task = Task("add 17 and 25 in the long list of the numbers", (ToolId("a"),))
    first, second = repeat([task], 2)
    assert first == task
    assert second.calls == task.calls and second.query != task.query
    assert len(second.query.split()) < len(task.query.split())


def test_the_log_holds_every_task_with_its_words(tmp_path: Path, data: Path) -> None:
    tools, given, held_out = read_set(data)
    assert [tool.id for tool in tools] == ["of_things__add_it", "of_things__remove_it"]
    assert (len(given), len(held_out)) == (9, 2)
    path = fill(tmp_path, tools, repeat(given, 30), "none")
    with open_store(configs.load(path).storage) as store:
        _, logged = read_sample(store, 2e9, {tool.id: tool for tool in tools})
    assert [each.calls for each in logged] == [("of_things__add_it", "of_things__remove_it")] * 30
    assert [each.tasks for each in logged[:9]] == [(task.query,) for task in given]
    assert all(each.ended for each in logged)
    assert [len(each.ranks) for each in rank(path, held_out, learned=False)] == [2, 2]


def test_an_encoder_of_the_config_ranks_too(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    texts = {
        "forecast": "Says if it rains",
        "train": "Buys a rail ticket",
        "send": "Mails a letter",
        "sum": "Adds",
        "cut": "Trims",
    }
    rows = [{"name": name, "server": "all", "description": text} for name, text in texts.items()]
    task = {"query": "locomotive seats", "calls": ["train"]}
    other = {"query": "post this", "calls": ["send"]}
    for name, lines in (("tools", rows), ("train", [other]), ("dev", [task])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    tools, given, held_out = read_set(tmp_path)

    def first_rank(encoder: str) -> int | None:
        (tmp_path / encoder).mkdir()
        (each,) = rank(fill(tmp_path / encoder, tools, repeat(given, 2), encoder), held_out, learned=False)
        return each.ranks[0]

    assert first_rank("minilm-tools") == 1 != first_rank("none")
