"""One miss: its story, the changes that would have shown its tool with what each does, and making one of them.

`foretool misses NUMBER` and `foretool misses NUMBER --fix` use it, and the desk says with it what a change does.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Final

import click

from foretool.server import offline, packs
from foretool.server.app import App
from foretool.server.commands import edits, output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.config.loader import load
from foretool.server.ledger.effects import Difference, Effect
from foretool.server.ledger.fixes import DOUBTFUL, NAMED_NOW, MeasuredFix, MissDiagnosis, diagnose_miss
from foretool.server.ledger.story import CAUSES, MissStory, name_miss, read_miss_story

PATIENCE_S: Final = 0.25
"""Seconds of the processor for which tasks are played before a miss is shown; `--fix` plays all of them."""
_FEW: Final = 20
"""With fewer tasks the intervals say little."""
_MOMENT_S: Final = 0.5
"""What is less apart is told as one moment."""


class MissDetails(MissStory, frozen=True):
    """One miss with the conversation around it, and what would have shown its tool."""

    cause_in_words: str
    listed_now: bool | None
    """Whether the list of the next client has the tool; null if the tool is not known any more."""
    why: str
    """Why this tool was missed, more exactly than the cause says; "" if the cause says it all."""
    tool: str
    """The exposed name of the tool that was needed, "" if that is not known."""
    fixes: tuple[MeasuredFix, ...]
    """The changes that would have shown it and do no harm to the tasks on record, the best first."""
    lifted: str
    """Why nothing has to change any more, where what kept the tool away has ended; else ""."""
    named_now: bool
    """Whether the list of the next client names the tool, and does not define it."""


def show_miss(path: Path | None, id: int, *, replays: bool, as_json: bool) -> int:
    """Print one miss. `replays`: whether each change is tried on recorded tasks. Returns the exit status."""
    with offline.open_offline(load(path)) as app:
        store = app.store
        miss = store.calls.miss(id)
        if miss is None:
            return _say_unknown(id)
        found = diagnose_miss(app, miss)
        fixes = measure_all(app, found, replays=replays, patience_s=PATIENCE_S)
        told = read_miss_story(store, miss)
        details = MissDetails(
            miss, told.session, told.exposure, told.discovery, told.call, told.story,
            cause_in_words=CAUSES[miss.cause], listed_now=found.listed_now, why=found.why, tool=found.tool,
            fixes=tuple(each for each in fixes if not each.is_worse), lifted=found.lifted,
            named_now=found.named_now,
        )  # fmt: skip
    return output.show(details, as_json, _print_details)


def _print_details(details: MissDetails) -> None:
    miss = details.miss
    facts = [("when", output.when(miss.at)), *((each.name, each.text) for each in details.tell())]
    facts += [*_tell_fixes(details), *((each.name, each.text) for each in details.tell_end())]
    is_of_a_tool = details.listed_now is not None and miss.noticed != "unknown_name"
    if is_of_a_tool and details.lifted != NAMED_NOW:  # which says where it stands
        facts.append(_tell_next_list(details))
    output.say(f"{miss.id}  {name_miss(miss)}", "bold")
    for name, value in facts:
        output.say_fact(name, value, indent=2, column=20)
    _print_story(details)
    if miss.query and details.discovery is not None:
        output.say(f"\nHow a search for this task ranks tools now: foretool search {shlex.quote(miss.query)} --why")


def _tell_next_list(details: MissDetails) -> tuple[str, str]:
    """Say whether the next list has the tool: the one that was missed, or that was called after a search in vain."""
    if details.miss.tool:
        return "in the next list", "yes" if details.listed_now else "by its name" if details.named_now else "no"
    how = "in" if details.listed_now else "named in" if details.named_now else "not in"
    return "called after it", f"{details.tool}, which is {how} the next list"


def _tell_fixes(details: MissDetails) -> Iterator[tuple[str, str]]:
    """Yield what would have shown the tool: the best change with what it does, and the others."""
    fixes = details.fixes
    if details.lifted:
        yield "what to do", f"nothing any more: {details.lifted}"
        return
    if not fixes:
        yield "would have helped", details.miss.change or "(unknown)"
        return
    best = fixes[0]
    size = f"; the list then takes {best.fix.list_tokens:,} tokens" if best.fix.list_tokens else ""
    # What changes nothing in the tasks on record would have shown the tool, and that is all that is known.
    what = f"{best.fix.command}: {best.fix.what}" if best.fix.kind == "doctor" else best.fix.what
    yield "would have helped" if best.is_advised else "would have shown it", f"{what}{size}"
    if best.effect is not None:
        yield "played again", say_effect(best, f"foretool misses {details.miss.id} --fix")
    if len(fixes) > 1:
        yield "or", "; ".join(each.fix.what for each in fixes[1:])
    if any(each.fix.kind != "doctor" for each in fixes):  # which the line above names as a command
        by_name = f" --change {best.fix.kind}" if best.is_idle else ""
        yield "to do it", f"foretool misses {details.miss.id} --fix{by_name}"


def _print_story(details: MissDetails) -> None:
    output.say("\nWhat happened:", "bold")
    side = "before"
    for step in details.story:
        tokens = f" [{step.tokens:,} tokens]" if step.tokens else ""
        # What revealed the miss may have the same time, and comes after it all the same.
        apart = abs(step.at - details.miss.at)
        when = f"{output.span(apart) if apart >= _MOMENT_S else 'just'} {side}"
        if step.is_own:
            when, side = "now", "after"
        text = f'the user asked: "{step.what}"' if step.kind == "prompt" else f"the client {step.what}"
        output.say_fact(when, f"{text}{tokens}", "yellow" if step.is_own else "", indent=2, column=14)


def _say_unknown(id: int) -> int:
    return complain(
        f"misses: there is no miss {id}; `foretool misses --all` lists all of them (a number stays free where it turned"
        " out that nothing was missed)",
        WRONG,
    )


def fix_miss(path: Path | None, id: int, kind: str | None, *, agreed: bool, dry_run: bool, replays: bool) -> int:
    """Make a change that would have shown a miss's tool. `kind`: None to ask. Returns the exit status."""
    own, config = edits.open_file(path), load(path)
    with offline.open_offline(config) as app:
        miss = app.store.calls.miss(id)
        if miss is None:
            return _say_unknown(id)
        found = diagnose_miss(app, miss)
        if not found.fixes:
            return _say_nothing(found)
        fixes = measure_all(app, found, replays=replays)
    offered, problem = _narrow(found, fixes, kind, agreed=agreed)
    if problem:
        return complain(f"misses: {problem}", WRONG)
    if all(each.fix.kind == "doctor" for each in offered):
        (only,) = offered
        output.say(
            f"{found.tool or 'A tool'} was missed ({found.why or miss.cause}). Run {only.fix.command}: {only.fix.what}."
        )
        return 0
    _print_fixes(found, offered)
    chosen = _choose(offered, agreed=agreed or dry_run)
    if chosen is None:
        output.say("Nothing was changed.")
        return WRONG
    if chosen.fix.command:
        return _run(chosen.fix.command, path, agreed=agreed, dry_run=dry_run)
    with edits.errors_of(own.path):
        for change in chosen.fix.changes:
            change.make(own)
    return edits.finish_edit(own, chosen.fix.what, "misses", dry_run=dry_run, as_json=False)


def _narrow(
    found: MissDiagnosis, fixes: Sequence[MeasuredFix], kind: str | None, *, agreed: bool
) -> tuple[list[MeasuredFix], str]:
    """Return the changes that are offered, or why there are none. What does the tasks on record harm, or spares them
    nothing, is made only by its name."""
    if kind is not None:
        named = [each for each in fixes if each.fix.kind == kind]
        there = ", ".join(each.kind for each in found.fixes)
        return named, "" if named else f"{kind} would not have shown {found.tool}; these would: {there}"
    offered = [each for each in fixes if not each.is_worse]
    if not offered:
        harm = "; ".join(f"{each.fix.what}: {say_effect(each)}" for each in fixes)
        return [], f"each change would do the tasks on record more harm than good: {harm}"
    if all(each.is_idle for each in offered):
        first = offered[0]
        why = (
            f"no change would have spared the tasks on record a miss or a search; {first.fix.what}: {say_effect(first)}"
        )
        return [], f"{why}; to make it all the same, add --change {first.fix.kind}"
    offered = [each for each in offered if not each.is_idle]
    if not agreed:
        return offered, ""
    first = offered[0]
    unasked = [each for each in offered if each.is_made_unasked]
    why = f" ({say_effect(first)})" if first.effect is not None and not first.is_advised else ""
    return unasked, "" if unasked else f"--yes alone does not {first.fix.what}{why}; add --change {first.fix.kind}"


def measure_all(app: App, found: MissDiagnosis, *, replays: bool = True, patience_s: float = inf) -> list[MeasuredFix]:
    """Return the fixes of a miss with what each would have done to the latest tasks, the best first. `patience_s`:
    seconds of the processor after which fewer tasks have to do."""
    is_wanted = replays and any(each.changes for each in found.fixes)
    if not is_wanted or (measure := packs.load_part(packs.MEASURE_FIXES)) is None:
        return [MeasuredFix(each, None, 0) for each in found.fixes]
    with output.waiting("playing recorded tasks with each change"):
        measured: list[MeasuredFix] = measure(app, found, patience_s)
    return measured


def _say_nothing(found: MissDiagnosis) -> int:
    """Say why there is nothing to change. Returns the exit status."""
    if found.listed_now:
        output.say(f"{found.tool} is in the next list; nothing has to change.")
        return 0
    if found.lifted:
        output.say(f"{found.tool}: nothing has to change any more: {found.lifted}.")
        return 0
    miss = found.miss
    way = miss.change or f"it is not known which tool was needed; the conversation tells: foretool misses {miss.id}"
    return complain(f"misses: no change of the config would have shown it: {way}", WRONG)


def _print_fixes(found: MissDiagnosis, fixes: Sequence[MeasuredFix]) -> None:
    said = found.why or found.miss.cause
    output.say(f"{found.tool or 'A tool'} was missed ({said}). What would have shown it:")
    for number, each in enumerate(fixes, 1):
        size = f" (the list then takes {each.fix.list_tokens:,} tokens)" if each.fix.list_tokens else ""
        output.say(f"{number}  {each.fix.kind}: {each.fix.what}{size}", "bold")
        if each.fix.is_doubtful:
            output.say(f"   {DOUBTFUL}")
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
    numbers = [str(number) for number in range(1, len(fixes) + 1)]
    is_one = len(fixes) == 1
    answer: str = click.prompt(
        "Make this change? [y/N]" if is_one else "Which one? n makes none",
        type=click.Choice([*numbers, "y", "n", "0"]),
        default="n",
        show_choices=False,
        show_default=not is_one,
    )
    if answer == "y" and not is_one:
        return next((each for each in fixes if each.is_advised), None)
    chosen = "1" if answer == "y" else answer
    return fixes[numbers.index(chosen)] if chosen in numbers else None


def _run(line: str, path: Path | None, *, agreed: bool, dry_run: bool) -> int:
    """Run the command that makes a change outside of the config; with --yes or --dry-run only name it. Returns the
    exit status."""
    if dry_run or agreed:
        output.say(f"This is done by another command, which shows what it does: {line}")
        return 0
    from foretool.server.commands.group import run

    return run([*line.removeprefix("foretool ").split(), *(["--config", str(path)] if path is not None else [])])


def say_effect(measured: MeasuredFix, all_by: str = "") -> str:
    """Write what a change would have done to the tasks on record, in a few words. `all_by`: the command that plays all
    of them, for one that plays only as many as there is time for."""
    effect = measured.effect
    if effect is None:
        return "not known"
    times = "once" if measured.spared == 1 else f"{measured.spared} times"
    spared = f"this tool missed {times} less; " if measured.spared > 0 else ""
    played = output.plural(effect.tasks, "task")
    if effect.tasks < effect.of and all_by:
        little = ", which says little" if effect.tasks < _FEW else ""
        played = f"{effect.tasks} of {output.plural(effect.of, 'task')}{little} ({all_by} plays all of them)"
    if measured.spares_nothing:
        tokens = f"; per task {effect.tokens.say('tokens read', 0)}" if effect.tokens.mean else ""
        return f"over {played}: it would have spared no miss and no search{tokens}"
    changes = (
        effect.misses.say("misses", 2), effect.discoveries.say("searches", 2), effect.tokens.say("tokens read", 0),
    )  # fmt: skip
    return f"over {played}: {spared}per task {', '.join(changes)}"


def say_doubts(effect: Effect) -> None:
    """Say what makes the figures of an effect doubtful."""
    if effect.guessed:
        what = output.plural(effect.guessed, "search")
        output.say(f"The words of {what} are not on record; the words of the tool stand for them.", "yellow")
    if effect.tasks < _FEW:
        output.say(f"{output.plural(effect.tasks, 'task')}: with so few this says little.", "yellow")


def say_difference(difference: Difference, digits: int) -> str:
    """Write a difference with the ends of its interval."""
    return "{:+,.{d}f} ({:+,.{d}f} to {:+,.{d}f})".format(difference.mean, difference.low, difference.high, d=digits)
