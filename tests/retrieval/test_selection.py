from __future__ import annotations

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from requirements import requirement

from foretool.retrieval.ranking import Evidence, Query, Ranked, Ranking
from foretool.retrieval.selection import FAINTEST, Selection, level, select, sufficiency, working_set
from foretool.storage.records import ToolId, Usage

QUERY = Query(("a task",))


def ranking(*names: str, evidence: tuple[Evidence, ...] = ()) -> Ranking:
    ranked = tuple(Ranked(ToolId(name), float(len(names) - at)) for at, name in enumerate(names))
    return Ranking(ranked, len(ranked), evidence)


def sizes(**tokens: int) -> dict[ToolId, int]:
    return {ToolId(name): size for name, size in tokens.items()}


@requirement("learn:detection")
def test_a_task_that_needs_no_tool_is_not_met_by_a_good_match() -> None:
    good = Evidence(strength=3.0, entropy=0.5)
    assert sufficiency(replace(good, needed=0.9)) == sufficiency(replace(good, needed=0.5)) == sufficiency(good)
    assert sufficiency(replace(good, needed=0.25)) == pytest.approx(0.5 * sufficiency(good))
    assert level(ranking("a", evidence=(replace(good, needed=0.9),)), QUERY) == "high"
    assert level(ranking("a", evidence=(replace(good, needed=0.04),)), QUERY) == "none"
    assert level(ranking("a", evidence=(replace(good, needed=0.04, named=True),)), QUERY) == "high"


def test_tools_are_taken_down_the_ranking_while_the_budget_lasts() -> None:
    tokens = sizes(a=50, b=100, c=40, d=10, e=1)
    assert select(ranking("a", "b", "c", "d", "e"), tokens.__getitem__, budget=100, cap=3) == Selection(
        chosen=(ToolId("a"), ToolId("c"), ToolId("d")), cut={ToolId("b"): "budget", ToolId("e"): "rank"}, tokens=100
    )


def test_pins_come_first_even_beyond_the_budget_and_do_not_count_against_the_cap() -> None:
    tokens = sizes(a=50, p=90, q=90)
    pins = [ToolId("p"), ToolId("q"), ToolId("p")]
    assert select(ranking("a", "p"), tokens.__getitem__, budget=100, cap=1, pins=pins) == Selection(
        chosen=(ToolId("p"), ToolId("q")), cut={ToolId("a"): "budget"}, tokens=180
    )
    assert select(ranking("p", "a"), tokens.__getitem__, budget=300, cap=1, pins=pins).chosen == ("p", "q", "a")


@given(
    st.lists(st.tuples(st.text("abcdef", min_size=1, max_size=2), st.integers(1, 90))),
    st.integers(0, 200),
    st.integers(0, 9),
)
def test_a_selection_keeps_its_budget_and_accounts_for_every_tool(
    tools: list[tuple[str, int]], budget: int, cap: int
) -> None:
    tokens = {ToolId(name): size for name, size in tools}
    found = select(ranking(*tokens), tokens.__getitem__, budget, cap)
    assert found.tokens == sum(tokens[tool] for tool in found.chosen) <= budget
    assert len(found.chosen) <= cap
    assert {*found.chosen, *found.cut} == set(tokens)
    assert len(found.chosen) + len(found.cut) == len(tokens)


def test_sufficiency_is_the_logistic_of_its_two_features() -> None:
    evidence = Evidence(strength=2.0, entropy=1.0)
    assert sufficiency(evidence) == pytest.approx(1 / (1 + exp(-(1.49 + 1.29 * log(2.0) - 0.52))))
    assert sufficiency(Evidence(named=True)) == 1.0
    assert sufficiency(Evidence()) == 0.0


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        ((Evidence(strength=2.0, entropy=0.5),), "high"),
        ((Evidence(strength=1.0, entropy=2.0),), "medium"),
        ((Evidence(strength=0.6, entropy=3.5),), "low"),
        ((Evidence(strength=FAINTEST * 0.99, entropy=0.0),), "none"),
        ((Evidence(named=True),), "high"),
        ((Evidence(named=True), Evidence()), "low"),
        ((Evidence(strength=2.0, entropy=0.5), Evidence(strength=0.6, entropy=3.5)), "medium"),
        ((), "low"),
    ],
)
def test_the_level_follows_the_evidence(evidence: tuple[Evidence, ...], expected: str) -> None:
    assert level(ranking("a", evidence=evidence), QUERY) == expected


def test_an_empty_ranking_is_none() -> None:
    assert level(Ranking(evidence=(Evidence(named=True),)), QUERY) == "none"


def test_the_working_set_is_what_was_used_most_lately() -> None:
    usages = [
        Usage(ToolId("old"), 100, 0, 0.0),
        Usage(ToolId("fresh"), 3, 0, 10.0),
        Usage(ToolId("missed"), 0, 2, 10.0),
        Usage(ToolId("big"), 50, 0, 10.0),
        Usage(ToolId("never"), 0, 0, 10.0),
        Usage(ToolId("also"), 3, 0, 10.0),
    ]
    tokens = sizes(old=10, fresh=10, missed=10, big=1000, never=10, also=10).__getitem__
    assert working_set(usages, tokens, budget=40, now=10.0, half_life_s=1.0) == ["missed", "also", "fresh", "old"]
    assert working_set(usages, tokens, budget=25, now=10.0, half_life_s=1.0) == ["missed", "also"]
    assert working_set([], tokens, budget=25, now=10.0, half_life_s=1.0) == []
