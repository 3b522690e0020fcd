"""What `discover_tools` answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import FakeUpstream, config_of, search_over, tool
from requirements import requirement

from foretool.retrieval.confidence import level
from foretool.retrieval.ranking import Query, Ranked, Ranking
from foretool.server.catalog.catalog import Catalog
from foretool.server.methods import discovery_answer
from foretool.server.protocol.jsonrpc import RpcError, encode, plain, raw
from foretool.server.trust.policy import Reach
from foretool.storage.records import ToolId

CONFIG = config_of(FakeUpstream("calc"), FakeUpstream("mail"))
REACH = Reach(CONFIG.profiles[""], CONFIG.servers, CONFIG.settings)


def catalog(*tools: Any) -> Catalog:
    made = Catalog(list(CONFIG.servers.values()))
    made.replace("calc", [raw(tool(each) if isinstance(each, str) else each) for each in tools], "Works with numbers.")
    return made


def asked(made: Catalog, budget: int = 1500, cap: int = 300, **arguments: Any) -> discovery_answer.Answer:
    read = discovery_answer.read_arguments(raw(arguments))
    query = discovery_answer.query(read, (), ())
    ranking = search_over(made).rank(query, lambda upstream: True, 50)
    return discovery_answer.answer(
        read, ranking, level(ranking), made, lambda tool: tool == "calc__add", REACH, budget, cap
    )


def wide(name: str, count: int) -> dict[str, Any]:
    """A tool with a big schema."""
    properties = {f"p{n}": {"type": "string", "description": "text " * 20} for n in range(count)}
    return tool(name, "Plots a chart", properties)


@requirement("discovery:answer")
def test_the_best_match_comes_first_with_a_schema_ready_to_call() -> None:
    answer = asked(catalog(tool("add", "Adds two numbers", {"a": {"type": "number"}}), "paint"), task="adds two")
    (match,) = answer.structured["matches"]
    assert match["name"] == "calc__add"
    assert match["listed"] is True
    assert plain(match["inputSchema"]) == {"type": "object", "properties": {"a": {"type": "number"}}}
    assert "add" in match["why"]
    assert [each.rank for each in answer.matches] == [1]
    assert answer.structured["confidence"] == answer.level != "none"
    assert "calc__add (listed)" in answer.text


@requirement("discovery:names")
def test_exact_names_give_whole_schemas_however_big() -> None:
    answer = asked(catalog(wide("plot", 80)), names=["calc__plot"], budget=100)
    (match,) = answer.structured["matches"]
    assert len(plain(match["inputSchema"])["properties"]) == 80
    assert answer.level == "high"


@requirement("discovery:names")
def test_an_unknown_name_gives_those_close_to_it_and_says_so() -> None:
    answer = asked(catalog("multiply"), names=["calc__multply"])
    assert [match["name"] for match in answer.structured["matches"]] == ["calc__multiply"]
    assert "close to 'calc__multply'" in answer.structured["matches"][0]["why"]
    assert "No tool is called 'calc__multply'" in answer.structured["advice"]


@requirement("discovery:trimmed")
def test_a_giant_schema_is_trimmed_and_says_how_to_get_the_whole() -> None:
    answer = asked(catalog(wide("plot", 80)), task="plot a chart")
    (match,) = answer.structured["matches"]
    assert len(plain(match["inputSchema"])["properties"]) == 20
    assert match["trimmed"] == 'ask discover_tools(names=["calc__plot"]) for the whole schema'


@requirement("discovery:budget")
def test_schemas_are_given_while_the_budget_lasts_and_lines_after_that() -> None:
    made = catalog(*(wide(f"plot_{n}", 4) for n in range(12)))
    answer = asked(made, task="plot a chart", budget=900)
    with_schema = ["inputSchema" in match for match in answer.structured["matches"]]
    assert len(with_schema) == 12
    assert with_schema[0]
    assert not with_schema[-1]
    assert answer.tokens < 1.3 * 900


@requirement("discovery:nothing")
def test_nothing_found_shows_the_servers_and_no_tool() -> None:
    answer = asked(catalog("add"), task="quux")
    assert answer.structured == {
        "confidence": "none",
        "matches": [],
        "servers": {"calc": "1 tools: Works with numbers."},
        "advice": "Nothing fits: describe the task in other words, or go on without a tool.",
    }


@requirement("discovery:lines")
def test_each_line_of_a_task_is_a_need_of_its_own() -> None:
    made = catalog(tool("zip", "Compress files"), tool("mail", "Send a letter"), *(f"other_{n}" for n in range(9)))
    answer = asked(made, task="compress files\n\nsend a letter\n")
    assert {match["name"] for match in answer.structured["matches"][:2]} == {"calc__zip", "calc__mail"}


@requirement("discovery:sufficiency")
def test_a_low_self_rating_widens_the_search() -> None:
    made = catalog(*(tool(f"chart_{n}", "Plots a chart") for n in range(40)))
    usual = asked(made, task="plot a chart").structured["matches"]
    wider = asked(made, task="plot a chart", sufficiency=0.2).structured["matches"]
    content = asked(made, task="plot a chart", sufficiency=0.9).structured["matches"]
    limited = asked(made, task="plot a chart", sufficiency=0.2, limit=3).structured["matches"]
    assert [len(each) for each in (usual, wider, content, limited)] == [12, 25, 12, 3]


@pytest.mark.parametrize("arguments", [5, [], {"names": "calc__add"}, {"task": []}, {"limit": "many"}])
def test_wrong_arguments_say_what_is_wrong(arguments: Any) -> None:
    with pytest.raises(RpcError, match="discover_tools"):
        discovery_answer.read_arguments(raw(arguments))


@requirement("trust:client:bounded-search")
@pytest.mark.parametrize(
    "arguments",
    [{"task": "word " * 4_001}, {"names": ["one"] * 51}, {"names": ["x" * 257]}, {"task": "\ud800" * 20_001}],
)
def test_a_search_of_more_than_one_may_take_is_refused(arguments: Any) -> None:
    with pytest.raises(RpcError, match="expected at most"):
        discovery_answer.read_arguments(raw(arguments))


def test_unknown_arguments_are_passed_over_and_numbers_may_be_text() -> None:
    read = discovery_answer.read_arguments(raw({"task": "x", "limit": "3", "reason": "why not"}))
    assert (read.task, read.wanted) == ("x", 3)


@requirement("discovery:shared")
def test_definitions_that_several_schemas_share_are_said_once() -> None:
    point = {"type": "object", "properties": {"x": {"type": "number", "description": "metres " * 30}}}
    schema = {"type": "object", "properties": {"to": {"$ref": "#/$defs/Point"}}, "$defs": {"Point": point}}
    draw, move = (tool(name, "Moves a robot arm", inputSchema=schema) for name in ("draw_arm", "move_arm"))
    answer = asked(catalog(draw, move), task="robot arm")
    assert plain(raw(answer.structured["$defs"])) == {"Point": point}
    for match in answer.structured["matches"]:
        assert plain(match["inputSchema"]) == {"type": "object", "properties": {"to": {"$ref": "#/$defs/Point"}}}
    assert answer.text.count("metres") == 30
    assert '$defs of all of them: {"Point":' in answer.text


@requirement("discovery:alike")
def test_tools_of_several_servers_that_say_the_same_are_one_group_and_all_there() -> None:
    made = catalog(tool("click", "Click an element of the page"), tool("fill", "Fill a form in the page"))
    made.replace("mail", [raw(tool("click", "Click an element of the page"))])
    first, second, third = asked(made, task="click an element of the page").structured["matches"]
    assert (first["name"], second["name"], third["name"]) == ("calc__click", "mail__click", "calc__fill")
    assert second["description"] == "as calc__click"
    assert third["description"] == "Fill a form in the page"
    assert "inputSchema" in second


@requirement("discovery:alike")
def test_of_tools_that_are_alike_the_one_of_a_server_in_use_comes_first_and_the_older_stays_described() -> None:
    made = catalog(tool("click", "Click an element of the page"), "paint")
    made.replace("mail", [raw(tool("click", "Click an element of the page"))])
    made.fix_names()
    best, other = (ToolId("calc__click"), ToolId("mail__click"))
    in_use = Ranked(other, 1.0, {}, (discovery_answer.IN_USE,))
    ranking = Ranking((Ranked(best, 2.0), Ranked(ToolId("calc__paint"), 1.5), in_use))
    arguments = discovery_answer.Arguments(task="click")
    answer = discovery_answer.answer(arguments, ranking, "high", made, lambda _: False, REACH, 1500, 300)
    assert [(match["name"], match["description"]) for match in answer.structured["matches"]] == [
        ("mail__click", "Click an element of the page"),
        ("calc__paint", ""),
        ("calc__click", "Click an element of the page"),
    ]
    assert [(match.tool, match.rank) for match in answer.matches] == [
        ("mail__click", 1), ("calc__paint", 2), ("calc__click", 3)
    ]  # fmt: skip


@requirement("trust:ranking:copies")
def test_a_copy_never_takes_the_place_of_the_tool_that_was_there_first() -> None:
    made = catalog("paint")
    made.replace("mail", [raw(tool("click", "Click an element of the page"))])
    made.fix_names()
    made.replace("calc", [raw(tool("click", "Click an element of the page"))])  # comes first by config and by name
    made.fix_names()
    copy, original = Ranked(ToolId("calc__click"), 2.0), Ranked(ToolId("mail__click"), 1.0)
    arguments = discovery_answer.Arguments(task="click")

    def described(*ranked: Ranked) -> list[tuple[str, str]]:
        answer = discovery_answer.answer(arguments, Ranking(ranked), "high", made, lambda _: False, REACH, 1500, 300)
        return [(match["name"], match["description"]) for match in answer.structured["matches"]]

    whole = "Click an element of the page"
    assert described(copy, original) == [("mail__click", whole), ("calc__click", "as mail__click")]
    assert described(original, copy) == [("mail__click", whole), ("calc__click", "as mail__click")]
    used = Ranked(ToolId("calc__click"), 2.0, {}, (discovery_answer.IN_USE,))
    assert described(used, original) == [("calc__click", whole), ("mail__click", whole)]
    assert described(original, used) == [("calc__click", whole), ("mail__click", whole)]


@requirement("trust:ranking:copies")
def test_copies_of_one_server_do_not_push_other_tools_out() -> None:
    made = catalog("paint")
    made.replace("mail", [raw(tool(f"click_{number}", "Click an element of the page")) for number in range(1, 31)])
    copies = [Ranked(ToolId(f"mail__click_{number}"), 9.0) for number in range(1, 31)]
    ranking = Ranking((*copies, Ranked(ToolId("calc__paint"), 1.0)))
    arguments = discovery_answer.Arguments(task="click")
    found = discovery_answer.answer(arguments, ranking, "high", made, lambda _: False, REACH, 1500, 300)
    names = [match["name"] for match in found.structured["matches"]]
    most = discovery_answer.ALIKE_OF_ONE
    assert len(names) == discovery_answer.MATCHES
    assert names[: most + 2] == [*(f"mail__click_{number}" for number in range(1, most + 1)), "calc__paint",
                                 f"mail__click_{most + 1}"]  # fmt: skip


def test_an_answer_is_json_that_a_client_can_read() -> None:
    answer = asked(catalog(tool("add", "Adds \u2028 \ud800".encode("utf-8", "replace").decode())), task="adds")
    assert json.loads(encode(answer.structured))["matches"]


def test_a_query_holds_the_lines_the_names_and_what_was_called() -> None:
    read = discovery_answer.read_arguments(raw({"task": "a\n b ", "names": ["x"]}))
    assert discovery_answer.query(read, (ToolId("t"),), ("s",)) == Query(("a", "b"), ("x",), (ToolId("t"),), ("s",))
