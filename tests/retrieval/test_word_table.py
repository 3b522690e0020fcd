"""A table of words ranks its tools as the index does that it was made of, and takes nothing else for a table."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretool.retrieval.confidence import level
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.bm25 import weigh_terms
from foretool.retrieval.ranking import Query
from foretool.retrieval.word_table import TableCorpus, WordTable, pack_table
from foretool.storage.records import Tool, ToolId
from foretool.storage.steps import finish

TEXT = "open close list create issue letter weather forecast city photo crop send invoice customer"
WORDS = TEXT.split()
draw = random.Random(3)


def made(number: int) -> Tool:
    text = " ".join(draw.choices(WORDS, k=draw.randint(2, 12)))
    name = f"{draw.choice(WORDS)}_{draw.choice(WORDS)}_{number}"
    definition = f'{{"name":"{name}","description":"{text}"}}'.encode()
    return Tool(ToolId(f"s{number % 7}__{name}"), f"s{number % 7}", name, definition, name)


TOOLS = [made(number) for number in range(400)]


def packed(corpus: Corpus) -> bytes:
    names = [str(id or "").encode() for id in corpus.ids]
    return finish(pack_table(corpus.lexical.all_impacts(), names, len(corpus)))


def chosen(table: WordTable, text: str, tools: dict[ToolId, Tool]) -> TableCorpus:
    slots = table.best(weigh_terms(text), {})[:60]
    return TableCorpus(table, {slot: tools[ToolId(table.tool(slot).decode())] for slot in slots})


@pytest.mark.parametrize(
    "text", ["crop a photo", "send the customer an invoice", "weather forecast for a city", "zebra"]
)
def test_tools_are_ranked_and_judged_as_by_the_whole_index(text: str) -> None:
    whole = Corpus(TOOLS)
    table = WordTable(packed(whole))
    expected = Pipeline(whole).rank(Query((text,)), limit=10)
    found = Pipeline(chosen(table, text, {tool.id: tool for tool in TOOLS})).rank(Query((text,)), limit=10)
    assert len(found.ranked) == len(expected.ranked)
    for one, other in zip(found.ranked, expected.ranked, strict=True):
        assert one.score == pytest.approx(other.score, rel=0.01)
    assert level(found) == level(expected)
    for one, other in zip(found.evidence, expected.evidence, strict=True):
        assert one.named == other.named
        assert one.coverage == pytest.approx(other.coverage, abs=0.01)


def test_a_dropped_tool_is_not_found() -> None:
    corpus = Corpus(TOOLS)
    corpus.replace("s3", ())
    table = WordTable(packed(corpus))
    kept = {str(tool.id).encode() for tool in TOOLS if tool.upstream != "s3"}
    assert table.live == len(kept)
    assert {table.tool(slot) for slot in table.best(weigh_terms("issue"), {})} <= kept


def test_words_that_nearly_mean_the_same_count_less_and_only_if_few_tools_have_them() -> None:
    texts = {"a": "crop a picture", "b": "crop an image", **{f"t{at}": "list things" for at in range(100)}}
    tools = [
        Tool(ToolId(n), "", n, f'{{"name":"{n}","description":"{text}"}}'.encode(), n) for n, text in texts.items()
    ]
    table = WordTable(packed(Corpus(tools)))
    found = table.best({"pictur": 1.0}, {"imag": 0.4, "thing": 0.5})
    assert [table.tool(slot) for slot in found] == [b"a", b"b"]


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_no_table(data: bytes) -> None:
    with pytest.raises(ValueError, match="table of words"):
        WordTable(data)


def test_a_table_that_is_cut_off_anywhere_is_none() -> None:
    data = packed(Corpus(TOOLS[:20]))
    for size in range(0, len(data), 7):
        with pytest.raises(ValueError, match="table of words"):
            WordTable(data[:size])
    with pytest.raises(ValueError, match="cut off"):
        WordTable(data + b"more")
