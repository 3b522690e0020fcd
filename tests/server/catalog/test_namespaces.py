"""Prefixes: whom each belongs to, and which names a server may not have. Attacks: tests/attacks/test_names.py."""

from __future__ import annotations

import pytest
from fakes import FakeUpstream, config_of
from requirements import requirement

from foretool.server.catalog.names import Key
from foretool.server.catalog.namespaces import Namespaces, lawful, say_refused
from foretool.storage.records import ToolId


def namespaces(given: dict[ToolId, Key] | None = None, **prefixes: str) -> Namespaces:
    """The namespaces of servers with these prefixes; `-` for none in the config."""
    entries = {name: {} if prefix == "-" else {"prefix": prefix} for name, prefix in prefixes.items()}
    config = config_of(*(FakeUpstream(name, entry=entry) for name, entry in entries.items()))
    return Namespaces(list(config.servers.values()), config.prefixes, given)


def test_a_server_that_had_a_prefix_before_keeps_it_from_one_before_it_in_the_config() -> None:
    given = {ToolId("p__add"): ("b", "add")}
    found = namespaces(given, a="p", b="p")
    assert (found.prefix("a"), found.prefix("b")) == ("a", "p")


def test_a_prefix_of_a_server_that_is_not_in_use_goes_to_nobody() -> None:
    found = namespaces({ToolId("p__add"): ("gone", "add")}, a="p")
    assert found.prefix("a") == "a"
    assert found.split("p__x") == ("gone", "x") and found.split("gone/x") == ("gone", "x")


def test_names_that_are_the_same_where_they_are_exposed_get_prefixes_that_differ() -> None:
    config = config_of(FakeUpstream("a.b"), FakeUpstream("a b"))
    found = Namespaces(list(config.servers.values()), config.prefixes)
    assert found.prefix("a.b") == "a.b"
    assert found.prefix("a b").startswith("a_b_") and found.problems["a b"]


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("a__x", ("a", "x")),
        ("a/x", ("a", "x")),
        ("a.x__y", ("a", "x__y")),
        ("a__b__x", ("a__b", "x")),
        ("a___x", ("a", "_x")),
        ("ab__x", None),
        ("x", None),
        ("__x", None),
        ("", None),
    ],
)
def test_the_longest_prefix_before_a_joint_says_whose_a_name_is(name: str, owner: tuple[str, str] | None) -> None:
    assert namespaces(a="-", a__b="-").split(name) == owner


@pytest.mark.parametrize(
    ("prefix", "tool", "is_refused"),
    [
        ("", "add", False),
        ("", "a.b", False),
        ("", "a__b", True),
        ("", "a._b", True),
        ("e", "a__b", False),
        ("other", "work__x", True),
        ("other", "_work__x", False),
        ("other_", "x", False),
        ("mcp", "foretool__a__b", True),
    ],
)
def test_a_name_that_reaches_into_another_prefix_is_refused(prefix: str, tool: str, is_refused: bool) -> None:
    found = namespaces(e=prefix, other__work="-", x="-")
    assert (found.refusal("e", tool) is not None) is is_refused


def test_a_name_that_a_server_took_by_its_spelling_is_forgotten() -> None:
    good = {ToolId("git__push"): ("git", "push"), ToolId("add"): ("bare", "add"), ToolId("a__b__c"): ("a", "b__c")}
    assert lawful({**good, ToolId("git__pull"): ("bare", "git__pull")}) == good


def test_many_refused_tools_are_one_line() -> None:
    assert say_refused({}) == ()
    (line,) = say_refused({f"a__{number}\n": "why" for number in range(9)})
    assert line == "refused 'a__0', 'a__1', 'a__2' and 6 more: why; give the server another \"prefix\""


def test_a_long_name_is_split_in_bounded_time() -> None:
    assert namespaces(a="-").split("b__" * 100_000) is None


@requirement("trust:ranking:copies")
def test_of_two_names_the_one_that_was_given_first_is_older_and_an_unknown_one_the_youngest() -> None:
    given = {ToolId("z__add"): ("z", "add")}
    found = namespaces(given, a="-", z="-")
    given[ToolId("a__add")] = ("a", "add")  # the catalog gives more names while it runs
    assert [found.count_older(ToolId(name)) for name in ("z__add", "a__add", "a__new")] == [0, 1, 2]
