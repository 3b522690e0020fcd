"""What `discover_tools` answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from fakes import FakeUpstream, config_of, search_over, tool
from requirements import requirement

from foretool.retrieval.confidence import level
from foretool.retrieval.ranking import IN_USE, USED, Ranked, Ranking
from foretool.server.catalog.catalog import Catalog
from foretool.server.discovery import answer as discovery_answer
from foretool.server.discovery import arguments as discovery_arguments
from foretool.server.discovery import match_groups
from foretool.server.discovery.answer_shape import LEAST, Lacks
from foretool.server.discovery.answer_text import say_by_words
from foretool.server.discovery.server_map import Away
from foretool.server.protocol.jsonrpc import decode_value, encode, raw
from foretool.server.trust.policy import Reach
from foretool.storage.records import Level, ToolId

CONFIG = config_of(FakeUpstream("calc"), FakeUpstream("mail"))
REACH = Reach(CONFIG.profiles[""], CONFIG.servers, CONFIG.settings)


def catalog(*tools: Any) -> Catalog:
    made = Catalog(list(CONFIG.servers.values()))
    made.replace("calc", [raw(tool(each) if isinstance(each, str) else each) for each in tools], "Works with numbers.")
    return made


DOWN = "Server mail is down, so its tools are missing here: tell the user, who can run `foretool doctor`."
SHOWN: dict[Level, int] = {"high": 5, "medium": 6, "low": 8, "none": 0}
"""How many tools suffice at each level, in place of what the gate says."""


def asked(
    made: Catalog, budget: int = 1500, cap: int = 300, sure: Level | None = None, absent: Sequence[Away] = (),
    reach: Reach = REACH, enough: int | None = None, **arguments: Any,
) -> discovery_answer.Answer:  # fmt: skip
    """The answer to these arguments; `sure` and `enough`: the confidence and how many tools suffice, in place of what
    the gate says."""
    read = discovery_arguments.read_arguments(raw(arguments))
    query = discovery_arguments.query(read, (), ())
    ranking = search_over(made).rank(query, lambda upstream: True, 50)
    said = sure or level(ranking)
    return discovery_answer.answer(
        read,
        ranking,
        said,
        made,
        lambda tool: tool == "calc__add",
        reach,
        budget,
        cap,
        lacks=Lacks(absent),
        k=SHOWN[said] if enough is None else enough,
    )


def wide(name: str, count: int) -> dict[str, Any]:
    """A tool with a big schema."""
    properties = {f"p{n}": {"type": "string", "description": "text " * 20} for n in range(count)}
    return tool(name, "Plots a chart", properties)


def plot(number: int) -> dict[str, Any]:
    """A tool that requires one of two arguments."""
    return tool(f"plot_{number}", "Plots a chart", inputSchema={"properties": {"x": {}, "y": {}}, "required": ["y"]})


@requirement("discovery:answer")
def test_the_best_match_comes_first_with_a_schema_ready_to_call() -> None:
    answer = asked(catalog(tool("add", "Adds two numbers", {"a": {"type": "number"}}), "paint"), task="adds two")
    (match,) = answer.structured["matches"]
    assert match["name"] == "calc__add"
    assert match["listed"] is True
    assert decode_value(match["inputSchema"]) == {"type": "object", "properties": {"a": {"type": "number"}}}
    assert "add" in match["why"]
    assert [each.rank for each in answer.matches] == [1]
    assert answer.structured["confidence"] == answer.level != "none"
    assert "calc__add [listed]" in answer.text


@requirement("discovery:sized")
def test_a_paragraph_gets_more_tools_for_each_clause_all_with_what_a_call_needs() -> None:
    made = catalog(*(plot(n) for n in range(16)))
    clause = "Plot one more chart of the sales of every region and every month of last year"
    answer = asked(made, task=f"{clause}. {clause}, in colours. {clause}, with titles.", sure="high", enough=3)
    names = [match["name"] for match in answer.structured["matches"]]
    assert len(names) == LEAST + 2 * 2 and list(answer.callable) == names
    (further,) = [line for line in answer.text.splitlines() if line.startswith("further matches")]
    assert further.count("(y: any, …)") == len(names) - 6
    assert 'For the arguments behind "…": discover_tools(names=["its name"]).' in answer.text
    assert len(asked(made, task=clause, sure="high", enough=3).structured["matches"]) == LEAST


@requirement("discovery:names")
def test_exact_names_give_whole_schemas_however_big() -> None:
    answer = asked(catalog(wide("plot", 80)), names=["calc__plot"], budget=100)
    (match,) = answer.structured["matches"]
    assert len(decode_value(match["inputSchema"])["properties"]) == 80
    assert answer.level == "high"


@requirement("discovery:names")
def test_an_unknown_name_gives_those_close_to_it_and_says_so() -> None:
    answer = asked(catalog("multiply"), names=["calc__multply"])
    assert [match["name"] for match in answer.structured["matches"]] == ["calc__multiply"]
    assert "close to 'calc__multply'" in answer.structured["matches"][0]["why"]
    assert "No tool is called 'calc__multply'" in answer.structured["advice"]


@requirement("discovery:names")
@pytest.mark.parametrize("names", [["calc__multiply", "calc__multply"], ["calc__multply", "calc__multiply"]])
def test_a_tool_that_is_asked_for_by_its_name_is_not_marked_as_close_to_another_one(names: list[str]) -> None:
    answer = asked(catalog("multiply", "add"), names=names)
    (match,) = answer.structured["matches"]
    assert (match["name"], match["why"]) == ("calc__multiply", "name")
    assert "No tool is called 'calc__multply'" in answer.structured["advice"]


@requirement("discovery:trimmed")
def test_a_giant_schema_is_trimmed_and_says_how_to_get_the_whole() -> None:
    answer = asked(catalog(wide("plot", 80)), task="plot a chart")
    (match,) = answer.structured["matches"]
    assert len(decode_value(match["inputSchema"])["properties"]) == 20
    assert match["trimmed"] == 'discover_tools(names=["calc__plot"]) shows the whole schema'


@requirement("discovery:budget")
def test_schemas_are_given_while_the_budget_lasts_and_lines_after_that() -> None:
    made = catalog(*(wide(f"plot_{n}", 4) for n in range(12)))
    answer = asked(made, task="plot a chart", sure="high", budget=450)
    with_schema = ["inputSchema" in match for match in answer.structured["matches"]]
    assert with_schema == [True, True, False, False, False]
    assert answer.tokens <= 450


@requirement("discovery:sized")
def test_a_sure_answer_has_three_ready_tools_and_names_the_next_with_what_a_call_needs() -> None:
    made = catalog(*(plot(n) for n in range(12)))
    answer = asked(made, task="plot a chart", sure="high")
    matches = answer.structured["matches"]
    assert ["inputSchema" in match for match in matches] == [True] * 3 + [False] * 2
    assert [match.get("call") for match in matches[:3]] == [None] * 3
    assert matches[3]["call"] == f"{matches[3]['name']}(y: any, …)"
    assert "servers" not in answer.structured
    assert f"4. {matches[3]['name']}(y: any, …) [call_tool_write]: Plots a chart" in answer.text


@requirement("discovery:sized")
def test_matches_behind_the_sixth_are_named_and_say_how_they_are_called() -> None:
    reads = [{**plot(n), "annotations": {"readOnlyHint": True}} for n in range(3)]
    made = catalog(*reads, *(plot(n) for n in range(3, 12)))
    answer = asked(made, task="plot a chart", sure="high", enough=12)
    names = [match["name"] for match in answer.structured["matches"]]
    assert len(names) == 12 and all(name in answer.text for name in names)
    described = [line for line in answer.text.splitlines() if ": Plots a chart" in line]
    assert len(described) == 6
    assert list(answer.callable) == names[:6]
    further = [line for line in answer.text.splitlines() if line.startswith("further matches")]
    assert {name for line in further for name in line.split(": ", 1)[1].split(", ")} == set(names[6:])
    assert 'For the arguments behind "…" or of a further match: discover_tools(names=' in answer.text
    assert answer.structured["matches"][11]["call"] == f"{names[11]}(y: any, …)", "a program is told all the same"


@requirement("discovery:sized")
def test_a_doubtful_answer_has_names_and_a_map_of_the_servers_and_no_schema() -> None:
    answer = asked(catalog(*(wide(f"plot_{n}", 9) for n in range(12))), task="plot a chart", sure="low")
    assert len(answer.structured["matches"]) == 8
    assert not any("inputSchema" in match for match in answer.structured["matches"])
    assert answer.structured["servers"] == {"calc": "12 tools"}
    assert "servers (tools): calc (12)" in answer.text
    assert answer.text.startswith(
        "confidence: low. Perhaps none of these tools does it. Nothing has run yet: call the one that fits"
    )
    assert answer.tokens < 400


@requirement("discovery:nothing")
def test_nothing_found_shows_the_servers_and_no_tool() -> None:
    answer = asked(catalog("add"), task="quux")
    assert answer.structured == {
        "confidence": "none",
        "matches": [],
        "servers": {"calc": "1 tool"},
        "advice": "No tool is likely to fit this task. Say it in other words, or name a server.",
    }


@requirement("discovery:nothing")
def test_where_nothing_fits_the_three_nearest_tools_have_a_line_each_and_are_no_matches() -> None:
    made = catalog(*(tool(f"chart_{n}", "Plots a chart", {"n": {"type": "integer"}}) for n in range(5)))
    answer = asked(made, task="plot a chart", sure="none")
    assert (answer.structured["matches"], answer.matches, answer.callable) == ([], (), ())
    assert answer.text.splitlines() == [
        "confidence: none. No tool is likely to fit this task. Call one of the nearest only if its description fits; "
        "else say the task in other words, or tell the user that no tool does it. To call one, use its [tool]: "
        "call_tool_write(name, arguments).",
        "nearest tools:",
        "- calc__chart_0(n?: integer) [call_tool_write]: Plots a chart",
        "- calc__chart_1(n?: integer) [call_tool_write]: Plots a chart",
        "- calc__chart_2(n?: integer) [call_tool_write]: Plots a chart",
        "servers (tools): calc (5)",
    ]


@requirement("discovery:nothing")
def test_an_answer_that_found_nothing_has_at_most_300_tokens_however_many_servers_there_are() -> None:
    config = config_of(*(FakeUpstream(f"server{n}") for n in range(60)))
    made = Catalog(list(config.servers.values()))
    for n in range(60):
        made.replace(f"server{n}", [raw(tool("paint", "Paints"))], "Works with paint and brushes. " * 20)
    reach = Reach(config.profiles[""], config.servers, config.settings)
    answer = asked(made, task="paint the walls of the house", sure="none", reach=reach)
    assert (answer.structured["matches"], answer.matches) == ([], ())
    assert answer.tokens <= 300
    assert "more servers" in answer.text


@requirement("discovery:prepared")
def test_an_answer_says_first_that_search_by_meaning_is_still_being_prepared() -> None:
    lacks = Lacks(meaning_in=11.2)
    arguments = discovery_arguments.Arguments(task="quux")
    answer = discovery_answer.answer(
        arguments, Ranking(), "low", catalog("add"), lambda _: False, REACH, 1500, 300, lacks=lacks, k=3
    )
    note = say_by_words(11.2)
    assert "for about 15 s" in note and answer.text.splitlines()[0] == f"confidence: low; {note}"
    assert (answer.structured["note"], answer.by_words, answer.level) == (note, True, "low")


@requirement("discovery:nothing")
def test_whoever_insists_sees_the_nearest_tools_though_none_fits() -> None:
    made = catalog(*(tool(f"chart_{n}", "Plots a chart") for n in range(40)))
    for arguments in ({"limit": 3}, {"sufficiency": 0.2, "limit": 3}):
        answer = asked(made, task="plot a chart", sure="none", **arguments)
        assert len(answer.structured["matches"]) == 3
        assert answer.structured["servers"]
        assert answer.text.startswith("confidence: none. Perhaps none of these tools does it.")
        assert "No tool is likely to fit" not in answer.text


@requirement("discovery:absent")
def test_a_server_that_is_down_is_named_where_it_could_have_had_the_tool() -> None:
    made, mail = catalog(tool("add", "Adds two numbers")), Away("mail", "down", has_tools=False)
    assert DOWN in asked(made, task="quux", absent=[mail]).text
    assert DOWN in asked(made, task="adds two numbers and a mail", sure="high", absent=[mail]).text
    assert "mail" not in asked(made, task="adds two numbers", sure="high", absent=[mail]).text


@requirement("discovery:absent")
def test_a_server_that_is_down_is_named_once_a_session_and_where_the_task_names_it() -> None:
    made = catalog(tool("add", "Adds two numbers"))
    away = [Away("mail", "down", has_tools=False), Away("new", "starting", has_tools=False)]
    lacks = Lacks(away, told={"mail"})

    def said(task: str) -> tuple[str, tuple[str, ...]]:
        arguments = discovery_arguments.Arguments(task=task)
        answer = discovery_answer.answer(
            arguments, Ranking(), "low", made, lambda _: False, REACH, 1500, 300, lacks=lacks
        )
        return answer.structured["absent"], answer.down

    starting = "Server new is starting, so its tools are missing here: ask again in a few seconds."
    assert said("paint") == (starting, ())
    assert said("send a mail") == (f"{starting}\n{DOWN}", ("mail",))


@requirement("discovery:absent")
def test_where_a_server_that_is_not_there_probably_has_the_tool_an_answer_begins_with_that_and_doubts_the_others() -> (
    None
):
    """ "Create an issue on github" was answered with "call the tool that fits now" and a branch of git."""
    made, mail = catalog(tool("add", "Adds two numbers and letters")), Away("mail", "not set up", has_tools=False)
    answer = asked(made, task="add a letter with mail", sure="medium", absent=[mail])
    lines = answer.text.splitlines()
    assert lines[0].startswith("Server mail is not set up, so its tools are missing here: tell the user")
    assert lines[1].startswith("confidence: low. Perhaps none of these tools does it.")
    assert answer.text.count("mail is not set up") == 1 and answer.level == "low"
    other = asked(made, task="add a letter", sure="medium", absent=[mail])
    assert other.level == "medium" and not other.text.startswith("Server")


@requirement("discovery:absent")
def test_a_match_of_a_server_that_is_down_says_so() -> None:
    down = Away("calc", "down", has_tools=True)
    answer = asked(catalog(tool("sum", "Adds two numbers")), task="adds two numbers", sure="high", absent=[down])
    assert "1. calc__sum [call_tool_write; server down]: Adds two numbers" in answer.text


@requirement("discovery:calling")
def test_a_hidden_tool_is_never_said_to_be_called_by_its_own_name() -> None:
    made = catalog(
        tool("add", "Adds numbers"), tool("sum", "Adds numbers", annotations={"readOnlyHint": True}),
        tool("wipe", "Adds numbers and wipes them", annotations={"readOnlyHint": False}),
    )  # fmt: skip
    answer = asked(made, task="adds numbers", sure="high")
    keys = ("listed", "read", "write")
    assert {each["name"]: [key for key in keys if key in each] for each in answer.structured["matches"]} == {
        "calc__add": ["listed"], "calc__sum": ["read"], "calc__wipe": ["write"]
    }  # fmt: skip
    assert answer.structured["advice"] == (
        "To call one, use its [tool]: call_tool or call_tool_write(name, arguments), or its own name"
        " if marked [listed]."
    )
    assert asked(catalog("add"), names=["add"]).structured["advice"] == "To call one, use its own name."


@requirement("discovery:reasons")
def test_reasons_are_told_where_a_model_can_act_on_them() -> None:
    ranked = Ranked(ToolId("calc__paint"), 1.0, {}, ("words: paint", "meaning", "takes what calc__add gives"))
    answer = discovery_answer.answer(
        discovery_arguments.Arguments(task="paint"), Ranking((ranked,)), "high", catalog("add", "paint"),
        lambda _: False, REACH, 1500, 300,
    )  # fmt: skip
    assert "1. calc__paint [call_tool_write] [takes what calc__add gives]\n" in answer.text
    assert answer.structured["matches"][0]["why"] == "words: paint; meaning; takes what calc__add gives"


@requirement("discovery:lines")
def test_each_line_of_a_task_is_a_need_of_its_own() -> None:
    made = catalog(tool("zip", "Compress files"), tool("mail", "Send a letter"), *(f"other_{n}" for n in range(9)))
    answer = asked(made, task="compress files\n\nsend a letter\n")
    assert {match["name"] for match in answer.structured["matches"][:2]} == {"calc__zip", "calc__mail"}


@requirement("discovery:lines")
def test_of_a_task_of_several_needs_the_first_one_is_to_be_called_now() -> None:
    made = catalog(tool("zip", "Compress files"), tool("mail", "Send a letter"))
    for task in ("compress files\nsend a letter", "compress the files and send them in a letter"):
        for sure, said in (
            ("medium", "call the tool of the first step now"),
            ("low", "the one that fits the first step"),
        ):
            assert said in asked(made, task=task, sure=sure).text


@requirement("discovery:sufficiency")
def test_a_low_self_rating_widens_the_search() -> None:
    made = catalog(*(tool(f"chart_{n}", "Plots a chart") for n in range(40)))
    sure: dict[str, Any] = {"task": "plot a chart", "sure": "high"}
    usual = asked(made, **sure).structured["matches"]
    wider = asked(made, sufficiency=0.2, **sure).structured["matches"]
    content = asked(made, sufficiency=0.9, **sure).structured["matches"]
    limited = asked(made, sufficiency=0.2, limit=3, **sure).structured["matches"]
    assert [len(each) for each in (usual, wider, content, limited)] == [5, 25, 5, 3]


@requirement("discovery:shared")
def test_definitions_that_several_schemas_share_are_said_once() -> None:
    point = {"type": "object", "properties": {"x": {"type": "number", "description": "metres " * 30}}}
    schema = {"type": "object", "properties": {"to": {"$ref": "#/$defs/Point"}}, "$defs": {"Point": point}}
    draw, move = (tool(name, "Moves a robot arm", inputSchema=schema) for name in ("draw_arm", "move_arm"))
    answer = asked(catalog(draw, move), task="robot arm", sure="high")
    assert decode_value(raw(answer.structured["$defs"])) == {"Point": point}
    for match in answer.structured["matches"]:
        assert decode_value(match["inputSchema"]) == {"type": "object", "properties": {"to": {"$ref": "#/$defs/Point"}}}
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
def test_of_many_tools_that_do_the_same_some_are_named_and_all_counted() -> None:
    text = "Click an element of the page that is open in the window of the browser"
    made = catalog(tool("click", text))
    made.replace("mail", [raw(tool(f"click_{number}", text)) for number in range(1, 9)])
    made.fix_names()
    ranking = Ranking(tuple(Ranked(tool.id, 9.0 - at) for at, tool in enumerate(made.tools())))

    def answered(**more: int) -> discovery_answer.Answer:
        arguments = discovery_arguments.Arguments(task="click", **more)
        return discovery_answer.answer(arguments, ranking, "high", made, lambda _: False, REACH, 1500, 300)

    answer = answered()
    best, rival = answer.structured["matches"]
    assert (best["name"], rival["name"], rival["description"]) == ("calc__click", "mail__click_1", "as calc__click")
    said = "7 others are like calc__click: mail__click_2, mail__click_3, mail__click_4, mail__click_5,"
    assert f"{said} mail__click_6 and 2 more" in answer.text.splitlines()
    assert len(answer.matches) == 9, "all were shown"
    assert len(answered(limit=20).structured["matches"]) == 9, "who asks for more sees every tool in its place"


@requirement("discovery:alike")
def test_of_tools_that_are_alike_the_one_of_a_server_in_use_comes_first_and_the_older_stays_described() -> None:
    made = catalog(tool("click", "Click an element of the page"), "paint")
    made.replace("mail", [raw(tool("click", "Click an element of the page"))])
    made.fix_names()
    best, other = (ToolId("calc__click"), ToolId("mail__click"))
    in_use = Ranked(other, 1.9, {}, (IN_USE,))
    ranking = Ranking((Ranked(best, 2.0), Ranked(ToolId("calc__paint"), 1.95), in_use))
    arguments = discovery_arguments.Arguments(task="click")
    answer = discovery_answer.answer(arguments, ranking, "high", made, lambda _: False, REACH, 1500, 300)
    assert [(match["name"], match["description"]) for match in answer.structured["matches"]] == [
        ("mail__click", "Click an element of the page"),
        ("calc__click", "Click an element of the page"),
        ("calc__paint", ""),
    ]
    assert [(match.tool, match.rank) for match in answer.matches] == [
        ("mail__click", 1), ("calc__click", 2), ("calc__paint", 3)
    ]  # fmt: skip


@requirement("trust:ranking:copies")
def test_a_copy_never_takes_the_place_of_the_tool_that_was_there_first() -> None:
    made = catalog("paint")
    made.replace("mail", [raw(tool("click", "Click an element of the page"))])
    made.fix_names()
    made.replace("calc", [raw(tool("click", "Click an element of the page"))])  # comes first by config and by name
    made.fix_names()
    copy, original = Ranked(ToolId("calc__click"), 2.0), Ranked(ToolId("mail__click"), 1.8)
    arguments = discovery_arguments.Arguments(task="click")

    def described(*ranked: Ranked) -> list[tuple[str, str]]:
        answer = discovery_answer.answer(arguments, Ranking(ranked), "high", made, lambda _: False, REACH, 1500, 300)
        return [(match["name"], match["description"]) for match in answer.structured["matches"]]

    whole = "Click an element of the page"
    assert described(copy, original) == [("mail__click", whole), ("calc__click", "as mail__click")]
    assert described(original, copy) == [("mail__click", whole), ("calc__click", "as mail__click")]
    used = Ranked(ToolId("calc__click"), 2.0, {}, (IN_USE,))
    assert described(used, original) == [("calc__click", whole), ("mail__click", whole)]
    assert described(original, used) == [("calc__click", whole), ("mail__click", whole)]
    clearly_worse = Ranked(ToolId("mail__click"), 1.0)
    assert described(copy, clearly_worse) == [("calc__click", whole), ("mail__click", whole)], "both are described"


@requirement("discovery:alike")
def test_no_tool_takes_the_place_of_one_whose_score_is_clearly_better() -> None:
    made = catalog(tool("click", "Click an element of the page"))
    made.replace("mail", [raw(tool("click", "Click an element of the page"))])
    made.fix_names()
    meant, pinned = Ranked(ToolId("mail__click"), 3.0), Ranked(ToolId("calc__click"), 2.0, {}, (IN_USE, USED))
    config = config_of(FakeUpstream("calc", entry={"pin": ["click"]}), FakeUpstream("mail"))
    reach = Reach(config.profiles[""], config.servers, config.settings)
    arguments = discovery_arguments.Arguments(task="click")
    for k in (1, 5):
        answer = discovery_answer.answer(
            arguments, Ranking((meant, pinned)), "high", made, lambda _: False, reach, 1500, 300, k=k
        )
        assert answer.structured["matches"][0]["name"] == "mail__click"
        assert answer.matches[0].tool == "mail__click"


@requirement("discovery:alike")
def test_tools_that_a_task_names_alike_are_all_in_the_answer_and_it_says_what_tells_them_apart() -> None:
    folders = {"calc": "/home/ada/shop", "mail": "/home/ada/notes"}
    config = config_of(*(FakeUpstream(name, entry={"args": [folder]}) for name, folder in folders.items()))
    made = Catalog(list(config.servers.values()))
    for name in folders:
        made.replace(name, [raw(tool("read_file", "Read a file"))])
    made.fix_names()
    answer = asked(made, task="read_file")
    assert [match["name"] for match in answer.structured["matches"]] == ["calc__read_file", "mail__read_file"]
    said = (
        "The same tool on 2 servers: calc (/home/ada/shop), mail (/home/ada/notes). Take the one that the task means."
    )
    assert said in answer.text.splitlines()


@requirement("discovery:names")
def test_a_name_that_several_servers_have_gives_all_of_them_and_the_one_of_a_named_server_first() -> None:
    made = catalog("add", "send")
    made.replace("mail", [raw(tool("send")), raw(tool("read"))])
    answer = asked(made, names=["send"])
    assert [match["name"] for match in answer.structured["matches"]] == ["calc__send", "mail__send"]
    assert "2 servers have a tool 'send': calc__send, mail__send. Take the one that the task means." in answer.text
    assert "No tool is called" not in answer.text
    told = asked(made, names=["send"], task="with mail")
    assert [match["name"] for match in told.structured["matches"]][:2] == ["mail__send", "calc__send"]
    spelled = asked(made, names=["mcp__mail__send", "mcp__foretool__calc__add", "mcp_mail_read"])
    assert [match["name"] for match in spelled.structured["matches"]] == ["mail__send", "calc__add", "mail__read"]
    assert all("inputSchema" in match for match in spelled.structured["matches"])


@requirement("trust:ranking:copies")
def test_copies_of_one_server_do_not_push_other_tools_out() -> None:
    made = catalog("paint")
    made.replace("mail", [raw(tool(f"click_{number}", "Click an element of the page")) for number in range(1, 31)])
    copies = [Ranked(ToolId(f"mail__click_{number}"), 9.0) for number in range(1, 31)]
    ranking = Ranking((*copies, Ranked(ToolId("calc__paint"), 1.0)))
    arguments = discovery_arguments.Arguments(task="click")
    found = discovery_answer.answer(arguments, ranking, "high", made, lambda _: False, REACH, 1500, 300, k=5)
    names = [match["name"] for match in found.structured["matches"]]
    most = match_groups.ALIKE_OF_ONE
    assert names == [*(f"mail__click_{number}" for number in range(1, most + 1)), "calc__paint"]


def test_an_answer_is_json_that_a_client_can_read() -> None:
    answer = asked(catalog(tool("add", "Adds \u2028 \ud800".encode("utf-8", "replace").decode())), task="adds")
    assert json.loads(encode(answer.structured))["matches"]
