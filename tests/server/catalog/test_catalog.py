"""The one truth about what exists: read, filtered, named, remembered."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest
from fakes import FakeUpstream, config_of, tool
from hypothesis import example, given
from hypothesis import strategies as st
from requirements import requirement

from foretool.server.catalog.catalog import Catalog, admit_all
from foretool.server.catalog.definitions import MOST_PROBLEM, MOST_PROBLEMS
from foretool.server.catalog.names import Key, assign_names
from foretool.server.protocol.jsonrpc import raw
from foretool.storage.records import ToolId
from foretool.storage.steps import finish


def catalog(*upstreams: FakeUpstream, fixed: dict[ToolId, Key] | None = None) -> Catalog:
    """`fixed` collects the names that are given for good."""
    return Catalog(list(config_of(*upstreams).servers.values()), None, ({} if fixed is None else fixed).update)


def names_of(one: Catalog, fixed: dict[ToolId, Key]) -> dict[Key, ToolId]:
    """Every name that is given for good, and those of the tools there are."""
    return {key: name for name, key in fixed.items()} | {(each.upstream, each.name): each.id for each in one.tools()}


def listed(*tools: Any) -> list[Any]:
    return [raw(tool(each) if isinstance(each, str) else each) for each in tools]


def test_a_config_that_changes_while_a_list_is_read_holds_for_the_whole_list() -> None:
    one = catalog(FakeUpstream("calc"))
    steps = one.replace_in_steps("calc", listed("add", "sub", "mul"), "", admit_all)
    next(steps)
    next(steps)
    one.configure(list(config_of(FakeUpstream("calc", entry={"exclude": ["add"]})).servers.values()))
    finish(steps)
    assert [each.id for each in one.tools()] == ["calc__mul", "calc__sub"]


def test_two_lists_read_in_turns_both_take_their_place() -> None:
    one = catalog(FakeUpstream("a"), FakeUpstream("b"))
    readings = [one.replace_in_steps(name, listed("x", "y", "z"), "", admit_all) for name in ("a", "b")]
    while readings:
        readings = [each for each in readings if next(each, "ended") != "ended"]
    assert [each.id for each in one.tools()] == [f"{name}__{tool}" for name in "ab" for tool in "xyz"]


def test_a_definition_of_the_last_list_is_known_however_the_config_has_changed() -> None:
    calc = FakeUpstream("calc", entry={"env": {"API_KEY": "abcdefgh1234"}})
    one = catalog(calc)
    said = [raw({"name": "add", "description": "key abcdefgh5678", "inputSchema": {"type": "object"}}) for _ in "ab"]
    one.replace("calc", said)
    one.replace("calc", said)
    assert b"abcdefgh5678" in one.tools()[0].definition
    assert len(one.problems_of("calc")) == 1  # listed twice, as before
    other = FakeUpstream("calc", entry={"env": {"API_KEY": "abcdefgh5678"}})
    one.configure(list(config_of(other).servers.values()))
    one.replace("calc", said)
    assert b"abcdefgh5678" not in one.tools()[0].definition


def test_a_definition_that_only_orders_its_keys_differently_is_the_same() -> None:
    one = catalog(FakeUpstream("calc"))
    one.replace("calc", [raw({"name": "add", "inputSchema": {"type": "object"}, "title": "x"})])
    before = one.tools()
    assert not one.replace("calc", [raw({"title": "x", "inputSchema": {"type": "object"}, "name": "add"})])
    assert one.tools() == before


def test_a_schema_without_a_type_gets_the_one_it_means() -> None:
    one = catalog(FakeUpstream("calc"))
    one.replace("calc", [raw({"name": "add", "inputSchema": {}})])
    (found,) = one.tools()
    assert json.loads(found.definition)["inputSchema"] == {"type": "object"}


@requirement("names:deterministic")
def test_names_are_the_same_whatever_the_order_in_which_upstreams_answer() -> None:
    upstreams = [FakeUpstream("first", entry={"prefix": "p"}), FakeUpstream("second"), FakeUpstream("a-third-one")]
    tools = {"first": ["x" * 60, "a.b"], "second": ["x" * 60, "a b"], "a-third-one": ["y/" * 40, "x" * 60]}
    found = []
    for order in itertools.permutations(tools):
        one = catalog(*upstreams)
        for name in order:
            one.replace(name, listed(*tools[name]))
        found.append({(each.upstream, each.name): each.id for each in one.tools()})
    assert all(each == found[0] for each in found)
    assert all(len(name) <= 49 for name in found[0].values())


@requirement("names:deterministic", "names:collisions")
def test_of_several_that_want_one_name_the_first_of_the_config_gets_it_whoever_lists_first() -> None:
    found = []
    for order in itertools.permutations(("a", "b", "c")):
        fixed: dict[ToolId, Key] = {}
        one = catalog(*(FakeUpstream(name, entry={"prefix": ""}) for name in ("c", "a", "b")), fixed=fixed)
        for name in order:
            one.replace(name, listed("add", name))
        one.fix_names()
        found.append(fixed)
    assert all(each == found[0] for each in found)
    assert found[0] == {
        "add": ("c", "add"), "a__add": ("a", "add"), "b__add": ("b", "add"),
        "c": ("c", "c"), "a": ("a", "a"), "b": ("b", "b"),
    }  # fmt: skip


OWNERS = ("a", "b", "a__x")
LISTS = st.lists(
    st.tuples(
        st.sampled_from(OWNERS), st.lists(st.sampled_from(["x", "y", "x__y", "call_tool", "a b", "a.b"]), unique=True)
    ),
    max_size=8,
)


@requirement("names:deterministic", "names:collisions")
@example([("b", ["x", "y"]), ("a", ["x", "y", "x__y"]), ("a__x", ["x", "y"]), ("a", [])], ["a", "", ""], 0)
@given(LISTS, st.lists(st.sampled_from(["", "p", "a"]), min_size=3, max_size=3), st.integers(0, 8))
def test_names_given_as_upstreams_come_are_those_given_to_all_at_once(
    lists: list[tuple[str, list[str]]], prefixes: list[str], told_after: int
) -> None:
    upstreams = [FakeUpstream(name, entry={"prefix": prefix}) for name, prefix in zip(OWNERS, prefixes, strict=True)]
    fixed: dict[ToolId, Key] = {}
    one = catalog(*upstreams, fixed=fixed)
    given: dict[ToolId, Key] = {}
    for place, (name, tools) in enumerate(lists):
        one.replace(name, listed(*tools))
        if place == told_after:
            one.fix_names()
            given = dict(fixed)
    entries = [((name, each.name), one.namespaces.prefix(name)) for name in OWNERS for each in one.of(name)]
    assert {(each.upstream, each.name): each.id for each in one.tools()} == assign_names(entries, given)
    for each in one.tools():
        assert one.find(each.id) == each


@requirement("names:deterministic")
@pytest.mark.parametrize("entry", [{}, {"prefix": "other"}, {"prefix": ""}, {"tools": {"add": {"name": "plus"}}}])
def test_names_given_for_good_are_the_same_after_a_start_from_the_store(entry: Any) -> None:
    fixed: dict[ToolId, Key] = {}
    one = catalog(FakeUpstream("calc", entry=entry), FakeUpstream("more"), fixed=fixed)
    one.replace("calc", listed("add", "sub", "discover_tools"))
    one.replace("more", listed("add", "x"))
    one.fix_names()
    again = Catalog(list(config_of(FakeUpstream("calc", entry=entry), FakeUpstream("more")).servers.values()), fixed)
    for name in ("calc", "more"):
        again.load(name, one.listed(name))
    again.settle()
    assert names_of(again, {}) == names_of(one, {})


@requirement("names:collisions")
def test_a_name_that_somebody_knows_is_not_given_to_an_upstream_that_lists_later() -> None:
    fixed: dict[ToolId, Key] = {}
    one = catalog(FakeUpstream("a", entry={"prefix": ""}), FakeUpstream("b", entry={"prefix": ""}), fixed=fixed)
    one.replace("b", listed("add"))
    one.fix_names()
    assert fixed == {"add": ("b", "add")}
    fixed.clear()
    one.fix_names()
    assert fixed == {}
    one.replace("a", listed("add"))
    one.fix_names()
    assert fixed == {"a__add": ("a", "add")}


def test_an_upstream_that_left_the_config_is_forgotten() -> None:
    gone, stays = FakeUpstream("gone"), FakeUpstream("stays")
    one = catalog(gone, stays)
    one.replace("gone", listed("x"))
    one.replace("stays", listed("y"))
    one.configure(list(config_of(stays).servers.values()))
    assert [each.id for each in one.tools()] == ["stays__y"]
    assert one.find("gone__x") is None
    assert one.changed_since(0) == ["stays", "gone"]


def test_names_of_a_store_that_comes_back_beat_the_ones_given_meanwhile() -> None:
    one = catalog(FakeUpstream("calc"))
    one.replace("calc", listed("add", "sub"))
    one.fix_names()
    one.follow_names({ToolId("calc__add"): ("calc", "gone")})
    assert one.get(ToolId("calc__add")) is None
    assert {tool.name for tool in one.tools()} == {"add", "sub"}
    assert one.get(ToolId("calc__sub")) is not None


@requirement("trust:limits:tools")
def test_a_name_that_no_client_takes_is_dropped_and_few_problems_are_told_in_few_words() -> None:
    catalog = Catalog(list(config_of(FakeUpstream("calc")).servers.values()))
    long = [raw({"name": f"{number}_" + "x" * 40_000, "inputSchema": {"type": "object"}}) for number in range(100)]
    catalog.replace("calc", [*long, raw({"name": "add", "inputSchema": {"type": "object"}})])
    assert [tool.name for tool in catalog.of("calc")] == ["add"]
    problems = catalog.problems_of("calc")
    assert len(problems) == MOST_PROBLEMS + 1
    assert problems[-1] == f"and {100 - MOST_PROBLEMS} more like these"
    assert all(len(problem) <= MOST_PROBLEM for problem in problems)


def names_in(one: Catalog) -> dict[tuple[str, str], str]:
    return {(each.upstream, each.name): each.id for each in one.tools()}


def test_a_name_that_another_upstream_takes_while_a_list_is_read_goes_to_the_one_that_would_have_it_at_once() -> None:
    """A server without a prefix loses the name that another one has, too; its list comes at every possible moment."""

    def two() -> Catalog:
        one = catalog(FakeUpstream("x"), FakeUpstream("y", entry={"prefix": ""}))
        one.replace("x", listed("old", "b"))
        return one

    expected = two()
    expected.replace("y", listed("new", "d"))
    expected.replace("x", listed("new", "b"))
    steps_of_one, cut = 1, 0
    while cut < steps_of_one:
        one, cut = two(), cut + 1
        steps = one.replace_in_steps("x", listed("new", "b"), "", admit_all)
        steps_of_one = 0
        for steps_of_one, _ in enumerate(steps, 1):
            if steps_of_one == cut:
                one.replace("y", listed("new", "d"))
        if cut <= steps_of_one:
            assert names_in(one) == names_in(expected), cut
            for later in (one, other := copy.deepcopy(expected)):
                later.replace("y", listed("b"))
            assert names_in(one) == names_in(other), cut
    assert cut > 2
