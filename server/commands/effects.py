"""What a change does to the tasks on record, as commands print it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from foretool.server.commands import output

if TYPE_CHECKING:
    from foretool.server.ledger.effects import Difference, Effect
    from foretool.server.ledger.fixes import MeasuredFix

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
        f"over {played}: {spared}per task misses {say_difference(effect.misses, 2)}, discovery turns"
        f" {say_difference(effect.discoveries, 2)}, tokens read {say_difference(effect.tokens, 0)}"
    )


def say_doubts(effect: Effect) -> None:
    """Say what makes the figures of an effect doubtful."""
    if effect.guessed:
        what = output.plural(effect.guessed, "search")
        output.say(f"The words of {what} are not on record; the words of the tool stand for them.", "yellow")
    if effect.tasks < FEW:
        output.say(f"{output.plural(effect.tasks, 'task')}: with so few the intervals say little.", "yellow")


def say_difference(difference: Difference, digits: int) -> str:
    """Write a difference with the ends of its interval."""
    return "{:+,.{d}f} ({:+,.{d}f} to {:+,.{d}f})".format(difference.mean, difference.low, difference.high, d=digits)
