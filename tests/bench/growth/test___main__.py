"""The tables of growth are made in slices, and each slice once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.growth.__main__ import HEADS, SIZES, Slice, read, run, slices


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    asked: list[int] = []

    def slice_of(size: int) -> Slice:
        def measure() -> object:
            asked.append(size)
            return iter([(size, {"CPU s": size / 10})])

        return Slice("learning", size, measure)  # type: ignore[arg-type]

    found = [slice_of(size) for size in (10, 20, 30)]
    (tmp_path / "learning.jsonl").write_text(json.dumps({"size": 20, "found": {"CPU s": 9}}) + "\n")
    assert run(tmp_path, found, minutes=0.0) == 2
    assert asked == []
    assert run(tmp_path, found, minutes=5.0) == 0
    assert asked == [10, 30]
    assert read(tmp_path, "learning") == {20: {"CPU s": 9}, 10: {"CPU s": 1.0}, 30: {"CPU s": 3.0}}


def test_a_slice_that_fails_is_left_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> object:
        raise OSError("its proxy is gone")

    def measure() -> object:
        return iter([(2, {"s": 1})])

    found = [Slice("ledger", 1, fail), Slice("ledger", 2, measure)]  # type: ignore[arg-type]
    assert run(tmp_path, found, minutes=5.0) == 1
    assert read(tmp_path, "ledger") == {2: {"s": 1}}
    assert "its proxy is gone" in capsys.readouterr().err


def test_without_data_learning_is_left_out(tmp_path: Path) -> None:
    assert {each.subject for each in slices(["ledger", "learning", "catalogue"], None)} == {"ledger"}
    assert {each.subject for each in slices(list(SIZES), None)} == SIZES.keys() - {"learning", "catalogue"}
    assert SIZES.keys() == HEADS.keys()
    assert [each.size for each in slices(["catalogue"], tmp_path)] == [500, 5_000, 20_000, 44_000]
    assert [each.size for each in slices(["learning"], tmp_path)] == [100, 1_000, 10_000, 100_000]
