"""How a paragraph becomes needs, what short tasks keep, and what a hostile text costs."""

from __future__ import annotations

import pytest
from tools import catalog, tool

from foretool.retrieval.clauses import LONG, MOST, STORY, clauses, is_story, split_task, steps
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.ranking import MAX_NEED_WORDS, Query

PARAGRAPH = (
    "Our team lead asked me on Monday to look after the old customer portal until she is back from her holidays."
    " Please list all open issues of the portal repository; then find out who registered the domain of the portal,"
    " and convert the time of the release meeting from Berlin to the zone of our colleagues in Lima."
)


def test_a_paragraph_is_split_at_sentences_and_joining_words() -> None:
    assert clauses(PARAGRAPH) == [
        "Our team lead asked me on Monday to look after the old customer portal until she is back from her holidays.",
        "Please list all open issues of the portal repository;",
        "then find out who registered the domain of the portal",
        "and convert the time of the release meeting from Berlin to the zone of our colleagues in Lima.",
    ]


def test_a_short_need_and_a_single_sentence_stay_whole() -> None:
    assert clauses("List issues. Then convert a time. Then find the owner of a domain.") == []
    assert clauses("word " * (MAX_NEED_WORDS + 1)) == []
    assert split_task(["a", "b"]) == ["a", "b", "a\nb"]
    assert split_task([PARAGRAPH]) == [PARAGRAPH, *clauses(PARAGRAPH)]


def test_with_encoders_shorter_tasks_have_clauses_too() -> None:
    task = "Find out who owns the domain of our portal, then list all issues of the portal that are still open today."
    parts = [
        "Find out who owns the domain of our portal",
        "then list all issues of the portal that are still open today.",
    ]
    assert clauses(task) == [] and clauses(task, LONG) == parts
    assert split_task([task]) == [task, *parts], "and what searches for them embeds the same texts"
    assert clauses(" ".join(task.split()[:LONG]), LONG) == []


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("add 3 and 5 and then write the result into a file", ["add 3 and 5", "write the result into a file"]),
        ("count the lines in the log and remember the number", ["count the lines in the log", "remember the number"]),
        (
            "what does notes.txt say, then show the git branch",
            ["what does the file notes.txt say", "show the git branch"],
        ),
        ("search and replace foo in notes.txt", []),
        ("read the file and tell me", []),
        ("compare bread and butter prices", []),
        ("add 3 and 5", []),
        ("", []),
    ],
)
def test_a_short_task_has_the_steps_that_it_says(task: str, expected: list[str]) -> None:
    assert steps(task) == expected
    assert split_task([task]) == [task, *expected]


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("read budget.csv and work out the sum", ["read the file budget.csv", "work out the sum"]),
        ("fetch https://a.example/x.html and save it to page.html",
         ["fetch https://a.example/x.html", "save it to the file page.html"]),
        ("open my todo.md and send it to a@b.py", ["open the file todo.md", "send it to a@b.py"]),
        ("read the file totals.txt and add up the rows", ["read the file totals.txt", "add up the rows"]),
        ("read sales.xlsx and plot the prices", ["read sales.xlsx", "plot the prices"]),
        ("read a.csv and b.csv, then add up the rows", ["read the file a.csv and the file b.csv", "add up the rows"]),
        ("open example.com and take a screenshot", ["open example.com", "take a screenshot"]),
    ],
)  # fmt: skip
def test_a_step_that_names_a_file_of_text_says_that_it_is_one(task: str, expected: list[str]) -> None:
    assert steps(task) == expected


def test_each_step_of_a_short_task_brings_its_tool() -> None:
    tools = [
        tool("maths", "calculate", "Adds numbers"),
        tool("files", "write_file", "Writes a text into a file"),
        *(tool("files", f"file_{number}", f"Writes the result of check {number} into a file") for number in range(5)),
    ]
    found = Pipeline(Corpus(tools)).rank(Query(("add numbers 3 5 and then write the result into a file",))).ranked
    assert "maths__calculate" in [each.tool for each in found[:3]]


def test_a_short_step_of_a_longer_task_is_not_lost_among_its_clauses() -> None:
    task = (
        "Find the last 3 commits in /srv/shop, then write them into the notes of today, and tell me the time in Tokyo"
    )
    found = ["Find the last 3 commits in /srv/shop", "write them into the notes of today", "tell me the time in Tokyo"]
    assert split_task([task]) == [task, *found]


def test_a_story_is_longer_than_a_list_of_wishes() -> None:
    assert not is_story("word " * STORY)
    assert is_story(f"{'word ' * STORY}\nword")
    assert not is_story(PARAGRAPH)


def test_with_more_clauses_than_the_budget_neighbours_are_joined_and_none_is_lost() -> None:
    sentences = [f"Number{at} alpha{at} beta{at} gamma{at}." for at in range(100)]
    found = clauses(" ".join(sentences))
    assert len(found) == MOST
    assert " ".join(found) == " ".join(sentences)


def test_every_need_of_a_paragraph_has_its_tool_among_the_first() -> None:
    ranking = Pipeline(Corpus(catalog())).rank(Query((PARAGRAPH,)))
    first = {each.tool for each in ranking.ranked[:4]}
    assert {"github__list_issues", "domains__whois_domain", "time__convert_time"} <= first
    assert len(ranking.evidence) == 1, "one paragraph is judged as one need"


def test_the_parts_of_a_paragraph_by_words_make_up_its_scores() -> None:
    for each in Pipeline(Corpus([*catalog(), tool("a", "b", "portal")])).rank(Query((PARAGRAPH,))).ranked:
        assert abs(sum(each.parts.values()) - each.score) < 1e-3


def test_hostile_texts_have_no_more_clauses_than_others() -> None:
    # A quadratic split of these would take minutes.
    for text in (
        " " * 200_000,
        "a " * 100_000,
        ". " * 100_000,
        ", and" * 50_000,
        "-" * 200_000,
        "one two three four. " * 20_000,
    ):
        assert len(clauses(text)) <= MOST
