from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import catalog

from foretool.retrieval.rankers.names import ASKED, EXACT, NameIndex, distance


def names() -> NameIndex:
    found = NameIndex()
    for slot, tool in enumerate(catalog()):
        found.add(slot, tool.upstream, tool.name, tool.id)
    return found


def named(text: str) -> set[str]:
    tools = catalog()
    return {tools[slot].name for slot in names().in_line(text)}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("whois_domain", "whois_domain"),
        ("WHOIS DOMAIN", "whois_domain"),
        ("domains__whois_domain", "whois_domain"),
        ("please call whois-domain for example.com", "whois_domain"),
        ("use the create issue tool", "create_issue"),
        ("getUser", "getUser"),
        ("get_user of 5", "getUser"),
        ("search", "search"),
        ("what does `fetch` do to a page?", "fetch"),
        ("github.create_issue now", "create_issue"),
        ("whois_domian for example.com", "whois_domain"),
        ("crate_isue", "create_issue"),
        ("create issues", "create_issue"),
        ("serch", "search"),
        ("merge_pull_r", "merge_pull_request"),
    ],
)
def test_a_named_tool_is_found_however_its_name_is_written(text: str, name: str) -> None:
    assert named(text) == {name}


@pytest.mark.parametrize(
    ("text", "is_sure"),
    [
        ("whois-domain", True),
        ("use the whois-domain tool", True),
        ("call whois_domain for example.com", True),
        ("what does `fetch` do to a page?", True),
        ("please do a get-user talk with the team", False),
        ("call whois_domain for example.com" + " and say what it says" * 8, False),
    ],
)
def test_a_word_that_looks_like_a_name_is_surely_one_where_it_can_mean_nothing_else(text: str, is_sure: bool) -> None:
    assert names().in_line(text)
    assert bool(names().in_line(text, surely=True)) == is_sure


@pytest.mark.parametrize(
    "text",
    [
        "",
        "search the web for pages",
        "I want to fetch a page",
        "a state-of-the-art e-mail",
        "https://example.com/a_b",
        "xy_zw",
    ],
)
def test_words_of_a_sentence_are_no_names(text: str) -> None:
    assert named(text) == set()


@pytest.mark.parametrize(
    "text",
    [
        "mcp__github__create_issue", "mcp__foretool__github__create_issue", "mcp_github_create_issue",
        "foretool__create_issue", "select:create_issue", "select:github__create_issue", "mcp--github--create_issue",
        "`github:create_issue`", "use 'github/create_issue'", "@github/create_issue", "create_issue_mcp_github",
        "create_issue@github", "functions.mcp__github__create_issue", "mcp__my_client__github__create_issue",
        "call mcp__github__create_isue please",
    ],
)  # fmt: skip
def test_a_name_is_found_behind_whatever_clients_put_around_it(text: str) -> None:
    assert named(text) == {"create_issue"}


def test_a_list_of_names_is_found_in_its_order() -> None:
    for text in ("select:fetch,getUser, create_issue", "`fetch` getUser create_issue"):
        found = names().in_line(text)
        assert [catalog()[slot].name for slot in sorted(found, key=lambda slot: -found[slot])] == [
            "fetch", "getUser", "create_issue",
        ]  # fmt: skip


def test_a_name_that_is_spelled_exactly_means_no_other_tool() -> None:
    found = NameIndex()
    found.add(0, "dev", "in_query", "dev__in_query")
    found.add(1, "devin", "query", "devin__query")
    assert set(found.in_line("devin__query")) == set(found.in_line("mcp__devin__query")) == {1}
    assert set(found.in_line("devin_query")) == {0, 1}
    found.drop(1, "devin", "query", "devin__query")
    assert set(found.in_line("devin__query")) == {0}


def test_the_tool_of_a_server_that_is_not_there_is_not_taken_for_that_of_another() -> None:
    assert named("mcp__notion__create_issue") == set()


def test_names_asked_for_come_in_the_order_asked() -> None:
    found = names().asked(("getUser", "create_issue"))
    in_line = names().in_line("whois_domain")
    assert sorted(found, key=lambda slot: -found[slot]) == [6, 0]
    assert found[6] == ASKED and in_line == {3: EXACT} and min(found.values()) > in_line[3]


def test_of_several_near_names_only_the_nearest_are_meant() -> None:
    found = NameIndex()
    for slot, name in enumerate(["git_commit", "get_commit"]):
        found.add(slot, "", name, name)
    assert set(found.in_line("git_comit")) == {0}


def test_a_dropped_name_is_forgotten() -> None:
    found = names()
    found.drop(3, "domains", "whois_domain", "domains__whois_domain")
    assert found.in_line("whois_domain") == found.in_line("whois_domian") == found.asked(("whois_domain",)) == {}
    assert found.in_line("search") == {7: EXACT}


@pytest.mark.parametrize(
    ("a", "b", "edits"), [("same", "same", 0), ("abc", "acb", 1), ("abc", "abcd", 1), ("abc", "xbz", 2), ("", "ab", 2)]
)
def test_edits_between_words(a: str, b: str, edits: int) -> None:
    assert distance(a, b, 2) == distance(b, a, 2) == edits


@given(st.text("abc", max_size=8), st.text("abc", max_size=8), st.integers(0, 3))
def test_a_limited_distance_is_the_distance_up_to_the_limit(a: str, b: str, limit: int) -> None:
    assert distance(a, b, limit) == min(distance(a, b, 99), limit + 1)


@given(st.integers(0, 11), st.characters(categories=["Ll"]))
def test_a_name_with_any_one_letter_replaced_is_still_near(at: int, letter: str) -> None:
    name = "whois_domain"
    wrong = name[:at] + letter + name[at + 1 :]
    assert set(names().asked((wrong,))) == {3}


@given(st.text())
def test_any_line_can_be_searched_for_names(text: str) -> None:
    found = (*names().asked((text,)).values(), *names().in_line(text).values())
    assert all(0.0 < strength <= ASKED for strength in found)
