"""Learning runs as before and after."""

from __future__ import annotations

from pathlib import Path

from command_fakes import write_config

from foretool.desk.page.learning import cut_runs, read_lesson, read_runs
from foretool.server.config.loader import load
from foretool.storage.opening import open_store

REPORT = {
    "episodes": 40, "replayed": 20, "old": {"mrr": 0.4}, "new": {"mrr": 0.5}, "difference": [0.05, 0.1, 0.15],
}  # fmt: skip


def test_a_run_has_what_it_trained_and_the_served_model_is_named(tmp_path: Path) -> None:
    config = load(write_config(tmp_path))
    with open_store(config.storage) as store:
        store.artifacts.add("dtdr", b"one", REPORT, promote=True, at=10.0)
        store.artifacts.add("tgr", b"", {**REPORT, "new": {"mrr": 0.2}, "old": {"mrr": 0.3}}, promote=False, at=11.0)
        store.artifacts.add("run", b"", {}, promote=False, at=12.0)
        store.artifacts.add("dtdr", b"two", REPORT, promote=True, at=20.0)
    runs = read_runs(config)
    assert [(run.at, [lesson.kind for lesson in run.lessons]) for run in runs] == [
        (20.0, ["dtdr"]),
        (12.0, ["tgr", "dtdr"]),
    ]
    assert [(each.number, each.state) for each in runs[0].lessons] == [(2, "serves")]
    tgr, dtdr = runs[1].lessons
    assert (tgr.state, tgr.before, tgr.after) == ("not better", 0.3, 0.2)
    assert (dtdr.state, dtdr.difference) == ("replaced", (0.05, 0.1, 0.15))


def test_a_report_without_a_comparison_has_no_figures(tmp_path: Path) -> None:
    config = load(write_config(tmp_path))
    with open_store(config.storage) as store:
        kept = store.artifacts.add("weights", b"x", {"difference": [1]}, promote=True)
    lesson = read_lesson(kept)
    assert (lesson.before, lesson.after, lesson.difference) == (None, None, None)
    assert cut_runs([]) == []
