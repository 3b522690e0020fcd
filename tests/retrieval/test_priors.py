"""What an empty log is expected to need: features, shares, and what one server may take of a list."""

from __future__ import annotations

import pytest
from requirements import requirement

from foretool.retrieval import priors
from foretool.retrieval.document import Fields
from foretool.retrieval.priors import Priors, deed, features, spread, take_turns
from foretool.retrieval.words import stem
from foretool.storage.records import ToolId


def fields(name: str, upstream: str = "s", takes: dict[str, bool] | None = None) -> Fields:
    verb, *nouns = name.split("_")
    return Fields(ToolId(f"{upstream}__{name}"), upstream, verb, frozenset(map(stem, nouns)), takes or {}, frozenset())


KNOWN = Priors("by hand", {"deed:get": 1.0, "required": 0.5, "no parameters": -1.0}, 1.0)


def test_a_tool_is_read_by_its_deed_and_by_what_it_requires() -> None:
    assert dict(features(fields("get_issue", takes={"id": True, "page": False}))) == {
        "deed:get": 1.0,
        "required": pytest.approx(0.6931, abs=1e-4),
        "none required": 0.0,
        "no parameters": 0.0,
    }
    assert dict(features(fields("wander")))["no parameters"] == 1.0
    assert [deed(fields(name)) for name in ("creates_issue", "issue_delete", "issue", "run_search")] == [
        "add", "delete", "none", "run",
    ]  # fmt: skip


def test_required_parameters_without_end_move_a_score_no_further() -> None:
    few, many = (fields("get", takes={str(each): True for each in range(count)}) for count in (8, 200))
    assert KNOWN.score(few) == KNOWN.score(many)


def test_a_server_gets_the_share_of_its_tools_whatever_they_are_called() -> None:
    tools = [fields("get_a", "loud", {"id": True}), fields("get_b", "loud", {"id": True}), fields("x", "quiet")]
    needs = KNOWN.needs(tools)
    assert sum(needs.values()) == pytest.approx(1.0)
    assert needs[ToolId("loud__get_a")] == needs[ToolId("loud__get_b")] == pytest.approx(1 / 3)
    assert needs[ToolId("quiet__x")] == pytest.approx(1 / 3)


def test_tools_compete_by_need_for_their_size() -> None:
    tools = [fields("get_a", takes={"id": True}), fields("walk_b", takes={"id": True}), fields("get_c")]
    sizes = {ToolId("s__get_a"): 100, ToolId("s__walk_b"): 30, ToolId("s__get_c"): 100}
    # Per token: e^1.35/100 = .0385, e^.35/30 = .0472, e^0/100 = .01.
    assert KNOWN.order(tools, sizes.__getitem__, 1000) == ["s__walk_b", "s__get_a", "s__get_c"]


def test_tools_that_delete_come_last() -> None:
    tools = [fields("delete_all", takes={"id": True}), fields("wander"), fields("item_remove")]
    assert KNOWN.order(tools, lambda tool: 5 if "wander" not in tool else 90, 1000)[0] == "s__wander"


@requirement("list:fill")
def test_no_server_takes_a_list_alone() -> None:
    flood = [fields(f"get_{each:03}", "flood", {"id": True}) for each in range(100)]
    honest = [fields("walk_home", "honest"), fields("walk_far", "honest")]
    order = KNOWN.order([*flood, *honest], lambda tool: 30 if tool.startswith("honest") else 10, 200)
    assert [order.index(tool.id) for tool in honest] == [11, 1]
    assert len(order) == 102


def test_each_server_shows_one_tool_that_fits_its_share_first() -> None:
    tools = [fields(f"get_{each}", "many") for each in range(9)] + [fields("huge", "vast"), fields("walk", "small")]
    sizes = {"vast__huge": 401, "small__walk": 300}
    order = KNOWN.order(tools, lambda tool: sizes.get(tool, 10), 1200)
    assert order[:3] == ["many__get_0", "small__walk", "many__get_1"]
    assert order[-1] == "vast__huge"


def test_what_is_moved_behind_keeps_its_order() -> None:
    a, b, c, d = (ToolId(name) for name in "abcd")
    upstreams = {a: "one", b: "one", c: "two", d: "one"}
    assert spread([a, b, c, d], upstreams, lambda tool: 10, 10) == [a, c, b, d]
    assert spread([], {}, lambda tool: 10, 10) == []


def test_groups_take_turns() -> None:
    assert take_turns(["abc", "d", "ef"], 5) == ["a", "d", "e", "b", "f"]
    assert take_turns([], 5) == take_turns(["abc"], 0) == []


def test_what_is_shipped_is_small_and_knows_every_feature() -> None:
    known = priors.shipped()
    deeds = {f"deed:{each}" for each in (*priors.DEEDS.values(), "none")}
    assert set(known.first) == deeds | {"required", "none required", "no parameters"}
    assert max(map(abs, known.first.values())) < 2.0 and 0.0 <= known.size_penalty <= 1.0
    assert priors.FILE.stat().st_size < 4096
    assert KNOWN.needs([]) == known.needs([]) == {} and known.order([], lambda tool: 1, 100) == []
