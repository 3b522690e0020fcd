"""What a change does to the tasks on record, as commands print it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from foretool.server.commands import output

if TYPE_CHECKING:
    from foretool.server.ledger.fixes import MeasuredFix
    from foretool.server.replay.effect import Difference, Effect

FEW: Final = 20
"""With fewer tasks the intervals say little."""


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
        little = ", which says little" if effect.tasks < FEW else ""
        played = f"{effect.tasks} of {output.plural(effect.of, 'task')}{little} ({all_by} plays all of them)"
    return (
        f"over {played}: {spared}per task misses {_say(effect.misses, 2)}, discovery turns"
        f" {_say(effect.discoveries, 2)}, tokens read {_say(effect.tokens, 0)}"
    )


def show_effect(effect: Effect) -> None:
    """Print the figures of an effect as a table."""
    now, then = effect.now, effect.then
    rows = [
        ("misses", f"{now.misses:.2f}", f"{then.misses:.2f}", _say(effect.misses, 2)),
        ("discovery turns", f"{now.discoveries:.2f}", f"{then.discoveries:.2f}", _say(effect.discoveries, 2)),
        ("tokens read", f"{now.tokens:,.0f}", f"{then.tokens:,.0f}", _say(effect.tokens, 0)),
        ("tokens of the list", f"{now.listed:,.0f}", f"{then.listed:,.0f}", "-"),
    ]
    if now.unreachable or then.unreachable:
        rows.append(("calls not let through", f"{now.unreachable:.2f}", f"{then.unreachable:.2f}", "-"))
    output.table(("per task", "now#", "then#", "difference (95 % interval)#"), rows)


def say_doubts(effect: Effect) -> None:
    """Say what makes the figures of an effect doubtful."""
    if effect.guessed:
        what = output.plural(effect.guessed, "search")
        output.say(f"The words of {what} are not on record; the words of the tool stand for them.", "yellow")
    if effect.tasks < FEW:
        output.say(f"{output.plural(effect.tasks, 'task')}: with so few the intervals say little.", "yellow")


def _say(difference: Difference, digits: int) -> str:
    return "{:+,.{d}f} ({:+,.{d}f} to {:+,.{d}f})".format(difference.mean, difference.low, difference.high, d=digits)
