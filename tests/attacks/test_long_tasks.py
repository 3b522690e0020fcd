"""A client searches with the longest task that is accepted, in words that nobody knows, while others wait."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

import pytest

from foretool.retrieval.clauses import in_english
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.ranking import MOST_SEARCHED, Query, task_lines
from tests.support.tools import tool

LETTERS = "abcdefghiklmnoprstuvw"
MOST = 20_000


def _words(between: str, rng: random.Random) -> str:
    return between.join("".join(rng.choices(LETTERS, k=rng.randint(3, 9))) for _ in range(MOST // 4))


def _characters(first: int, count: int, rng: random.Random) -> str:
    return "".join(chr(first + rng.randrange(count)) for _ in range(MOST))


TASKS: dict[str, Callable[[random.Random], str]] = {
    "lines": partial(_words, "\n"),
    "words": partial(_words, " "),
    "sentences": partial(_words, ". "),
    "german lines": partial(_words, "\nbitte die "),
    "chinese": partial(_characters, 0x4E00, 5_000),
    "korean": partial(_characters, 0xAC00, 11_000),
}


@pytest.mark.parametrize("make", TASKS.values(), ids=TASKS.keys())
def test_the_longest_task_takes_about_as_long_as_one_of_a_fifth(make: Callable[[random.Random], str]) -> None:
    tools = [tool("files", f"read_{number}", f"Reads thing {number} of a folder.") for number in range(100)]
    pipeline = Pipeline(Corpus(tools))

    def shortest(size: int) -> float:
        took = []
        for _ in range(3):
            task = make(rng)[:size]
            begun = time.process_time()
            pipeline.rank(Query(task_lines(task)))
            took.append(time.process_time() - begun)
        return min(took)

    rng = random.Random(1)
    short = shortest(MOST_SEARCHED)
    assert shortest(MOST) < 3 * short + 0.005  # some 2 times; all of it read, it would be five


def test_many_lines_are_read_in_the_language_of_all_of_them() -> None:
    lines = ["lies die Datei", "sende eine Nachricht", "lösche den Ordner"]
    said = in_english("\n".join(lines * 200)).splitlines()
    assert len(said) == 600
    assert "file" in said[0] and "message" in said[1] and "folder" in said[2]
