"""Each change that would have shown a missed tool is tried on the tasks on record."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from recorded_tasks import HOUR, START, write_recorded
from stored_records import MISS

from foretool.desk.fix_effects import measure
from foretool.desk.replay.effect import Replays
from foretool.server import offline
from foretool.server.config import loader
from foretool.server.ledger.fixes import Fix, diagnose

TASKS = [("phase of the moon", ["sky__moon"]), ("add two numbers", ["calc__add"])] * 3
HIDDEN = replace(
    MISS, session="s0", tool="sky__moon", noticed="discovery", cause="budget", rank=2, of=6,
    query="how full is it tonight?", exposure=0, discovery=0, call=0, change="", at=START + 3,
)  # fmt: skip


def test_the_cheapest_change_that_helps_comes_first(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS * 4, list_tokens=360)
    config = loader.load(path)
    with offline.read(config) as app:
        diagnosis = diagnose(app, HIDDEN)
        replays = Replays(config, app.store, START - 10, START + 99 * HOUR)
        measured = measure(replays, config, [*diagnosis.fixes, Fix("learn", "learn")], diagnosis.tool)
    helping = [each for each in measured if each.spared > 0]
    assert helping and measured[: len(helping)] == helping
    costs = [each.effect.tokens.mean for each in helping if each.effect is not None]
    assert costs == sorted(costs)
    assert measured[-1].fix.kind == "learn" and measured[-1].effect is None
