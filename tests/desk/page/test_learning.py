"""Learning runs as before and after."""

from __future__ import annotations

from pathlib import Path

from command_fakes import CALC, WEATHER, fill, write_config

from foretool.desk.page.learning import LEAST, cut_runs, make_bins, read_confidence, read_lesson, read_runs
from foretool.server.config.loader import load
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, Match

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


def test_bins_hold_what_was_promised_and_what_came_true() -> None:
    low, high = make_bins([(0.05, 0.0), (0.07, 1.0), (0.9, 1.0), (1.0, 1.0)])
    assert (low.count, low.low, low.high, low.held) == (2, 0.0, 0.1, 0.5)
    assert (high.count, high.high, high.held, high.bound[1]) == (2, 1.0, 1.0, 1.0)
    assert low.bound[0] < 0.5 < low.bound[1]


def test_few_outcomes_show_nothing_and_enough_are_rated(tmp_path: Path) -> None:
    config = load(write_config(tmp_path))
    fill(config.path).close()
    assert read_confidence(config).rated is None
    with open_store(config.storage) as store:
        for number in range(LEAST):
            at = 1000.0 + 10 * number
            matches = (Match(WEATHER, 1, 1.0), Match(CALC, 2, 0.5))
            found = Discovery("s1", at, f"task {number}", (), None, "high", matches, 50, 1.0, probability=0.8)
            id = store.discoveries.add(found)
            store.calls.record([Call("s1", at + 1, WEATHER, "sky", "name", True, "ok", 1.0, True, "", id)])
    page = read_confidence(config)
    assert page.rated is not None and page.rated.found == 1.0
    assert [(bin.count, bin.held) for bin in page.bins] == [(LEAST, 1.0)]
