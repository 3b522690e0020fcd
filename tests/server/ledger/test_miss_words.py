"""Misses in words: each cause, each way of noticing, each way out, rank and cost."""

from typing import get_args, get_type_hints

import pytest
from msgspec.structs import replace
from stored_records import MISS

from foretool.server.ledger.miss_words import CAUSES, NOTICED, RECOVERED, say_cost, say_place, say_rank, say_why
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


DENIED = replace(MISS, cause="denied")


@pytest.mark.parametrize(
    ("miss", "said"),
    [
        (replace(DENIED, change='remove "x" from "deny"'), "a rule of the config refuses it"),
        (replace(DENIED, change="add 'sky' to the servers of profile 'w'"), "the profile does not have its server"),
        (replace(DENIED, change="foretool review sky"), "it waits for your approval"),
        (replace(DENIED, change="it is excluded in the config of server 'sky': see it"),
         "it is excluded in the config of server 'sky'"),
        (replace(MISS, cause="unknown", noticed="unknown_name"), "no server of this config has a tool of this name"),
        (MISS, ""),
    ],
)  # fmt: skip
def test_a_cause_is_told_as_exactly_as_it_is_known(miss: Miss, said: str) -> None:
    assert say_why(miss) == said


def test_a_place_says_in_words_how_many_there_were() -> None:
    ranks = [(2, 1042), (0, 42), (0, 1), (0, 0)]
    said = [say_place(replace(MISS, rank=rank, of=of)) for rank, of in ranks]
    assert said == [
        "number 2 of 1,042 ranked tools",
        "not one of 42 ranked tools",
        "not one of 1 ranked tool",
        "not ranked",
    ]
