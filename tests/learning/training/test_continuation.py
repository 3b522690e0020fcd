"""Questions to a language model, and the file that keeps its scores."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretool.learning.training.continuation import (
    LONGEST_VALUE,
    LikelihoodQuestion,
    Score,
    ScoreFile,
    score_all,
    write_call,
)

DICE = 'def diceroller():\n"""\nRolls dice using the d20 or Fate systems.\n"""'
NEWS = 'def newsreader():\n"""\nReads the news of the day.\n"""'


class Counting:
    """Scores by length, and remembers what it was asked."""

    model = "counting"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def logprob(self, prompt: str, continuation: str) -> Score:
        self.asked.append(prompt)
        return Score(-float(len(prompt)), len(continuation))


def test_the_prompt_shows_one_document_the_query_and_then_the_answer() -> None:
    asked = LikelihoodQuestion(DICE, "Roll a d20", "diceroller()")
    assert f"Docstring:\n{DICE}\n\nQuery: Roll a d20\nAnswer:" in asked.prompt
    assert asked.continuation == " diceroller()"


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        ('{"city":"Rome","days":3,"metric":true}', 'roll(city="Rome", days=3, metric=true)'),
        ('{"city":"string"}', 'roll(city="string")'),
        ("{}", "roll()"),
        ("", "roll()"),
        ("no json", "roll()"),
        ("[1]", "roll()"),
        (f'{{"text":"{"a" * 500}"}}', f'roll(text="{"a" * (LONGEST_VALUE - 1)})'),
    ],
)
def test_a_call_is_written_with_its_arguments(arguments: str, call: str) -> None:
    assert write_call("roll", arguments) == call


def test_the_mean_is_per_token() -> None:
    assert Score(-6.0, 4).mean == -1.5


def test_each_thing_is_asked_once_and_those_of_one_document_together(tmp_path: Path) -> None:
    scorer = Counting()
    asked = [LikelihoodQuestion(document, query, "f()") for query in ("b", "a") for document in (NEWS, DICE)]
    told: list[tuple[int, int]] = []
    with ScoreFile(tmp_path / "scores.txt") as kept:
        found = score_all(scorer, [*asked, *asked], kept, lambda done, of: told.append((done, of)))
    assert scorer.asked == [LikelihoodQuestion(d, q, "f()").prompt for d in (DICE, NEWS) for q in ("a", "b")]
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert found[asked[0]] == Score(-float(len(asked[0].prompt)), 4)


def test_a_score_on_file_is_not_asked_for_again_and_half_a_line_is_dropped(tmp_path: Path) -> None:
    path, asked = (
        tmp_path / "kept" / "scores.txt",
        [LikelihoodQuestion(DICE, "a", "f()"), LikelihoodQuestion(DICE, "b", "f()")],
    )
    with ScoreFile(path) as kept:
        found = score_all(Counting(), asked, kept)
    whole = path.read_bytes()
    path.write_bytes(whole + b"0123456789 -1.5")  # killed while it wrote
    again = Counting()
    with ScoreFile(path) as kept:
        assert len(kept) == 2
        assert score_all(again, asked, kept) == found
    assert again.asked == []
    assert path.read_bytes() == whole


def test_other_models_documents_queries_and_answers_have_other_keys() -> None:
    asked = LikelihoodQuestion(DICE, "a", "f()")
    others = {
        asked.key("m"),
        asked.key("n"),
        *(asked._replace(**{field: "x"}).key("m") for field in LikelihoodQuestion._fields),
    }
    assert len(others) == 5
