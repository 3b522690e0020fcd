"""Which tools fill a list while nothing has been called."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FakeUpstream, config_of, tool

from foretool.server.catalog.catalog import Catalog
from foretool.server.lists import order as first_tools
from foretool.server.lists.order import FirstTools
from foretool.server.protocol.jsonrpc import raw


def catalog(**servers: list[Any]) -> Catalog:
    found = Catalog(list(config_of(*map(FakeUpstream, servers)).servers.values()))
    for name, tools in servers.items():
        found.replace(name, [raw(each) for each in tools])
    return found


def test_small_tools_come_first_and_those_that_do_not_compete_are_left_out() -> None:
    known = catalog(one=[tool("big", "word " * 200), tool("small"), tool("other")], two=[tool("small")])
    order = FirstTools(known).order(lambda each: each.name != "other", 1000)
    assert sorted(order[:2]) == ["one__small", "two__small"]
    assert order[2:] == ["one__big"]


def test_two_servers_with_the_same_definition_keep_their_own_tools() -> None:
    first = FirstTools(catalog(one=[tool("same")], two=[tool("same")]))
    assert first.order(lambda each: True, 1000) == first.order(lambda each: True, 1000) == ["one__same", "two__same"]


def test_of_too_many_tools_each_server_is_read_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_tools, "MOST", 6)
    known = catalog(many=[tool(f"m{each}") for each in range(50)], few=[tool("f1"), tool("f2")])
    order = FirstTools(known).order(lambda each: True, 1000)
    assert len(order) == 6 and {"few__f1", "few__f2"} < set(order)


def test_a_definition_that_changes_is_read_again() -> None:
    known = catalog(one=[tool("a", "word " * 50), tool("b", "word " * 60)])
    first = FirstTools(known)
    assert first.order(lambda each: True, 1000)[0] == "one__a"
    known.replace("one", [raw(tool("a", "word " * 70)), raw(tool("b", "word " * 60))])
    assert first.order(lambda each: True, 1000)[0] == "one__b"


def test_what_was_read_in_steps_is_not_read_again_for_the_same_tools() -> None:
    known = catalog(one=[tool("a"), tool("b")])
    first = FirstTools(known)
    assert len(list(first.read(lambda each: True, "all"))) == 3  # each tool, and what all are needed for
    assert list(first.read(lambda each: True, "all")) == []
    assert first.order(lambda each: True, 1000, "all") == ["one__a", "one__b"]
    assert first.order(lambda each: each.name == "b", 1000, "b") == ["one__b"]
    first.forget()
    assert first.order(lambda each: each.name == "a", 1000, "b") == ["one__a"]
    known.replace("one", [raw(tool("c"))])
    assert first.order(lambda each: True, 1000, "b") == ["one__c"]
