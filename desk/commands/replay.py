"""`foretool replay`: what other settings would have done to the tasks on record."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click
from msgspec import Struct

from foretool.desk.replay.changes import ChangeProblem, read_changes
from foretool.desk.replay.effect import Recorded, open_replays
from foretool.desk.replay.queries import MOST
from foretool.server.commands import edits, output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.misses import read_duration
from foretool.server.commands.one_miss import say_difference, say_doubts
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.errors import ConfigError, split_place
from foretool.server.config.loader import load
from foretool.server.ledger.effects import Effect, Verdict
from foretool.server.setup.own_servers import change_config

VERDICTS: Final[dict[Verdict, str]] = {
    "better": "The change is better: something falls outside the error, and nothing rises.",
    "worse": "The change is worse: something rises outside the error, and nothing falls.",
    "mixed": "The change is a trade: something falls outside the error, and something rises.",
    "same": "No difference is outside the error.",
}
_MEANING: Final = (
    "A task is one with a call that worked. now and then are played: a client calls what its list defines or names and"
    " searches once for each other tool; each turn reads a list as large as the next one is. On record is what clients"
    " did in these tasks; status --stats and misses also count searches and names that led to no call."
)
_FAILS: Final = ("worse", "costlier", "not-better")


class ReplayAnswer(Struct, frozen=True):
    """What a change would have done to the tasks on record."""

    changes: tuple[str, ...]
    """As `--set` takes them; empty if none was asked for."""
    verdict: Verdict
    """`mixed`: something falls outside the error, and something rises."""
    failed: tuple[str, ...]
    """Which of `--fail-if` hold."""
    recorded: Recorded
    effect: Effect


@click.command("replay")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Try this value; KEY+=VALUE adds to a list.")
@click.option(
    "--since", type=read_duration, metavar="TIME", default="7d", show_default=True,
    help="Only tasks of the last 7d, 12h, 30min, ...",
)  # fmt: skip
@click.option(
    "--tasks", "most", type=click.IntRange(1), default=MOST, show_default=True,
    help="Play at most this many, the latest ones.",
)  # fmt: skip
@click.option(
    "--fail-if", "fails", type=click.Choice(_FAILS), multiple=True,
    help="Exit with 1 if the change is this, outside the error: more misses or searches, more tokens, or no gain.",
)  # fmt: skip
@config_option
@json_option
def command(
    path: Path | None, as_json: bool, changes: tuple[str, ...], since: float, most: int, fails: tuple[str, ...]
) -> int:
    """Say what other settings would have done to the tasks on record.

    Plays each task again with your settings and with the changed ones: the same calls, with the lists and answers that
    a client would have got. Changes nothing and starts no server. Without --set, shows how tasks do now.

    \b
    foretool replay --set list_tokens=3000
    foretool replay --since 30d --set policy=growing --set pin+=git__git_log
    foretool replay --set servers.git.disabled=true
    foretool replay --set 'servers.git.tools.git_log.description=Shows commits'
    foretool replay --set list_tokens=1000 --fail-if worse
    """
    config = load(path)
    own = edits.open_file(config.path)
    now = time.time()
    try:
        asked = read_changes(changes, config)
    except ChangeProblem as error:
        raise click.UsageError(f"--set {error}") from None
    try:
        with edits.errors_of(own.path):
            changed = change_config(config, own, asked)
    except ConfigError as error:
        raise click.UsageError(f"--set {_say_refused(error)}") from None
    with open_replays(config, now - since, now, most) as replays:
        if not replays.tasks:
            return complain(
                "replay: no task of this time is on record; give a longer --since, or let a client call tools first",
                WRONG,
            )
        with output.waiting(f"playing {output.plural(len(replays.tasks), 'task')}, twice"):
            effect = replays.effect(changed) if asked else replays.effect_of_nothing()
        recorded = replays.recorded
    failed = tuple(each for each in fails if _fails(effect, each))
    answer = ReplayAnswer(tuple(each.text for each in asked), effect.verdict, failed, recorded, effect)
    output.show(answer, as_json, _print)
    return complain(f"replay: the change is {' and '.join(failed)}", WRONG) if failed else 0


def _say_refused(error: ConfigError) -> str:
    """Say which change the config does not take. The file is fine: a place in it, and how its JSON is written, would
    mislead."""
    said = split_place(str(error)).without_file
    return said.removeprefix("foretool.").removesuffix("; write it without quotes")


def _fails(effect: Effect, name: str) -> bool:
    if name == "worse":
        return effect.is_worse
    return effect.tokens.is_higher if name == "costlier" else effect.verdict != "better"


def _print(answer: ReplayAnswer) -> None:
    effect = answer.effect
    counts = f"{output.plural(effect.tasks, 'task')}, {output.plural(effect.calls, 'call')}"
    output.say(f"{counts}, {output.plural(effect.sessions, 'session')}, played again in {effect.took_s:.0f} s", "bold")
    if not answer.changes:
        _print_now(effect, answer.recorded)
        return
    _show_effect(effect, answer.recorded)
    output.say(f"then: {', '.join(answer.changes)}")
    output.say(VERDICTS[effect.verdict], {"better": "green", "worse": "red", "mixed": "yellow"}.get(effect.verdict, ""))
    for shift in effect.shifts:
        output.say(f"  {shift.tool}: missed {output.plural(shift.then, 'time')} instead of {shift.now}")
    say_doubts(effect)


def _print_now(effect: Effect, recorded: Recorded) -> None:
    now = effect.now
    rows = [
        ("misses", f"{now.misses:.2f}", f"{recorded.misses:.2f}"),
        ("discovery turns", f"{now.discoveries:.2f}", f"{recorded.discoveries:.2f}"),
        ("tokens read", f"{now.tokens:,.0f}", "-"),
        ("tokens of the list", f"{now.listed:,.0f}", "-"),
    ]
    output.table(("per task", "now#", "on record#"), rows)
    output.say(_MEANING)
    say_doubts(effect)
    output.say("To try another setting: foretool replay --set list_tokens=3000")


def _show_effect(effect: Effect, recorded: Recorded) -> None:
    """Print the figures of an effect as a table."""
    now, then = effect.now, effect.then
    misses, discoveries, tokens = (
        say_difference(each, digits)
        for each, digits in ((effect.misses, 2), (effect.discoveries, 2), (effect.tokens, 0))
    )
    rows = [
        ("misses", f"{now.misses:.2f}", f"{then.misses:.2f}", misses, f"{recorded.misses:.2f}"),
        (
            "discovery turns", f"{now.discoveries:.2f}", f"{then.discoveries:.2f}", discoveries,
            f"{recorded.discoveries:.2f}",
        ),
        ("tokens read", f"{now.tokens:,.0f}", f"{then.tokens:,.0f}", tokens, "-"),
        ("tokens of the list", f"{now.listed:,.0f}", f"{then.listed:,.0f}", "-", "-"),
    ]  # fmt: skip
    if now.unreachable or then.unreachable:
        rows.append(("calls not let through", f"{now.unreachable:.2f}", f"{then.unreachable:.2f}", "-", "-"))
    output.table(("per task", "now#", "then#", "difference (95 % interval)#", "on record#"), rows)
    output.say(_MEANING)
