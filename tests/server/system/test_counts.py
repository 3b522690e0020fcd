"""Counts with their nouns."""

import pytest

from foretool.server.system.counts import plural


@pytest.mark.parametrize(
    ("count", "noun", "said"),
    [
        (1, "tool", "1 tool"), (0, "tool", "0 tools"), (3, "match", "3 matches"), (1234, "miss", "1,234 misses"),
        (2, "discovery", "2 discoveries"),
    ],
)  # fmt: skip
def test_a_noun_follows_its_count(count: int, noun: str, said: str) -> None:
    assert plural(count, noun) == said
