"""Misses in words: each cause, each way of noticing, each way out, rank and cost."""

from typing import get_args, get_type_hints

from msgspec.structs import replace
from stored_records import MISS

from foretool.server.commands.causes import CAUSES, NOTICED, RECOVERED, say_cost, say_rank
from foretool.storage.records import Cause, Miss, Noticed


def test_every_cause_and_every_way_of_noticing_is_put_in_words() -> None:
    assert set(CAUSES) == set(get_args(Cause))
    assert set(NOTICED) == set(get_args(Noticed))
    assert set(RECOVERED) == set(get_args(get_type_hints(Miss)["recovered"]))


def test_a_rank_says_how_many_there_were() -> None:
    ranks = [(2, 42), (0, 42), (0, 0)]
    assert [say_rank(replace(MISS, rank=rank, of=of)) for rank, of in ranks] == ["2/42", "-/42", "-"]


def test_a_cost_names_what_there_was() -> None:
    costs = [(1, 80), (2, 0), (0, 5), (0, 0)]
    said = [say_cost(replace(MISS, turns=turns, tokens=tokens)) for turns, tokens in costs]
    assert said == ["1 turn, 80 tokens", "2 turns", "5 tokens", "-"]
