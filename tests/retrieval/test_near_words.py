from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretool.retrieval.corpus import Corpus
from foretool.retrieval.line import NeedScores
from foretool.retrieval.near_words import FILE, LONGEST, MARKS, WEIGHT, near_terms
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.bm25 import weigh_terms
from foretool.retrieval.ranking import Query
from foretool.retrieval.words import STOP_WORDS, stem
from tests.support.tools import tool

TEXTS = {"show": "Shows an image on the screen", "play": "Plays a song", "order": "Orders a meal"}


def corpus(texts: dict[str, str]) -> Corpus:
    return Corpus([tool("s", name, text) for name, text in texts.items()])


def test_a_word_brings_those_that_mean_nearly_the_same_with_less_weight() -> None:
    found = near_terms(weigh_terms("some photos"))
    assert {"imag", "pictur"} <= found.keys() and found["imag"][0] == "image"
    assert all(0.0 < weight < 1.0 for _, weight in found.values())


def test_words_of_the_query_and_kindred_verbs_keep_their_own_weight() -> None:
    said = weigh_terms("find a photo or a picture")
    assert not said.keys() & near_terms(said).keys()
    alone = near_terms({"search": 0.3})
    assert alone == {}, "only what was said brings more words"


def test_a_tool_is_found_by_a_word_that_nobody_said_and_the_reason_says_so() -> None:
    ranked = Pipeline(corpus(TEXTS)).rank(Query(("look at my photos",))).ranked
    assert ranked[0].tool == "s__show" and ranked[0].reasons == ("words alike: image",)


def test_a_word_that_was_said_counts_more_than_one_that_means_the_same() -> None:
    texts = TEXTS | {"album": "Lists a photo of each day"}
    ranked = Pipeline(corpus(texts)).rank(Query(("photo",))).ranked
    assert [each.tool for each in ranked[:2]] == ["s__album", "s__show"]


@given(st.dictionaries(st.text(), st.floats(0.1, 4.0)))
def test_any_terms_can_be_asked_for(said: dict[str, float]) -> None:
    assert not near_terms(said).keys() & said.keys()


@pytest.mark.parametrize("term", ["", " ", "\n", "photo image", "a\nphoto", "\ud800", "zzzzzz", "0", "aaa", "é"])
def test_a_term_that_is_no_word_of_the_table_brings_nothing_false(term: str) -> None:
    for near, (word, weight) in near_terms({term: 1.0}).items():
        assert stem(word) == near and 0.0 < weight <= WEIGHT


def test_the_table_is_sorted_and_whole() -> None:
    """It is searched by halves, so every line must be found where its bytes belong."""
    lines = FILE.read_text("utf-8").splitlines()
    stems = [line.split(" ")[0] for line in lines]
    assert stems == sorted(set(stems), key=str.encode)
    for line in lines:
        term, *words = line.split(" ")
        assert words and all(word[:-1].isalpha() and 1 < int(word[-1]) <= MARKS for word in words)
        assert term not in map(stem, (word[:-1] for word in words)) and not set(words) & STOP_WORDS
    for term in (stems[0], stems[-1], stems[len(stems) // 2]):
        assert near_terms({term: 1.0})


def test_a_long_query_brings_no_words() -> None:
    words = [line.split(" ")[0] for line in FILE.read_text("utf-8").splitlines()[1000 : 1000 + LONGEST + 1]]
    assert near_terms(dict.fromkeys(words, 1.0)) == {}
    assert near_terms(dict.fromkeys(words[1:], 1.0))


def test_a_line_takes_the_few_near_words_that_tell_most() -> None:
    words = [line.split(" ")[1][:-1] for line in FILE.read_text("utf-8").splitlines()[5000:7000]]
    tools = corpus({f"t{number}": " ".join(words) for number in range(99)} | {"one": "an image", "two": "a meal"})
    line = NeedScores(tools, "photos of a breakfast", widened=True)
    assert {"image", "meal"} <= set(line.spelled.values()) and len(line.spelled) <= 6
    assert not NeedScores(tools, "photos of a breakfast").spelled
    crowded = corpus({f"t{number}": "an image" for number in range(99)})
    assert not NeedScores(crowded, "photos", widened=True).spelled, "a word that every tool has tells nothing"
