"""Textbook BM25, the baseline."""

from tools import tool

from foretool.retrieval.textbook import bm25_scores


def test_rare_words_weigh_more_and_other_tools_get_nothing() -> None:
    tools = [tool("s", "send", "Sends a message."), tool("s", "find", "Finds a message."), tool("s", "moon", "Phase.")]
    scores = bm25_scores(tools)("send a message")
    assert scores[0] > scores[1] > scores[2] == 0.0


def test_long_texts_gain_less_from_a_word() -> None:
    tools = [tool("s", "a", "moon"), tool("s", "b", "moon " + "of many other words " * 9)]
    short, long = bm25_scores(tools)("moon")
    assert short > long > 0.0


def test_no_tools_no_scores() -> None:
    assert bm25_scores([])("anything") == []
