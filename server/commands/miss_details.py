"""One miss in full, with the changes that would have shown its tool, and how it is printed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from foretool.server import offline
from foretool.server.commands import output
from foretool.server.commands.effects import say_effect
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.miss_fix import measure_all
from foretool.server.config.loader import load
from foretool.server.ledger.fixes import MeasuredFix, diagnose
from foretool.server.ledger.miss_words import CAUSES
from foretool.server.ledger.story import UNKNOWN_TOOL, MissStory, read_miss_story
from foretool.storage.records import Discovery, Exposure, Match

PATIENCE_S: Final = 0.25
"""Seconds of the processor for which tasks are played; `foretool misses fix` plays all of them."""


class MissDetails(MissStory, frozen=True):
    """One miss with the conversation around it, and what would have shown its tool."""

    cause_in_words: str
    listed_now: bool | None
    """Whether a list that is made now has the tool; null if the tool is not known any more."""
    why: str
    """Why this tool was missed, more exactly than the cause says; "" if the cause says it all."""
    tool: str
    """The exposed name of the tool that was needed, "" if that is not known."""
    fixes: tuple[MeasuredFix, ...]
    """The changes that would have shown it and do no harm to the tasks on record, the best first."""


def show_miss(path: Path | None, id: int, *, replays: bool, as_json: bool) -> int:
    """Print one miss. `replays`: whether each change is tried on recorded tasks. Returns the exit status."""
    config = load(path)
    with offline.read(config) as app:
        store = app.store
        miss = store.calls.miss(id)
        if miss is None:
            return complain(f"misses show: there is no miss {id}; `foretool misses --all` lists all misses", WRONG)
        found = diagnose(app, miss)
        fixes = measure_all(app, found, replays=replays, patience_s=PATIENCE_S)
        told = read_miss_story(store, miss)
        details = MissDetails(
            miss, told.session, told.exposure, told.discovery, told.call, told.story,
            cause_in_words=CAUSES[miss.cause], listed_now=found.listed_now, why=found.why, tool=found.tool,
            fixes=tuple(each for each in fixes if not each.is_worse),
        )  # fmt: skip
    return output.show(details, as_json, _print)


def _print(details: MissDetails) -> None:
    miss = details.miss
    facts = [("when", output.when(miss.at)), *((each.name, each.text) for each in details.tell())]
    facts += [("score", output.score_parts(miss.parts))] if miss.parts else []
    facts += [*_tell_fixes(details), *((each.name, each.text) for each in details.tell_end())]
    if details.listed_now is not None:
        facts.append(("listed now", "yes" if details.listed_now else "no"))
    output.say(f"{miss.id}  {miss.tool or UNKNOWN_TOOL}", "bold")
    for name, value in facts:
        output.say_fact(name, value, indent=2, column=19)
    _print_story(details)
    _print_exposure(details.exposure)
    _print_discovery(details.discovery, miss.tool)


def _tell_fixes(details: MissDetails) -> Iterator[tuple[str, str]]:
    """Yield what would have shown the tool: the best change with what it does, and the others."""
    fixes = details.fixes
    if not fixes:
        yield "would have helped", details.miss.change or "(unknown)"
        return
    best = fixes[0]
    size = f"; the list then takes {best.fix.list_tokens:,} tokens" if best.fix.list_tokens else ""
    helps = best.effect is None or best.spared > 0 or best.effect.verdict == "better"
    # What changes nothing in the tasks on record would have shown the tool, and that is all that is known.
    yield "would have helped" if helps else "would have shown it", f"{best.fix.what}{size}"
    if best.effect is not None:
        yield "played again", say_effect(best, f"foretool misses fix {details.miss.id}")
    if len(fixes) > 1:
        yield "or", "; ".join(each.fix.what for each in fixes[1:])
    yield "to do it", f"foretool misses fix {details.miss.id}"


def _print_story(details: MissDetails) -> None:
    output.say("\nWhat happened:", "bold")
    side = "before"
    for step in details.story:
        tokens = f" [{step.tokens:,} tokens]" if step.tokens else ""
        # What revealed the miss may have the same time, and comes after it all the same.
        when = f"{output.span(abs(step.at - details.miss.at))} {side}"
        if step.kind == "miss":
            when, side = "now", "after"
        text = f'the user asked: "{step.what}"' if step.kind == "prompt" else f"the client {step.what}"
        output.say_fact(when, f"{text}{tokens}", "yellow" if step.kind == "miss" else "", indent=2, column=14)


def _print_exposure(exposure: Exposure | None) -> None:
    if exposure is None:
        output.say("\nThe client had not asked for a list.")
        return
    output.say(
        f"\nIts list: {output.plural(len(exposure.tools), 'tool')}, {exposure.tokens:,} tokens, {exposure.policy},"
        f" epoch {exposure.epoch}, sent {output.when(exposure.at)} ({exposure.reason})"
    )
    output.say(f"  {', '.join(exposure.tools)}")


def _print_discovery(discovery: Discovery | None, missed: str) -> None:
    if discovery is None:
        return
    output.say(
        f"\nIts discovery: confidence {discovery.level}, {output.plural(len(discovery.matches), 'match')},"
        f" {discovery.tokens:,} tokens, {discovery.took_ms:.1f} ms"
    )
    if discovery.matches:
        rows = [_match_cells(match, missed) for match in discovery.matches]
        output.table(("#", "tool…", "score#", "parts…"), rows)


def _match_cells(match: Match, missed: str) -> tuple[object, ...]:
    name = f"{match.tool} (this one)" if match.tool == missed else match.tool
    return match.rank, name, f"{match.score:.2f}", output.score_parts(match.parts)
