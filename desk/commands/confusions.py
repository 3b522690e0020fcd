"""`foretool confusions`: tools that are taken for each other, and what would tell them apart."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from foretool.desk.confusions import Confusion, find_confusions, suggest
from foretool.desk.replay.effect import Replays
from foretool.server import offline
from foretool.server.commands import edits, output
from foretool.server.commands.effects import say_effect
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.misses import read_duration
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load

PLAYED: Final = 100
"""How many of the latest tasks each suggestion is tried on."""
TRIED: Final = 5
"""How many suggestions are tried, those of the most frequent pairs."""


@click.command("confusions")
@click.option(
    "--since", type=read_duration, metavar="TIME", default="30d", show_default=True,
    help="Only tasks of the last 7d, 12h, 30min, ...",
)  # fmt: skip
@click.option("--fix", "number", type=click.IntRange(1), metavar="NUMBER", help="Make the change of this pair.")
@click.option(
    "--as", "kind", type=click.Choice(("alias", "description")), help="Which change to make; by default the first one."
)
@click.option("--no-replay", is_flag=True, help="Do not play recorded tasks to see what each change would have done.")
@edits.dry_run_option
@edits.undo_option
@config_option
@json_option
def command(
    path: Path | None, as_json: bool, since: float, number: int | None, kind: str | None, no_replay: bool,
    dry_run: bool, wanted_undo: bool,
) -> int:  # fmt: skip
    """Show tools taken for each other, and what tells them apart.

    A pair is on record where one tool was called in vain right before the other one succeeded for the same task, or
    where a search ranked it above the one that was then called, among the latest 50,000 calls and 5,000 searches. The
    words of such a task in the description of the right tool, and one of them in its name, are tried on recorded tasks
    as in foretool replay.

    \b
    foretool confusions
    foretool confusions --fix 1 --dry-run
    foretool confusions --fix 1 --as alias
    """
    if wanted_undo:
        return edits.undo(path, as_json)
    config, now = load(path), time.time()
    with offline.read(config) as app:
        found = find_confusions(app.store, app.catalog, now - since)
        replays = None if no_replay or not found else Replays(config, app.store, now - since, now, PLAYED)
        with output.waiting("playing recorded tasks with each change"):
            tried = suggest(app, found[:TRIED], replays)
        found = [*tried, *suggest(app, found[TRIED:], None)]
    if number is None:
        return output.show(found, as_json, _print)
    if number > len(found):
        return complain(f"confusions: there is no pair {number}; there are {len(found)}", WRONG)
    fixes = found[number - 1].fixes
    fix = next((each for each in fixes if kind in (None, each.fix.kind)), None)
    if fix is None:
        if fixes:
            return complain(f"confusions: there is no {kind} to suggest for pair {number}, but another change", WRONG)
        return complain("confusions: no words of such a task are on record, so there is nothing to suggest", WRONG)
    own = edits.open_file(path)
    with edits.errors_of(own.path):
        for change in fix.fix.changes:
            change.make(own)
    return edits.finish(own, fix.fix.what, "confusions", dry_run=dry_run, as_json=as_json)


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
    output.say("To make a change: foretool confusions --fix NUMBER")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
