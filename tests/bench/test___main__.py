"""A sitting runs whole: every command after the other, on one commit, with a log that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import Step, plan, run_sitting


def test_what_cannot_be_run_here_is_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("PEERBENCH", "PEERS_HOME", "FORETOOL_DATA"):
        monkeypatch.delenv(name, raising=False)
    assert [step.name for step in plan(())] == [
        "startup",
        "http",
        "attacks",
        "front-attacks",
        "soak",
        "shared",
        "hostile",
    ]
    assert capsys.readouterr().out.count("left out: ") == 2
    monkeypatch.setenv("PEERBENCH", "peerbench")
    monkeypatch.setenv("PEERS_HOME", "peers")
    (tmp_path / "apibank").mkdir()
    monkeypatch.setenv("FORETOOL_DATA", str(tmp_path))
    steps = {step.name: step.words for step in plan(("--foretool", "/opt/foretool"))}
    assert "/opt/foretool" in steps["peers-calls"] and "--nups" in steps["peers-calls-5"]
    assert steps["ranking-apibank"] == ("bench.retrieval.ranking", str(tmp_path / "apibank"))
    assert "ranking-mcpbench" not in steps and "replay-179" not in steps
    assert capsys.readouterr().out == ""


def test_a_command_that_fails_is_noted_and_the_next_one_runs(tmp_path: Path) -> None:
    run_sitting(tmp_path / "out", [Step("bad", ("no_such_module_here",)), Step("good", ("this",))])
    log = (tmp_path / "out" / "log").read_text().splitlines()
    assert log[0].startswith("commit ")
    assert [line.split()[0] for line in log[1:]] == ["bad", "good"]
    assert [line.rpartition(" ")[2] for line in log[1:]] == ["1", "0"]
    assert "Zen of Python" in (tmp_path / "out" / "good.txt").read_text()
    assert "no_such_module_here" in (tmp_path / "out" / "bad.err").read_text()
