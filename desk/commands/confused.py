"""`foretool misses --confused`: tools that are taken for each other, and what would tell them apart."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from foretool.desk.confusions import Confusion, find_confusions, suggest_changes
from foretool.desk.replay.effect import Replays
from foretool.server import offline
from foretool.server.commands import edits, output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.misses import RepairOptions
from foretool.server.commands.one_miss import say_effect
from foretool.server.config.loader import load

_LATELY_S: Final = 30 * 86_400
"""How far back pairs are looked for, unless a time is named."""
_PLAYED: Final = 100
"""How many of the latest tasks each suggestion is tried on."""
_TRIED: Final = 5
"""How many suggestions are tried, those of the most frequent pairs."""


def show_confusions(path: Path | None, since: float | None, repair: RepairOptions, *, as_json: bool) -> int:
    """Show the pairs, or make the change that tells one of them apart. `since`: of the last so many seconds. Returns
    the exit status."""
    config, now = load(path), time.time()
    start = now - (_LATELY_S if since is None else since)
    with offline.open_offline(config) as app:
        found = find_confusions(app.store, app.catalog, start)
        replays = Replays(config, app.store, start, now, _PLAYED) if repair.replays and found else None
        with output.waiting("playing recorded tasks with each change"):
            tried = suggest_changes(app, found[:_TRIED], replays)
        found = [*tried, *suggest_changes(app, found[_TRIED:], None)]
    number = repair.number
    if number is None:
        return output.show(found, as_json, _print)
    if not 1 <= number <= len(found):
        return complain(f"misses --confused: there is no pair {number}; there are {len(found)}", WRONG)
    if not repair.wanted:
        return output.show([found[number - 1]], as_json, _print)
    return _fix(path, found[number - 1], number, repair, as_json=as_json)


def _fix(path: Path | None, pair: Confusion, number: int, repair: RepairOptions, *, as_json: bool) -> int:
    fix = next((each for each in pair.fixes if repair.kind in (None, each.fix.kind)), None)
    if fix is None:
        why = "no words of such a task are on record, so there is nothing to suggest"
        if pair.fixes:
            why = f"there is no {repair.kind} to suggest for pair {number}, but another change"
        return complain(f"misses --confused: {why}", WRONG)
    own = edits.open_file(path)
    with edits.errors_of(own.path):
        for change in fix.fix.changes:
            change.make(own)
    return edits.finish_edit(own, fix.fix.what, "misses", dry_run=repair.dry_run, as_json=as_json)


def _print(found: Sequence[Confusion]) -> None:
    if not found:
        output.say("No two tools were taken for each other more than once in this time.")
        return
    for number, each in enumerate(found, 1):
        output.say(f"{number}  {each.taken} was taken for {each.needed}", "bold")
        counts = [
            f"called in vain before it {_times(each.called)}" if each.called else "",
            f"ranked above it {_times(each.ranked)}" if each.ranked else "",
        ]
        output.say(f"   {', '.join(filter(None, counts))}")
        for task in each.tasks[:1]:
            output.say(f'   task: "{task}"', "dim")
        for place, fix in enumerate(each.fixes):
            output.say(f"   {'or ' if place else ''}{fix.fix.what}")
            if fix.effect is not None:
                output.say(f"     {say_effect(fix)}")
    output.say("To make a change: foretool misses --confused NUMBER --fix")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
