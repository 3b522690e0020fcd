"""The targets of the fuzzer, over their seeds and over what chance makes of these."""

from __future__ import annotations

import random

import pytest

from bench.fuzz import targets
from bench.fuzz.__main__ import NAMES

RUNS = 300


def mutated(data: bytes, chance: random.Random) -> bytes:
    """With a few bytes changed, added or gone."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at, what = chance.randrange(len(found) + 1), chance.random()
        if what < 0.4 and at < len(found):
            found[at] = chance.randrange(256)
        elif what < 0.7:
            found[at:at] = chance.randbytes(chance.randint(1, 3))
        else:
            del found[at : at + chance.randint(1, 6)]
    return bytes(found)


def test_every_target_has_seeds() -> None:
    assert set(NAMES) == targets.TARGETS.keys() == targets.SEEDS.keys()


@pytest.mark.parametrize("name", NAMES)
def test_readers_keep_their_promises_for_seeds_and_what_chance_makes_of_them(name: str) -> None:
    target, chance = targets.TARGETS[name], random.Random(7)
    for seed in targets.SEEDS[name]:
        target(seed)
    for _ in range(RUNS):
        target(mutated(chance.choice(targets.SEEDS[name]), chance))
