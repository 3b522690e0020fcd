"""What a change does to the tasks on record, in words and as a table."""

import pytest

from foretool.desk.commands.replay import _show_effect
from foretool.desk.replay.effect import Recorded, compare_tasks
from foretool.desk.replay.player import PlayedTask
from foretool.server.commands.one_miss import say_doubts, say_effect
from foretool.server.ledger.effects import Difference, Effect
from foretool.server.ledger.fixes import Fix, MeasuredFix


def effect(tasks: int = 30, guessed: int = 0, unreachable: int = 0) -> Effect:
    now = [PlayedTask(str(number), 2, misses=1, discoveries=1, read=900, listed=300) for number in range(tasks)]
    then = [
        PlayedTask(str(number), 2, read=1000, listed=400, guessed=guessed, unreachable=unreachable)
        for number in range(tasks)
    ]
    return compare_tasks(now, then)


def test_an_effect_in_words_is_a_number_and_whether_it_is_sure() -> None:
    said = say_effect(MeasuredFix(Fix("pin", "pin a__b"), effect(), 4))
    assert said == (
        "over 30 tasks: this tool missed 4 times less; per task 1.00 misses fewer, 1.00 searches fewer,"
        " 100 tokens read more"
    )
    assert say_effect(MeasuredFix(Fix("learn", "learn"), None, 0)) == "not known"


@pytest.mark.parametrize(
    ("difference", "said"),
    [
        (Difference(-0.38, -0.12, 0.0), "0.12 misses fewer (unsure)"),
        (Difference(0.25, 1.5, 3.0), "1.50 misses more"),
        (Difference(-0.2, 0.0, 0.2), "as many misses"),
    ],
)
def test_a_difference_is_said_to_who_reads_no_intervals(difference: Difference, said: str) -> None:
    assert difference.say("misses", 2) == said


def test_a_table_has_then_against_now(capsys: pytest.CaptureFixture[str]) -> None:
    _show_effect(effect(unreachable=1), Recorded(0.5, 0.25))
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert ["misses", "1.00", "0.00", "-1.00", "(-1.00", "to", "-1.00)", "0.50"] in rows
    assert ["tokens", "of", "the", "list", "300", "400", "-", "-"] in rows
    assert ["calls", "not", "let", "through", "0.00", "1.00", "-", "-"] in rows


def test_doubts_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    say_doubts(effect())
    assert capsys.readouterr().out == ""
    say_doubts(effect(2, guessed=1))
    out = capsys.readouterr().out
    assert "The words of 2 searches are not on record" in out and "2 tasks: with so few" in out
