"""Counts with their nouns, and names."""

import pytest

from foretool.server.system.counts import name_some, plural


@pytest.mark.parametrize(
    ("count", "noun", "said"),
    [
        (1, "tool", "1 tool"), (0, "tool", "0 tools"), (3, "match", "3 matches"), (1234, "miss", "1,234 misses"),
        (2, "discovery", "2 discoveries"),
    ],
)  # fmt: skip
def test_a_noun_follows_its_count(count: int, noun: str, said: str) -> None:
    assert plural(count, noun) == said


def test_of_many_names_the_first_are_said() -> None:
    assert name_some(["a", "b"], 2) == "a, b" and name_some(["a", "b", "c", "d"], 2) == "a, b and 2 more"
