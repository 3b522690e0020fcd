"""Exposed names: short enough, unlike, always the same, finding their way back, and saved."""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
import time

import pytest
from fakes import failing_store
from hypothesis import given
from hypothesis import strategies as st
from requirements import requirement

from foretool.server.catalog.names import LIMIT, OWN, Key, NameKeeper, Resolver, assign_names, plain_name
from foretool.storage.records import ToolId

words = st.text(alphabet="abcXYZ012_-./ é", min_size=1, max_size=60)
keys = st.lists(
    st.tuples(st.sampled_from(["git", "a-long-server-name-indeed", "é", "mail"]), words), unique=True, max_size=12
)


def named(tools: list[Key], given: dict[ToolId, Key] | None = None, prefix: str | None = None) -> dict[Key, ToolId]:
    return assign_names([((server, tool), server if prefix is None else prefix) for server, tool in tools], given or {})


@requirement("names:49-characters")
@given(keys, st.none() | st.just("") | words)
def test_every_name_is_short_plain_and_its_own(tools: list[Key], prefix: str | None) -> None:
    names = named(tools, prefix=prefix)
    assert list(names) == tools or set(names) == set(tools)
    assert len(set(names.values())) == len(tools)
    for name in names.values():
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,49}", name)
        assert name not in OWN


@requirement("names:deterministic")
@given(keys, st.randoms(use_true_random=False))
def test_names_that_nobody_else_wants_do_not_depend_on_the_order(tools: list[Key], chance: random.Random) -> None:
    wanted = [plain_name(*key) for key in tools]
    alone = [key for key, name in zip(tools, wanted, strict=True) if wanted.count(name) == 1]
    shuffled = list(tools)
    chance.shuffle(shuffled)
    first, second = named(tools), named(shuffled)
    for key in alone:
        if first[key] == plain_name(*key):
            assert first[key] == second[key]


@requirement("names:deterministic")
@given(keys)
def test_the_same_tools_get_the_same_names_again(tools: list[Key]) -> None:
    names = named(tools)
    assert named(tools, {name: key for key, name in names.items()}) == names


@requirement("names:deterministic")
def test_a_long_name_is_cut_and_carries_a_digest_of_the_whole() -> None:
    name = plain_name("server", "x" * 100)
    assert len(name) == LIMIT
    assert name.startswith("server__xxx")
    assert name != plain_name("server", "x" * 101)
    assert name == plain_name("server", "x" * 100)


@requirement("names:collisions")
def test_of_two_that_want_one_name_the_first_in_the_config_gets_it() -> None:
    names = assign_names([(("a", "add"), ""), (("b", "add"), "")], {})
    assert names == {("a", "add"): "add", ("b", "add"): "b__add"}


@requirement("names:collisions")
def test_one_that_had_the_name_keeps_it_though_another_comes_before_it() -> None:
    given = {ToolId("add"): ("b", "add")}
    names = assign_names([(("a", "add"), ""), (("b", "add"), "")], given)
    assert names == {("a", "add"): "a__add", ("b", "add"): "add"}


@requirement("names:collisions")
def test_a_name_that_was_given_for_good_goes_to_no_other_tool_though_its_own_has_another_name_now() -> None:
    given = {ToolId("p__add"): ("a", "add"), ToolId("q__add"): ("a", "add")}
    names = assign_names([(("a", "add"), "r"), (("b", "add"), "p"), (("c", "add"), "q")], given)
    assert names == {("a", "add"): "r__add", ("b", "add"): "b__add", ("c", "add"): "c__add"}
    assert assign_names([(("a", "add"), "p")], given) == {("a", "add"): "p__add"}


@requirement("names:collisions")
def test_without_a_prefix_an_own_name_that_another_server_had_before_is_not_given() -> None:
    earlier = [(("a", "add"), "a"), (("b", "add"), "")]
    assert assign_names(earlier, {})["b", "add"] == "b__add"
    assert assign_names(earlier[::-1], {})["b", "add"] == "add"
    assert assign_names(earlier[1:], {ToolId("x__add"): ("x", "add")})["b", "add"] == "b__add"


@requirement("names:collisions")
def test_a_tool_that_took_the_last_resort_of_another_does_not_get_its_calls() -> None:
    pair = [(("u", "a.b"), "u"), (("u", "a_b"), "u")]
    last_resort = assign_names(pair, {})["u", "a_b"]
    malicious = ("u", last_resort.removeprefix("u__"))
    names = assign_names([(malicious, "u"), *pair], {})
    assert names[malicious] == last_resort
    assert len(set(names.values())) == 3


@requirement("names:collisions")
def test_nothing_is_called_like_our_own_two_tools() -> None:
    names = assign_names([(("a", "call_tool"), ""), (("a", "discover_tools"), "")], {})
    assert names == {("a", "call_tool"): "a__call_tool", ("a", "discover_tools"): "a__discover_tools"}


@requirement("names:map-back")
@given(keys)
def test_every_exposed_name_finds_its_tool(tools: list[Key]) -> None:
    names = named(tools)
    resolver = Resolver(names)
    for name in names.values():
        assert resolver.resolve(name) == name


@requirement("names:map-back")
@pytest.mark.parametrize(
    "name",
    ["git__log", "git/log", "git.log", "git:log", "log", "mcp__foretool__git__log", "git__log()", "log(n: number)"],
)
def test_a_tool_is_found_by_each_of_its_exact_names(name: str) -> None:
    resolver = Resolver(
        {("git", "log"): ToolId("g__log"), ("a", "add"): ToolId("a__add"), ("b", "add"): ToolId("b__add")}
    )
    assert resolver.resolve(name) == "g__log"
    assert resolver.resolve("add") is None
    assert resolver.resolve("") is None


def test_no_names_of_a_server_make_the_search_for_a_misspelled_one_long() -> None:
    names = [("p", f"{'a' * 40}{at:05}") for at in range(5_000)]
    resolver = Resolver({(server, tool): ToolId(f"{server}__{tool}") for server, tool in names})
    wrong = "p__" + "a" * 39 + "b00042"
    begun = time.process_time()
    assert "p__" + "a" * 40 + "00042" in resolver.near(wrong)
    assert time.process_time() - begun < 1  # comparing each of them letter by letter takes 4 s


def test_names_that_the_store_refuses_are_saved_later() -> None:
    store, connection = failing_store()
    keeper = NameKeeper(store.catalog)

    async def keep() -> None:
        keeper.keep({ToolId("a__b"): ("a", "b")})
        await asyncio.sleep(0)

    connection.refuse = sqlite3.SQLITE_FULL
    asyncio.run(keep())
    assert keeper.load() == {}
    connection.refuse = 0
    keeper.save()
    assert keeper.load() == {"a__b": ("a", "b")}
