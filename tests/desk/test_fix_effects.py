"""Each change that would have shown a missed tool is tried on the tasks on record."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from recorded_tasks import HOUR, START, write_recorded
from stored_records import MISS

from foretool.desk.fix_effects import measure
from foretool.desk.replay.effect import Replays
from foretool.server import offline
from foretool.server.config import loader
from foretool.server.ledger.effects import Difference, Effect, Figures
from foretool.server.ledger.fixes import Fix, MeasuredFix, diagnose

TASKS = [("phase of the moon", ["sky__moon"]), ("add two numbers", ["calc__add"])] * 3
HIDDEN = replace(
    MISS, session="s0", tool="sky__moon", noticed="discovery", cause="budget", rank=2, of=6,
    query="how full is it tonight?", exposure=0, discovery=0, call=0, change="", at=START + 3,
)  # fmt: skip


def test_the_change_with_the_best_replayed_effect_comes_first(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS * 4, list_tokens=360)
    config = loader.load(path)
    with offline.read(config) as app:
        diagnosis = diagnose(app, HIDDEN)
        replays = Replays(config, app.store, START - 10, START + 99 * HOUR)
        measured = measure(replays, config, [*diagnosis.fixes, Fix("learn", "learn")], diagnosis.tool)
    effects = [each.effect for each in measured if each.effect is not None]
    costs = [(each.misses.mean, each.discoveries.mean, each.tokens.mean) for each in effects]
    assert costs == sorted(costs) and len(costs) > 1
    assert measured[-1].fix.kind == "learn" and measured[-1].effect is None


@pytest.mark.parametrize(
    ("misses", "searches", "is_worse"),
    [
        ((0.1, 0.2, 0.3), (0.0, 0.0, 0.0), True),
        ((-0.1, 0.2, 0.5), (-0.1, -0.1, -0.1), True),
        ((0.0, 0.0, 0.0), (0.0, 0.1, 0.2), True),
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), False),
        ((-0.3, -0.2, -0.1), (-0.1, 0.0, 0.1), False),
    ],
)
def test_a_change_with_which_tasks_would_have_missed_or_searched_more_is_worse(
    misses: tuple[float, float, float], searches: tuple[float, float, float], is_worse: bool
) -> None:
    figures = Figures(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    tokens = Difference(0.0, 0.0, 0.0)
    effect = Effect(9, 9, 9, 0, figures, figures, Difference(*misses), Difference(*searches), tokens, ())
    assert MeasuredFix(Fix("pin", "pin x"), effect, 0).is_worse == is_worse
