"""Which sentences enumerate needs, which only list words, and what a hostile sentence costs."""

from __future__ import annotations

import pytest

from foretool.retrieval.clauses import LONG, MOST, STORY, clauses
from foretool.retrieval.enumerations import members


@pytest.mark.parametrize(
    "sentence, found",
    [
        (
            "We want a system that tracks all parcels, prints shipping labels, and tells customers when to be home.",
            ["tracks all parcels", "prints shipping labels", "tells customers when to be home"],
        ),
        (
            "Our shop needs help with scanning product barcodes, sorting goods by brand and checking nearby stock",
            ["scanning product barcodes", "sorting goods by brand", "checking nearby stock"],
        ),
        (
            "I need to rename this branch, open a merge request and tell our team leads",
            ["rename this branch", "open a merge request", "tell our team leads"],
        ),
        (
            "Could you please download the audio file, reduce its loud noise, and then draw its wave form?",
            ["download the audio file", "reduce its loud noise", "then draw its wave form"],
        ),
        (
            "We set up a portal, including identifying products by barcode, stock counts per shop, and opening hours.",
            ["identifying products by barcode", "stock counts per shop", "opening hours"],
        ),
        (
            "We open a shop: a free domain name, the correct sales tax, or an easy payment",
            ["a free domain name", "the correct sales tax", "an easy payment"],
        ),
    ],
)
def test_members_begin_in_one_form_or_are_announced(sentence: str, found: list[str]) -> None:
    assert members(sentence) == found


@pytest.mark.parametrize(
    "sentence",
    [
        "Book trains to Berlin, Paris, and Rome for next week and a hotel near each station.",
        "I need to rename this branch and open a merge request for it.",
        "I need to book a room in Bern, with two large beds, and a good view of the river.",
        "We plan to move the meeting, which was on Monday, and we want to tell everybody about it.",
        "Find the team that wins most games, costs least money, or",
        "The log, the list, and the index are old.",
        "I would like to book, pay, and go.",
        "",
        ", and",
        ",,,",
    ],
)
def test_other_commas_are_no_enumeration(sentence: str) -> None:
    assert members(sentence) == []


TASK = (
    "We need an assistant for our portal that lists the open issues of a repository, converts meeting times between"
    " time zones, and finds the owner of a domain."
)


def test_each_member_is_a_clause_within_the_budget() -> None:
    needs = [
        "lists the open issues of a repository",
        "converts meeting times between time zones",
        "finds the owner of a domain",
    ]
    assert clauses(TASK, LONG) == needs
    before = "Our old portal answers slowly on most Mondays."
    assert clauses(f"{before} {TASK}", LONG) == [before, *needs], "other sentences stay clauses"
    many = "I need to " + ", ".join(f"number{at} alpha{at} beta{at}" for at in range(20)) + ", and close the door"
    assert len(clauses(many, LONG)) == MOST


def test_a_short_task_and_a_story_are_read_as_before() -> None:
    assert clauses("I need to rename a branch, open an issue, and close it", LONG) == []
    story = f"{'It rained all day on our old harbour and nothing happened here. ' * 7}{TASK}"
    assert len(story.split()) > STORY
    assert not set(clauses(TASK, LONG)) & set(clauses(story, LONG))


def test_a_hostile_sentence_costs_no_more_than_its_length() -> None:
    # A quadratic search for members would take minutes.
    for text in ("ing" * 100_000, "to " * 100_000, "that s" * 100_000, ", and x" * 50_000, "including : " * 50_000):
        assert len(members(text)) <= text.count(",") + 1
