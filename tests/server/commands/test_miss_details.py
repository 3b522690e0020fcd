"""One miss with the changes that would have shown its tool, and what each would have done."""

import json
from math import inf
from pathlib import Path

import pytest
from recorded_tasks import write_recorded

from foretool.server.commands import one_miss
from foretool.server.commands.group import run

TASKS = [("phase of the moon", ["sky__moon"]), ("add two numbers", ["calc__add"])] * 3


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(one_miss, "PATIENCE_S", inf)  # however slow this machine is
    return write_recorded(tmp_path, TASKS, list_tokens=360)


def test_the_cheapest_change_is_named_with_its_effect(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["misses", "1", "--config", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "would have helped pin sky__moon" in out
    assert "played again over 6 tasks: this tool missed " in out
    assert " or " in out and "to do it foretool misses 1 --fix" in out


def test_without_time_fewer_tasks_are_played_and_the_line_says_so(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_miss, "PATIENCE_S", 0.0)
    assert run(["misses", "1", "--config", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    said = "played again over 5 of 6 tasks, which says little (foretool misses 1 --fix plays all of them): this tool "
    assert said in out
    assert run(["misses", "1", "--json", "--config", str(path)]) == 0
    effect = json.loads(capsys.readouterr().out)["fixes"][0]["effect"]
    assert (effect["tasks"], effect["of"]) == (5, 6)


def test_json_has_every_change_and_its_effect(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["misses", "1", "--json", "--config", str(path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tool"] == "sky__moon" and told["listed_now"] is False
    kinds = [each["fix"]["kind"] for each in told["fixes"]]
    assert {"pin", "budget"} <= set(kinds) and told["fixes"][0]["spared"] > 0
    assert told["fixes"][0]["effect"]["tasks"] == 6
