"""`foretool misses fix`: makes one of the changes that would have shown a missed tool, and says before what it does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from foretool.server import packs
from foretool.server.commands import edits, output
from foretool.server.commands.effects import say_doubts, say_effect
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option
from foretool.server.config.loader import load

if TYPE_CHECKING:
    from foretool.server.app import App
    from foretool.server.ledger.fixes import Diagnosis, MeasuredFix

GUARDED: Final = ("rule", "enable", "profile", "approve")
"""Changes that let something in which the user has kept out: only a user who names one makes it unasked."""
KINDS: Final = (
    "pin", "budget", "policy", "fill", "alias", "description", "enable", "rule", "profile", "approve", "learn", "doctor"
)  # fmt: skip


@click.command("fix")
@click.argument("id", type=int, required=False)
@click.option("--change", "kind", type=click.Choice(KINDS), help="Make this change instead of asking which.")
@click.option("--yes", "-y", "agreed", is_flag=True, help="Ask nothing: make the change named, or the best one.")
@edits.dry_run_option
@edits.undo_option
@config_option
def fix(path: Path | None, id: int | None, kind: str | None, agreed: bool, dry_run: bool, wanted_undo: bool) -> int:
    """Make a change that would have shown the tool of a miss.

    Shows every change that would have: a pin, a larger list, another policy, an alias, a better description, a server
    or a tool that is let in again, an approval, learning. Each is tried on the latest tasks on record: the one with the
    fewest misses comes first, and one with which these tasks would have missed or searched more is made only by its
    name. Then asks which one to make. The file keeps its comments and its order.

    \b
    foretool misses fix 12
    foretool misses fix 12 --change pin --yes
    foretool misses fix --undo
    """
    if wanted_undo:
        return edits.undo(path, False)
    if id is None:
        raise click.UsageError("name the number of a miss, or add --undo; `foretool misses --all` lists them")
    from foretool.server import offline  # 0.3 s of imports that `foretool misses` does without
    from foretool.server.ledger.fixes import diagnose

    own, config = edits.open_file(path), load(path)
    with offline.read(config) as app:
        miss = app.store.calls.miss(id)
        if miss is None:
            return complain(f"misses fix: there is no miss {id}; `foretool misses --all` lists all misses", WRONG)
        found = diagnose(app, miss)
        if not found.fixes:
            return _say_nothing(found)
        fixes = measure_all(app, found)
    offered, problem = _narrow(found, fixes, kind, agreed=agreed)
    if problem:
        return complain(f"misses fix: {problem}", WRONG)
    _print(found, offered)
    chosen = _choose(offered, agreed=agreed or dry_run)
    if chosen is None:
        output.say("Nothing was changed.")
        return WRONG
    if chosen.fix.command:
        return _run(chosen.fix.command, path, agreed=agreed, dry_run=dry_run)
    with edits.errors_of(own.path):
        for change in chosen.fix.changes:
            change.make(own)
    return edits.finish(own, chosen.fix.what, "misses fix", dry_run=dry_run, as_json=False)


def _narrow(
    found: Diagnosis, fixes: Sequence[MeasuredFix], kind: str | None, *, agreed: bool
) -> tuple[list[MeasuredFix], str]:
    """Return the changes that are offered, or why there are none. What does the tasks on record harm is made only by
    its name."""
    if kind is not None:
        named = [each for each in fixes if each.fix.kind == kind]
        there = ", ".join(each.kind for each in found.fixes)
        return named, "" if named else f"{kind} would not have shown {found.tool}; these would: {there}"
    offered = [each for each in fixes if not each.is_worse]
    if not offered:
        harm = "; ".join(f"{each.fix.what}: {say_effect(each)}" for each in fixes)
        return [], f"each change would do the tasks on record more harm than good: {harm}"
    unasked = [each for each in offered if each.fix.kind not in GUARDED] if agreed else offered
    first = offered[0].fix
    return unasked, "" if unasked else f"--yes alone does not {first.what}; add --change {first.kind}"


def measure_all(app: App, found: Diagnosis, *, replays: bool = True, patience_s: float = inf) -> list[MeasuredFix]:
    """Return the fixes of a miss with what each would have done to the latest tasks, the best first. `patience_s`:
    seconds of the processor after which fewer tasks have to do."""
    from foretool.server.ledger.fixes import MeasuredFix

    is_wanted = replays and any(each.changes for each in found.fixes)
    if not is_wanted or (measure := packs.load(packs.MEASURE_FIXES)) is None:
        return [MeasuredFix(each, None, 0) for each in found.fixes]
    with output.waiting("playing recorded tasks with each change"):
        measured: list[MeasuredFix] = measure(app, found, patience_s)
    return measured


def _say_nothing(found: Diagnosis) -> int:
    """Say why there is nothing to change. Returns the exit status."""
    if found.listed_now:
        output.say(f"{found.tool} is in the list by now; nothing has to change.")
        return 0
    miss = found.miss
    way = miss.change or "it is not known which tool was needed; foretool misses show tells the conversation"
    return complain(f"misses fix: no change of the config would have shown it: {way}", WRONG)


def _print(found: Diagnosis, fixes: Sequence[MeasuredFix]) -> None:
    said = found.why or found.miss.cause
    output.say(f"{found.tool or 'A tool'} was missed ({said}). What would have shown it:")
    for number, each in enumerate(fixes, 1):
        size = f" (the list then takes {each.fix.list_tokens:,} tokens)" if each.fix.list_tokens else ""
        output.say(f"{number}  {each.fix.kind}: {each.fix.what}{size}", "bold")
        if each.effect is not None:
            output.say(f"   {say_effect(each)}")
        elif each.fix.command and f" {each.fix.command}" not in f" {each.fix.what}":
            output.say(f"   by: {each.fix.command}")
    played = [each.effect for each in fixes if each.effect is not None]
    if played:
        say_doubts(max(played, key=lambda effect: effect.guessed))


def _choose(fixes: Sequence[MeasuredFix], *, agreed: bool) -> MeasuredFix | None:
    """Ask which change to make; the first one if nothing is to be asked. None if the user wants none."""
    if agreed:
        return fixes[0]
    if not sys.stdin.isatty():
        raise click.UsageError("there is nobody to ask: add --yes, or --dry-run to change nothing")
    if len(fixes) == 1:
        return fixes[0] if click.confirm("Make this change?") else None
    answer: int = click.prompt(
        "Which one? 0 makes none", type=click.IntRange(0, len(fixes)), default=1, show_default=True
    )
    return fixes[answer - 1] if answer else None


def _run(line: str, path: Path | None, *, agreed: bool, dry_run: bool) -> int:
    """Run the command that makes a change outside of the config; with --yes or --dry-run only name it. Returns the
    exit status."""
    if dry_run or agreed:
        output.say(f"This is done by another command, which shows what it does: {line}")
        return 0
    from foretool.server.commands.group import run

    return run([*line.removeprefix("foretool ").split(), *(["--config", str(path)] if path is not None else [])])
