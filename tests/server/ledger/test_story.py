"""The conversation around a miss, in order."""

from typing import get_args, get_type_hints

import pytest
from command_fakes import CALC, WEATHER
from msgspec.structs import replace
from stored_records import MISS

from foretool.server.ledger.story import (
    CAUSES,
    NOTICED,
    RECOVERED,
    read_story,
    say_cost,
    say_place,
    say_rank,
    say_why,
)
from foretool.storage.records import Call, Cause, Discovery, Exposure, Miss, Noticed, Prompt
from foretool.storage.store import Store


def call(session: str, at: float, tool: str = CALC, *, hidden: bool = False) -> Call:
    return Call(session, at, tool, "calc", "name", hidden, "ok", 1.0, True, "")  # type: ignore[arg-type]


def test_the_searches_that_a_miss_pays_for_are_told_however_many_calls_came_between(store: Store) -> None:
    for at, task in ((900.0, "of another need"), (1000.5, "in vain"), (1000.7, "at last")):
        store.discoveries.add(Discovery("s", at, task, (), None, "high", (), 40, 1.0))
    store.calls.record([call("s", 1001.0 + at) for at in range(19)])
    story = read_story(store, replace(MISS, session="s", at=1020.5, tool=WEATHER, call=0, discovery=3, turns=2))
    assert [step.kind for step in story] == ["search", "search", *["call"] * 12, "miss"]
    assert [step.tokens for step in story[:2]] == [40, 40] and '"in vain"' in story[0].what


def test_hints_and_searches_by_name_are_told(store: Store) -> None:
    store.sessions.add_exposure(Exposure("s", 1000.0, "frozen", 1, (CALC,), 20, "hint"))
    store.discoveries.add(Discovery("s", 1001.0, "", ("a", "b"), None, "none", (), 9, 1.0))
    story = read_story(store, replace(MISS, session="s", at=1002.0, tool="", call=0))
    assert [step.what for step in story] == [
        "was told the names of calc__add (behind a result)",
        "searched for a, b: found no tool (confidence none)",
        "searched, and called no tool",
    ]


def test_the_last_prompt_before_the_miss_is_told_and_none_after_it(store: Store) -> None:
    for at, text in ((900.0, "long ago"), (1000.0, "earlier"), (1001.0, "this one"), (1003.0, "later")):
        store.tasks.add_prompt(Prompt(at, text))
    told = read_story(store, replace(MISS, session="s", at=1002.0, call=0))
    assert [step.kind for step in told] == ["prompt", "miss"] and told[0].what == "this one"


def test_what_the_user_asked_is_told_only_to_who_may_see_everything(store: Store) -> None:
    store.tasks.add_prompt(Prompt(1001.0, "the secret of another profile"))
    missed = replace(MISS, session="s", at=1002.0, call=0)
    assert [step.kind for step in read_story(store, missed)] == ["prompt", "miss"]
    assert [step.kind for step in read_story(store, missed, prompts=False)] == ["miss"]


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
