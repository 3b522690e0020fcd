"""The log that learning is measured on says what the tasks of a set say, however many there are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from bench.growth import learning
from bench.growth.learning import UNBOUNDED, Task, fill, rank, read_set, repeat
from foretool.learning.sampling import read_sample
from foretool.server.config import loader as configs
from foretool.storage.opening import open_store
from foretool.storage.records import ToolId


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


def test_a_full_fit_is_compared_over_the_same_tasks(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[tuple[Path, bool]] = []

    def learn(path: Path, *, full: bool = False) -> tuple[float, float, float, dict[str, str]]:
        runs.append((path, full))
        return 1.0, 2.0, 3.0, {"dtdr": "promoted", "tgr": "kept"}

    monkeypatch.setattr(learning, "learn", learn)
    row = learning.measure(tmp_path, data, 12, full=True)
    assert [full for _, full in runs] == [False, True]
    assert runs[0][0] != runs[1][0]  # each learns from a log of its own
    assert row["promoted"] == row["full: promoted"] == "dtdr"
    assert row["mrr"] == row["full: mrr"]
    assert row["bounded less full, mrr"] == row["bounded less full, top5"] == "+0.000 (+0.000 to +0.000)"
    (tmp_path / "alone").mkdir()
    assert not [name for name in learning.measure(tmp_path / "alone", data, 12) if name.startswith("full")]


def test_the_full_fit_is_learned_by_a_process_of_its_own_that_has_no_bounds() -> None:
    told = subprocess.run(
        [sys.executable, "-P", str(UNBOUNDED), "learn", "--help"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0 and "learn" in told.stdout
    code = (
        "from foretool.retrieval import methods\n"
        "from foretool.learning.training import Material, dtdr, masstool, replay\n"
        "from bench.growth import unbounded\n"
        "seen = []\n"
        "masstool.METHOD = masstool.METHOD._replace(train=lambda material, progress: seen.append(material) or b'')\n"
        "bounded = dtdr.METHOD\n"
        "unbounded.loosen()\n"
        "assert methods.load('foretool.learning.training.dtdr:METHOD') is not bounded\n"
        "assert replay.LONGEST == replay.MOST_TOOLS == dtdr.MANY == unbounded.ALL\n"
        "material = Material((), (), earlier=b'x', is_trial=True)\n"
        "methods.load('foretool.learning.training.masstool:METHOD').train(material, print)\n"
        "assert not seen[0].earlier and not seen[0].is_trial\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=UNBOUNDED.parents[2], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


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
