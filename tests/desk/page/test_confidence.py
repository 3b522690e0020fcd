"""What was promised against what held."""

from __future__ import annotations

from pathlib import Path

from command_fakes import CALC, WEATHER, fill, write_config

from foretool.desk.page.confidence import LEAST, make_bins, read_confidence
from foretool.server.config.loader import load
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, Match


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
