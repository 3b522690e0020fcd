"""What each change that would have shown a missed tool would have done to the tasks on record."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from foretool.desk.replay.effect import Replays, compare
from foretool.server.app import App
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config
from foretool.server.ledger.fixes import Diagnosis, Fix, Kind, MeasuredFix, open_own
from foretool.server.setup.documents import DocumentError
from foretool.server.setup.own_servers import change_config

PLAYED: Final = 100
"""How many of the latest tasks each change is tried on."""
SINCE_S: Final = 30 * 86_400.0
"""How far back they may lie."""
ORDER: Final[tuple[Kind, ...]] = (
    "enable", "approve", "profile", "pin", "budget", "policy", "description", "alias", "rule", "learn",
    "doctor",
)  # fmt: skip
"""Of two changes that take the same, the one whose kind stands first here comes first."""


def measure_diagnosis(app: App, diagnosis: Diagnosis, patience_s: float) -> list[MeasuredFix]:
    """Return the fixes of a miss with what each would have done to the latest tasks, the best first.
    `patience_s`: seconds of the processor after which fewer tasks have to do."""
    now = time.time()
    # The tasks around the miss tell most, however long ago that was.
    since = min(now - SINCE_S, diagnosis.miss.at - SINCE_S)
    replays = Replays(app.config, app.store, since, now, PLAYED, patience_s, app.search)
    return measure(replays, app.config, diagnosis.fixes, diagnosis.tool)


def measure(replays: Replays, config: Config, fixes: Iterable[Fix], tool: str) -> list[MeasuredFix]:
    """Return the fixes with what they would have done to the tasks on record: the one with the fewest misses first, of
    these the one with the fewest searches, then tokens. Changes that the config does not understand are left out."""
    measured: list[MeasuredFix] = []
    changed: list[tuple[Fix, Config]] = []
    for fix in fixes:
        if not fix.changes or not replays.tasks:
            measured.append(MeasuredFix(fix, None, 0))
            continue
        with suppress(ConfigError, DocumentError):
            changed.append((fix, change_config(config, open_own(config), fix.changes)))
    played = replays.play_all([each for _, each in changed]) if changed else []
    for (fix, _), then in zip(changed, played, strict=True):
        before, after = (sum(each.missed.count(tool) for each in tasks) for tasks in (replays.now, then))
        measured.append(MeasuredFix(fix, compare(replays.now, then, of=replays.found), before - after))
    return sorted(measured, key=_cost)


def _cost(measured: MeasuredFix) -> tuple[bool, float, float, float, int]:
    place, effect = ORDER.index(measured.fix.kind), measured.effect
    if effect is None:
        return True, 0.0, 0.0, 0.0, place
    return False, effect.misses.mean, effect.discoveries.mean, effect.tokens.mean, place
