from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretool.retrieval.words import KINDRED, compact, in_words, spell_terms, stem, terms


@pytest.mark.parametrize("name", ["createIssue", "create_issue", "create-issue", "create.issue", "CREATE ISSUE"])
def test_every_way_to_write_a_name_has_the_same_terms(name: str) -> None:
    assert terms(name)[:2] == ["creat", "issu"]


def test_a_brand_is_one_word_and_its_humps() -> None:
    assert terms("GitHub") == ["git", "hub", "github"]
    assert terms("github") == ["github"]


def test_english_endings_fall_off() -> None:
    assert {stem(word) for word in ("create", "creates", "created", "creating")} == {"creat"}
    assert stem("queries") == stem("query")
    assert [stem(word) for word in ("status", "address", "analysis", "is")] == ["status", "address", "analysis", "is"]


def test_characters_of_scripts_without_spaces_are_terms_of_their_own() -> None:
    assert terms("搜索POI") == ["搜", "索", "poi"]


def test_stop_words_are_left_out() -> None:
    assert terms("Could you please tell me the weather?") == ["weather"]


def test_a_name_in_words() -> None:
    assert in_words("getHTTPResponse_v2") == "get http response v2"
    assert compact("Get-HTTP response") == "gethttpresponse"


def test_terms_are_shown_as_they_were_first_written() -> None:
    assert spell_terms("Creating issues, create") == {"creat": "creating", "issu": "issues"}


def test_verbs_of_one_deed_know_each_other() -> None:
    assert "find" in KINDRED["search"]
    assert all(term in KINDRED[other] for term in KINDRED for other in KINDRED[term])


@given(st.text())
def test_any_text_can_be_cut(text: str) -> None:
    assert all(terms(text))
    assert set(spell_terms(text)) == set(terms(text))
