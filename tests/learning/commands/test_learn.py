"""`foretool learn`: imports, trains, reports and rolls back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_fakes import fill, write_config
from requirements import requirement

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learned_fakes import CountedMethod

from foretool.retrieval import methods
from foretool.retrieval.methods import TrainedMethod
from foretool.server.commands.group import run
from foretool.server.config import loader as configs
from foretool.server.learning_schedule import LEARNING
from foretool.storage.opening import open_store
from foretool.storage.records import Call, ToolId
from foretool.storage.sqlite.leads import FileLead as Lead

METHOD = CountedMethod()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    method = TrainedMethod("learned_fakes:Counted", f"{__name__}:METHOD", "history")
    monkeypatch.setattr(methods, "METHODS", {"dtdr": method})
    path = write_config(tmp_path, encoder="none")
    fill(path).close()
    return path


def demonstrations(folder: Path) -> Path:
    file = folder / "demos.jsonl"
    rows = [{"id": str(at), "query": "weather or moon", "calls": ["moon", "sky/forecast"]} for at in range(30)]
    file.write_text("\n".join(map(json.dumps, [*rows, {"query": "x", "calls": ["gone"]}])))
    return file


@requirement("learn:command")
def test_demonstrations_are_imported_learned_from_reported_and_rolled_back(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, config = demonstrations(tmp_path), ["--config", str(path)]
    assert run(["learn", "--from", str(file), "--json", *config]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["episodes"], told["imported"]) == (31, 30)  # and the one call on record
    assert {each["kind"]: each["outcome"] for each in told["lessons"]}["dtdr"] == "promoted"
    assert "30 new of 31 demonstrations" in err
    assert "rows with 1 unknown tool were left out: gone" in err

    assert run(["learn", "--report", *config]) == 0
    assert "dtdr 1, served: reciprocal rank " in " ".join(capsys.readouterr().out.split())
    assert run(["learn", "--report", "--json", *config]) == 0
    assert [each["kind"] for each in json.loads(capsys.readouterr().out)["served"]] == ["dtdr"]

    assert run(["search", "weather or moon", "--json", *config]) == 0
    best = json.loads(capsys.readouterr().out)["matches"][0]
    assert (best["tool"], "history" in best["parts"]) == ("sky__moon", True), best

    assert run(["learn", "--rollback", *config]) == 0
    assert capsys.readouterr().out == "dtdr 1 no longer serves; none serves; ranking goes on without it\n"
    assert run(["learn", "--rollback", *config]) == 0
    assert "there is nothing to roll back" in capsys.readouterr().out


@requirement("learn:command")
def test_it_says_in_words_what_came_of_each_method(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["learn", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "dtdr       skipped   tasks to learn from: 1 of the 4 that it takes\n" in out
    assert "1 task (0 imported)" in out and "--report" not in out, "it would say that nothing was learned yet"


def test_it_says_which_tasks_on_record_it_leaves_out(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(configs.load(path).storage) as store:
        store.calls.record([Call("s2", 9e4, ToolId("old__gone"), "old", "name", False, "ok", 1.0, True, "")])
    assert run(["learn", "--config", str(path)]) == 0
    assert "1 task (0 imported), without 1 task whose tools are gone, " in capsys.readouterr().out
    assert run(["replay", "--since", "3000w", "--config", str(path)]) == 0
    assert capsys.readouterr().out.startswith("2 tasks, ")


def test_what_is_wrong_is_said(tmp_path: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{")
    assert run(["learn", "--from", str(broken), "--config", str(path)]) == 1
    assert "broken.jsonl: line 1: Input data was truncated; expected an object" in capsys.readouterr().err
    with Lead(configs.load(path).storage, LEARNING) as lead:
        assert lead.take()
        assert run(["learn", "--config", str(path)]) == 1
    assert "another process is learning" in capsys.readouterr().err


def test_nothing_on_record_is_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = str(write_config(tmp_path))
    assert run(["learn", "--report", "--config", empty]) == 1
    assert "nothing is on record yet" in capsys.readouterr().err
    assert run(["learn", "--config", empty]) == 1
    assert "no tools are known yet" in capsys.readouterr().err


def test_a_report_of_nothing_says_so(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["learn", "--report", "--config", str(path)]) == 0
    assert "Nothing was learned yet" in capsys.readouterr().out
    with open_store(configs.load(path).storage) as store:
        assert store.artifacts.history() == []
