"""Counts with their nouns, and names."""

import pytest

from foretool.server.config.errors import name_some, plural


@pytest.mark.parametrize(
    ("count", "noun", "said"),
    [
        (1, "tool", "1 tool"), (0, "tool", "0 tools"), (3, "match", "3 matches"), (1234, "miss", "1,234 misses"),
        (2, "discovery", "2 discoveries"),
    ],
)  # fmt: skip
def test_a_noun_follows_its_count(count: int, noun: str, said: str) -> None:
    assert plural(count, noun) == said


def test_names_are_joined_as_in_a_sentence() -> None:
    names = ["git", "time", "files", "web"]
    said = [name_some(names[:count], 3) for count in range(5)]
    assert said == ["", "git", "git and time", "git, time and files", "git, time, files and 1 more"]
