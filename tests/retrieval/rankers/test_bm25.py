from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from requirements import requirement

from foretool.retrieval.document import Document
from foretool.retrieval.rankers import bm25 as rankers_lexical
from foretool.retrieval.rankers.bm25 import (
    FIELDS,
    KINDRED_WEIGHT,
    SAID,
    WRITTEN_WEIGHT,
    Field,
    Lexical,
    weigh_terms,
)
from foretool.storage.records import ToolId

WORDS = st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta"]), max_size=12)


def index(documents: Sequence[Sequence[Sequence[str]]], fields: Sequence[Field]) -> Lexical:
    lexical = Lexical(fields)
    for document in documents:
        lexical.add_counts([Counter(field) for field in document])
    return lexical


def test_a_toy_case_computed_by_hand() -> None:
    # Fields: name (weight 3, b .3) and text (weight 1, b .75). Mean lengths 1.5 and 2.
    #            name       text
    # tool 0     cat        cat dog dog        lengths 1, 3
    # tool 1     dog bird   bird               lengths 2, 1
    # "dog": tool 0: 2 / (.25 + .75 * 3/2) = 2 / 1.375 = 1.454545
    #        tool 1: 3 / (.7 + .3 * 2/1.5) = 3 / 1.1 = 2.727273
    # idf = ln(1 + (2 - 2 + .5) / 2.5) = ln 1.2 = .182322;  w / (1.2 + w) = .547945 and .694444
    lexical = index([[["cat"], ["cat", "dog", "dog"]], [["dog", "bird"], ["bird"]]], [Field(3, 0.3), Field(1, 0.75)])
    assert lexical.hits({"dog": 1.0}) == pytest.approx({0: 0.099902, 1: 0.126612}, abs=1e-5)
    # "cat" only in tool 0: idf ln 2 = .693147; name 3 / (.7 + .3 / 1.5) = 3.333333, text 1 / 1.375 = .727273,
    # w = 4.060606, w / (1.2 + w) = .771889; together with "dog" .535032 + .099902.
    assert lexical.hits({"dog": 1.0, "cat": 1.0})[0] == pytest.approx(0.634934, abs=1e-5)


def textbook_bm25(documents: Sequence[Sequence[str]], query: Sequence[str], k1: float, b: float) -> list[float]:
    """Robertson and Zaragoza 2009, eq. 3.15 without the constant (k1 + 1), which changes no order."""
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        score = 0.0
        for term in query:
            having = sum(term in each for each in documents)
            idf = log(1 + (len(documents) - having + 0.5) / (having + 0.5))
            times = document.count(term)
            score += idf * times / (k1 * (1 - b + b * len(document) / mean) + times) if times else 0.0
        scores.append(score)
    return scores


@given(st.lists(WORDS.filter(bool), min_size=1, max_size=6), st.sets(st.sampled_from(["alpha", "beta", "other"])))
def test_one_field_is_textbook_bm25(documents: list[list[str]], query: set[str]) -> None:
    lexical = index([[document] for document in documents], [Field(1, 0.75)])
    hits = lexical.hits(dict.fromkeys(query, 1.0))
    expected = textbook_bm25(documents, sorted(query), 1.2, 0.75)
    assert [hits.get(slot, 0.0) for slot in range(len(documents))] == pytest.approx(expected, abs=1e-5)


CHANGES = st.lists(st.tuples(WORDS, st.booleans()), max_size=12)


@given(CHANGES, st.booleans())
def test_an_index_with_a_past_scores_as_one_built_anew(changes: list[tuple[list[str], bool]], compacted: bool) -> None:
    fields = [Field(1, 0.75), Field(2, 0.3)]
    wanted = {"alpha": 1.0, "beta": 2.0}
    lexical = Lexical(fields)
    kept = []
    for words, drop in changes:
        slot = lexical.add_counts([Counter(words), Counter(words[:2])])
        lexical.hits(wanted)
        if drop:
            lexical.drop(slot)
        else:
            kept.append((slot, [words, words[:2]]))
    if compacted:
        lexical.compact()
    numbers = [at if compacted else slot for at, (slot, _) in enumerate(kept)]
    fresh = index([document for _, document in kept], fields).hits(wanted)
    assert lexical.hits(wanted) == pytest.approx({numbers[slot]: score for slot, score in fresh.items()})


def test_a_word_said_twice_weighs_more_but_not_twice() -> None:
    assert weigh_terms("dog dog cat") == {"dog": 1.0 + 0.5 * log(2), "cat": 1.0}


def test_a_verb_brings_its_kindred_with_less_weight() -> None:
    assert weigh_terms("find flights") == {
        "find": 1.0,
        "flight": 1.0,
        "search": KINDRED_WEIGHT,
        "lookup": KINDRED_WEIGHT,
        "query": KINDRED_WEIGHT,
    }


def test_a_question_asks_to_get_something() -> None:
    assert weigh_terms("What's the time in Tokyo?") == {"time": 1.0, "tokyo": 1.0, "get": KINDRED_WEIGHT}
    assert weigh_terms("how many people get mail")["get"] == 1.0
    assert "get" not in weigh_terms("say what the time is")
    assert weigh_terms("what is this?") == {}


def test_that_something_is_asked_for_says_nothing_alone() -> None:
    lexical = Lexical()
    lexical.add(Document(ToolId("a"), "s", "get_issue"))
    assert lexical.search(weigh_terms("what is love")) == {}
    assert lexical.search(weigh_terms("get love")).keys() == {0}


def test_a_tool_with_nothing_in_common_has_no_score() -> None:
    lexical = Lexical()
    lexical.add(Document(ToolId("a"), "s", "create_issue", description="Opens an issue"))
    lexical.add(Document(ToolId("b"), "s", "convert_time"))
    scores = lexical.search(weigh_terms("an issue\nplease"))
    assert scores.keys() == {0} and scores[0] > 0.0
    assert lexical.search({}) == {}


def test_terms_that_settle_nothing_are_not_looked_up() -> None:
    lexical = index([[["common", "rare"]]] + [[["common"]]] * 99, [Field(1, 0.75)])
    assert lexical.telling({"common": 1.0, "rare": 1.0, "unknown": 1.0}) == {"rare": 1.0}
    many = index([[[str(number)]] for number in range(99)], [Field(1, 0.75)])
    assert len(many.telling({str(number): 1.0 for number in range(99)})) == 40


def test_the_name_counts_more_than_the_description_and_that_more_than_a_parameter_text() -> None:
    lexical = Lexical()
    filler = "alpha beta gamma"
    lexical.add(Document(ToolId("a"), "s", "n", description=filler, parameter_texts=("zebra",)))
    lexical.add(Document(ToolId("b"), "s", "n", description=f"zebra {filler}", parameter_texts=("delta",)))
    lexical.add(Document(ToolId("c"), "s", "zebra", description=filler, parameter_texts=("delta",)))
    for _ in range(5):
        lexical.add(Document(ToolId("d"), "s", "n", description=filler, parameter_texts=("delta",)))
    scores = lexical.search(weigh_terms("zebra"))
    assert scores[2] > scores[1] > scores[0] > 0.0 and scores.keys() == {0, 1, 2}
    assert len(FIELDS) <= 8, "a posting has three bits for its field"


@given(st.text(), st.text())
def test_any_text_can_be_indexed_and_asked_for(text: str, question: str) -> None:
    lexical = Lexical()
    lexical.add(Document(ToolId("a"), text, text, text, text, (text,), (text,), text))
    assert all(score >= 0.0 for score in lexical.search(weigh_terms(f"{question}\n{text}")).values())


def test_an_empty_index_answers() -> None:
    assert Lexical().search(weigh_terms("anything")) == {}


NOUNS = [f"noun{number}" for number in range(400)]
REAL = [Document(ToolId(f"s__{noun}"), "s", f"get_{noun}", "", f"Gets the {noun} of a page.") for noun in NOUNS]


def ranks(stuffed: Document, real: Sequence[Document] = REAL[:60]) -> list[int]:
    """The place of a stuffed tool for each task that is about another one; 0 where it is not found."""
    lexical = Lexical()
    for document in real:
        lexical.add(document)
    slot = lexical.add(stuffed)
    found = []
    for noun in NOUNS[: len(real)]:
        hits = lexical.search(weigh_terms(f"get the {noun} of this page"))
        order = sorted(hits, key=lambda each: -hits[each])
        found.append(order.index(slot) + 1 if slot in order else 0)
    return found


@requirement("trust:ranking:stuffed")
@pytest.mark.parametrize(
    "stuffed",
    [
        Document(ToolId("e__x"), "e", "x", "", " ".join(NOUNS)),
        Document(ToolId("e__x"), "e", "x", " ".join(NOUNS), " ".join(NOUNS)),
        Document(ToolId("e__x"), "e", "x", "", " ".join(NOUNS * 9)),
        Document(ToolId("e__x"), "e", "x", "", "", (), (" ".join(NOUNS),)),
        Document(ToolId("e__x"), "e", "_".join(NOUNS[20:]), "", "page " * 500, tuple(NOUNS), tuple(NOUNS)),
    ],
    ids=["description", "title", "repeated", "parameter texts", "everywhere"],
)
def test_a_tool_with_the_words_of_hundreds_is_in_no_answer_to_a_task_about_another(stuffed: Document) -> None:
    assert sum(place > 0 for place in ranks(stuffed)) <= 2


@requirement("trust:ranking:stuffed")
def test_a_word_said_a_thousand_times_counts_like_one_said_a_few_times() -> None:
    lexical = Lexical()
    for times in (rankers_lexical.MOST_TIMES, 4000):
        lexical.add(Document(ToolId("e__x"), "e", "x", "", "page " * times))
    one, other = lexical.search({"page": 1.0}).values()
    assert one == pytest.approx(other)


@requirement("trust:ranking:stuffed")
def test_a_name_counts_with_its_first_words() -> None:
    stuffed = Document(ToolId("e__x"), "e", "_".join(NOUNS), "", "Helps.")
    assert sum(place == 1 for place in ranks(stuffed)) == 0
    assert sum(place > 0 for place in ranks(stuffed)) <= rankers_lexical.READ[0]


def test_a_text_index_has_no_bound_on_different_words() -> None:
    rich = Lexical(wide=0)
    rich.add(Document(ToolId("a"), "", "a", "", " ".join(NOUNS)))
    rich.add(Document(ToolId("b"), "", "b", "", "noun1"))
    assert len(rich.search({"noun1": 1.0})) == 2


def test_a_chinese_word_of_a_query_counts_by_its_english_and_with_less_weight_by_its_characters() -> None:
    assert weigh_terms("用 github 查询 天气 的 龘") == {
        "query": 1.0, "github": 1.0, "weather": 1.0, "龘": 1.0,
        **dict.fromkeys(("search", "find", "lookup"), KINDRED_WEIGHT),
        **dict.fromkeys("查询天气", WRITTEN_WEIGHT),
    }  # fmt: skip
    assert WRITTEN_WEIGHT < SAID, "an English tool lacks none of its words"
