"""Which tools come first on a list, and which it gains."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FakeUpstream, config_of, tool
from requirements import requirement

from foretool.retrieval.ranking import Ranked
from foretool.server.catalog.catalog import Catalog
from foretool.server.lists import order
from foretool.server.lists.order import (
    MOST_FOUND,
    FirstTools,
    GrowthRule,
    ListBudget,
    NameCost,
    Prediction,
    fill_names,
    most_used,
    order_by_use,
)
from foretool.server.protocol.jsonrpc import raw
from foretool.storage.records import ToolId, Usage


def catalog(**servers: list[Any]) -> Catalog:
    found = Catalog(list(config_of(*map(FakeUpstream, servers)).servers.values()))
    for name, tools in servers.items():
        found.replace(name, [raw(each) for each in tools])
    return found


def test_small_tools_come_first_and_those_that_do_not_compete_are_left_out() -> None:
    known = catalog(one=[tool("big", "word " * 200), tool("small"), tool("other")], two=[tool("tiny")])
    names = FirstTools(known).order(lambda each: each.name != "other", 1000)
    assert sorted(names[:2]) == ["one__small", "two__tiny"]
    assert names[2:] == ["one__big"]


def test_copies_and_tools_of_servers_that_are_there_to_be_tried_come_last() -> None:
    known = catalog(
        everything=[tool("sum")], one=[tool("same"), tool("more")], two=[tool("same")],
        tried=[tool("a", "Demonstrates how annotations look"), tool("b", "Echoes the message")],
    )  # fmt: skip
    first = FirstTools(known)
    ordered, named = first.order(lambda each: True, 1000), first.order_names(lambda each: True)
    for names in (ordered, named):
        assert "one__more" in names[:2] and {"one__same", "two__same"} & set(names[:2])
    assert (len(ordered), len(named)) == (6, 5)


def test_tools_are_named_one_of_each_server_after_the_other_whatever_their_size() -> None:
    known = catalog(one=[tool("a", "word " * 200), tool("b"), tool("c")], two=[tool("d"), tool("e", "word " * 200)])
    names = FirstTools(known).order_names(lambda each: True)
    assert [name.partition("__")[0] for name in names] == ["one", "two", "one", "two", "one"]


def test_of_too_many_tools_each_server_is_read_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "MOST", 6)
    known = catalog(many=[tool(f"m{each}") for each in range(50)], few=[tool("f1"), tool("f2")])
    names = FirstTools(known).order(lambda each: True, 1000)
    assert len(names) == 6 and {"few__f1", "few__f2"} < set(names)


def test_a_definition_that_changes_is_read_again() -> None:
    known = catalog(one=[tool("a", "word " * 50), tool("b", "word " * 60)])
    first = FirstTools(known)
    assert first.order(lambda each: True, 1000)[0] == "one__a"
    known.replace("one", [raw(tool("a", "word " * 70)), raw(tool("b", "word " * 60))])
    assert first.order(lambda each: True, 1000)[0] == "one__b"


A, B, C, D = (ToolId(f"s__{name}") for name in "abcd")
SIZES = {A: 100, B: 10, C: 40, D: 40}


def test_a_few_of_the_best_are_listed_where_the_gate_is_sure() -> None:
    many = [Ranked(ToolId(f"s__{number}"), 1.0) for number in range(12)]
    assert GrowthRule().for_prompt(many, True) == [each.tool for each in many[:MOST_FOUND]]
    assert GrowthRule(most_found=None).for_discovery(many, True) == [each.tool for each in many]
    assert len(GrowthRule().for_discovery(many, True)) == MOST_FOUND
    assert GrowthRule().for_prompt(many, False) == GrowthRule().for_discovery(many, False) == []


def test_four_likely_next_tools_are_listed_unless_the_task_is_likelier_done() -> None:
    chances = {ToolId(f"s__{number}"): 0.19 for number in range(5)} | {A: 0.1}
    assert len(GrowthRule().for_next(chances, Prediction(chances, end=0.1).goes_on)) == 4
    assert GrowthRule().for_next(chances, Prediction(chances, end=0.2).goes_on) == []
    assert not Prediction({}, end=0.0).goes_on


def test_a_small_tool_comes_before_a_large_one_that_was_used_more_often() -> None:
    # 3 / 10^.5 > 9 / 100^.5; a tool that a search has found counts as well.
    used = [Usage(A, 9, 0, 5.0), Usage(B, 3, 0, 5.0), Usage(C, 0, 0, 5.0)]
    assert order_by_use(used, SIZES.__getitem__, 5.0, 1.0) == [B, A]
    assert order_by_use([Usage(A, 9, 0, 5.0), Usage(B, 0, 1, 5.0)], SIZES.__getitem__, 5.0, 1.0) == [B, A]


def budget(sizes: dict[str, int], left: int, for_definitions: int, kept_free: int = 0) -> ListBudget:
    """A list in which a name takes 8 + 2 tokens; `c` has none."""

    def names(tool: ToolId) -> NameCost:
        return NameCost() if tool == "c" else NameCost("", 0, 8)

    return ListBudget(sizes.__getitem__, names, left, for_definitions, kept_free)


@requirement("learn:names")
def test_a_list_is_split_between_definitions_and_names() -> None:
    tools = [ToolId(each) for each in "abcd"]
    sizes = {"a": 50, "b": 40, "c": 60, "d": 10}
    assert budget(sizes, 100, 100).split(tools, tools) == (["a", "b", "d"], [])
    # Half is for definitions: `a`. Of the other 50, 20 name `b` and `d`; 30 are left, in which `d` fits after all.
    assert budget(sizes, 100, 50).split(tools, tools) == (["a", "d"], ["b"])
    assert budget(sizes, 15, 0).split(tools, tools) == ([], ["a"])
    # With nothing for names, what definitions leave still names a tool: 85 - 50 - 10 for `a` and `d`.
    assert budget(sizes, 85, 85).split(tools, tools) == (["a", "d"], ["b"])
    # Nothing is to be defined: half of the tokens, and what names leave of the other half, stay free.
    assert budget(sizes, 100, 50).split([], tools) == ([], ["a", "b", "d"])


@requirement("learn:names")
def test_a_tool_pays_for_its_definition_if_it_is_called_in_every_second_task() -> None:
    # Of 20 calls, and 8 of doubt, 7 are a quarter. Half of them count a half-life later.
    often, seldom = Usage(A, 7, 0, 5.0), Usage(B, 6, 0, 5.0)
    used = [often, seldom, Usage(C, 7, 0, 5.0)]
    assert most_used(used, 5.0, 10.0) == {A, C}
    assert most_used(used, 15.0, 10.0) == frozenset()
    # One call says little, and nothing was used.
    assert most_used([Usage(A, 2, 0, 5.0)], 5.0, 10.0) == frozenset() == most_used([], 5.0, 10.0)
    assert most_used([Usage(A, 3, 0, 5.0)], 5.0, 10.0) == {A}


@requirement("learn:names")
def test_what_a_growing_list_keeps_free_goes_to_neither_names_nor_definitions() -> None:
    tools = [ToolId(each) for each in "abdefg"]
    sizes = dict.fromkeys("abdefg", 30)
    assert budget(sizes, 120, 30).split(tools[:2], tools) == (["a", "b"], ["d", "e", "f", "g"])
    assert budget(sizes, 120, 30, 30).split(tools[:2], tools) == (["a"], ["b", "d", "e", "f", "g"])
    assert budget(sizes, 120, 30, 60).split(tools[:2], tools) == (["a"], ["b", "d", "e"])


def test_names_of_one_group_pay_for_what_they_share_once() -> None:
    costs = {"a": NameCost("x", 5, 3), "b": NameCost("y", 5, 3), "c": NameCost("x", 5, 3), "d": NameCost("x", 5, 9)}
    tools = [ToolId(each) for each in costs]
    # 10 tokens for the first, 5 for another one of its group; 2 of each stand between names.
    assert fill_names(tools, costs.__getitem__, 15) == (["a", "c"], 0)
    assert fill_names(tools, costs.__getitem__, 25) == (["a", "b", "c"], 0)
    assert fill_names(tools, costs.__getitem__, 36) == (["a", "b", "c", "d"], 0)
