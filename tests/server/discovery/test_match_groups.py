"""Matches that say much the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes import FakeUpstream, proxy_over, tool
from requirements import requirement

from foretool.retrieval.corpus import Corpus
from foretool.retrieval.ranking import Ranked
from foretool.server.config.settings import Risk
from foretool.server.discovery.match_groups import (
    ALIKE_OF_ONE,
    USED,
    WordBits,
    _words_of,
    fold_twins,
    group,
    put_harmless_first,
    read_no_words,
    thin,
)
from foretool.server.protocol.jsonrpc import encode
from foretool.storage.records import Level, Tool, ToolId


def known(server: str, name: str, text: str) -> tuple[Tool, Ranked]:
    id = ToolId(f"{server}__{name}")
    return Tool(id, server, name, encode(tool(name, text)), ""), Ranked(id, 1.0)


def test_what_a_server_says_too_often_stands_behind_the_others() -> None:
    copies = [known("mail", f"click_{number}", "Click an element of the page") for number in range(9)]
    other = known("calc", "paint", "Paint a wall")
    found = [tool.id for tool, _ in thin([*copies, other], 0, 10)]
    assert found.index(other[0].id) == ALIKE_OF_ONE
    assert len(found) == 10


def reasoned(server: str, *reasons: str) -> tuple[Tool, Ranked]:
    tool, ranked = known(server, "click", "Click an element")
    return tool, Ranked(ranked.tool, ranked.score, {}, reasons)


def test_where_a_newer_one_was_chosen_both_are_described() -> None:
    _, like = group([reasoned("a"), reasoned("b", USED)], 0, lambda each: "ab".index(each[0]))
    assert like == {}, "the text of a newer server never stands for that of an older one"


def test_two_names_of_one_server_are_one_tool_and_the_one_that_reads_leads() -> None:
    one, other = known("wiki", "get_summary", "Get a summary"), known("wiki", "wiki_get_summary", "Get a summary")
    order, like = group([one, other], 0, lambda each: 0)
    assert [tool.id for tool, _ in order] == [one[0].id, other[0].id] and like == {other[0].id: one[0].id}
    order, like = group([one, other], 0, lambda each: 0, (), lambda tool: tool is other[0])
    assert order[0] == other and like == {one[0].id: other[0].id}
    assert fold_twins(order, like) == ([other], {other[0].id: [one]})


def test_the_best_tool_of_another_server_is_never_folded_away() -> None:
    tools = [reasoned(server) for server in "aab"]
    own, other, rival = tools[0], (known("a", "press", "Click an element")), tools[2]
    like = {other[0].id: own[0].id, rival[0].id: own[0].id}
    assert fold_twins([own, other, rival], like) == ([own, rival], {own[0].id: [other]})


def test_tools_of_one_server_that_differ_in_a_word_of_their_text_are_two() -> None:
    text = "Move the selected rows of the open sheet one place {} in the table"
    up, down = known("sheet", "move", text.format("up")), known("sheet", "move_rows", text.format("down"))
    assert group([up, down], 0, lambda each: 0)[1] == {}


def test_words_that_an_index_keeps_group_as_those_of_the_definitions_do() -> None:
    found = [
        *(known("mail", f"click_{number}", "Click an element of the mail page") for number in range(9)),
        known("calc", "click_3", "Click an element of the page"),
        known("calc", "paint", "# Paint\n\nPaint a wall. Then wait."),
        known("mail", "", ""),
        known("calc", "数据", "查询 数据库"),
    ]
    corpus = Corpus([one for one, _ in found])
    for one, _ in found:
        assert sorted(_words_of(one, corpus.words_of)) == sorted(_words_of(one, read_no_words)), one.id
    thinned = thin(found, 0, 10)
    assert thin(found, 0, 10, WordBits(corpus.words_of)) == thinned
    assert group(thinned, 0, len, words=WordBits(corpus.words_of)) == group(thinned, 0, len)


def test_words_that_an_index_has_of_another_definition_count_for_nothing() -> None:
    (before, _), (after, _) = known("mail", "send", "Send a letter"), known("mail", "send", "Burn a letter")
    corpus = Corpus([before])
    assert corpus.words_of(after) is None
    assert "burn" in _words_of(after, corpus.words_of)
    corpus.replace("mail", [])
    assert corpus.words_of(before) is None


def risks(**of: Risk | None) -> Callable[[ToolId], Risk | None]:
    return lambda name: of[name]


@requirement("gate:harmless")
def test_in_doubt_a_tool_that_deletes_stands_behind_one_that_does_not() -> None:
    drop, make, read = (Ranked(ToolId(name), score) for name, score in (("drop", 3.0), ("make", 2.8), ("read", 2.6)))
    risk_of = risks(drop="destructive", make=None, read="read")

    def first(task: str, level: Level, *ranked: Ranked) -> str:
        return put_harmless_first(ranked, level, task, risk_of)[0].tool

    assert first("the folder", "medium", drop, make, read) == "make"
    assert first("the folder", "high", drop, make, read) == "drop"
    assert first("delete the folder", "medium", drop, make, read) == "drop", "the task asks for it"
    assert first("the folder", "medium", drop, Ranked(ToolId("make"), 2.0)) == "drop", "it is clearly better"
    # Where nothing is promised, what only reads stands before what changes something.
    risk_of = risks(drop="destructive", make="write", read="read")
    assert first("the folder", "low", make, read) == "read"
    assert first("the folder", "medium", make, read) == "make"
    assert first("please remember the folder", "low", make, read) == "make", "the task asks for a change"
    assert first("did I write about the folder", "low", make, read) == "read"
    order = put_harmless_first([drop, make, read], "low", "the folder", risk_of)
    assert [each.tool for each in order] == ["make", "drop", "read"]
    assert put_harmless_first([], "low", "the folder", risk_of) == ()


@requirement("gate:harmless")
@pytest.mark.anyio
@pytest.mark.parametrize(("name", "first"), [("rename_file", "rename_file"), ("remove_file", "title")])
async def test_of_what_a_server_calls_destructive_a_name_alone_says_that_it_deletes(name: str, first: str) -> None:
    files = FakeUpstream("files", [tool(name, "Rename a file", annotations={"destructiveHint": True})])
    sheets = FakeUpstream("sheets", [tool("title", "Rename a sheet", annotations={"destructiveHint": False})])
    async with proxy_over(files, sheets) as stage:
        await stage.client.list_tools()
        found = await stage.client.call_tool("discover_tools", {"task": "rename it", "structured": True})
    names = [match["name"].partition("__")[2] for match in found["structuredContent"]["matches"]]
    assert found["structuredContent"]["confidence"] in ("medium", "low") and len(names) == 2
    assert names[0] == first
