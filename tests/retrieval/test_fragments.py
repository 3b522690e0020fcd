"""Cutting instructions into chunks, and finding those that apply."""

from __future__ import annotations

from pathlib import Path

import pytest
from requirements import requirement

from foretool.retrieval import tokens
from foretool.retrieval.fragments import (
    Fragment,
    FragmentIndex,
    digest,
    fit_fragment,
    fragments,
    front_matter,
    text_chunks,
    unique,
)


def words(text: str) -> int:
    return len(text.split())


def paragraph(size: int, word: str = "word") -> str:
    return " ".join([word] * size)


@requirement("instructions:chunks")
def test_a_long_section_is_cut_into_equal_parts_between_paragraphs() -> None:
    text = "# Rules\n\n" + "\n\n".join(paragraph(150) for _ in range(6))
    found = text_chunks(text)
    assert [heading for heading, _ in found] == ["Rules", "Rules"]
    assert [words(chunk) for _, chunk in found] == [452, 450]


@requirement("instructions:chunks")
def test_short_sections_are_joined_until_a_chunk_has_200_tokens() -> None:
    text = "".join(f"# Part {number}\n{paragraph(120)}\n" for number in range(1, 6))
    found = text_chunks(text)
    # 123 words each: one is short of 200 and takes the next; the fifth stands alone at the end and joins the last.
    assert [(heading, words(chunk)) for heading, chunk in found] == [("Part 1", 246), ("Part 3", 369)]


@requirement("instructions:chunks")
@pytest.mark.parametrize(
    "text",
    [
        "# One\n" + "\n\n".join(paragraph(90) for _ in range(30)) + "\n# Two\n" + paragraph(900) + ".",
        paragraph(5000),
        "x" * 30_000,
        "# A\n" + ". ".join(paragraph(250) for _ in range(9)),
        "\n".join(f"- {paragraph(40)}" for _ in range(100)),
    ],
    ids=["sections", "one line", "one word", "sentences", "list"],
)
def test_no_chunk_is_over_600_tokens_and_nothing_is_lost(text: str) -> None:
    found = fragments(text, "file a.md")
    assert max(fragment.tokens for fragment in found) <= 600
    if len(found) > 1:
        assert min(fragment.tokens for fragment in found[:-1]) >= 200
    kept = "".join("".join(fragment.text for fragment in found).split())
    assert kept == "".join(text.split())


@requirement("instructions:chunks")
def test_no_chunk_of_real_pages_is_over_600_tokens_as_a_tokenizer_counts_them() -> None:
    pages = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
    found = [each for page in pages for each in fragments(page.read_text(encoding="utf-8"), f"file {page.name}")]
    assert len(found) > 20
    assert max(tokens.count_tokens([each.text for each in found])) <= 600


def test_a_text_that_is_cut_reads_as_it_was_written() -> None:
    lines = [f"{number}. Do thing {number}. Then rest." for number in range(200)]
    found = text_chunks("\n".join(lines))
    assert [line for _, chunk in found for line in chunk.splitlines() if line] == lines


def test_a_heading_inside_a_code_block_is_none() -> None:
    text = "# Real\n```sh\n# a comment\n```\n" + paragraph(300) + "\n# Next\n" + paragraph(300)
    assert [heading for heading, _ in text_chunks(text)] == ["Real", "Next"]


@requirement("instructions:ids")
def test_ids_name_the_place_and_survive_an_edit_which_the_digest_tells() -> None:
    def text(word: str) -> str:
        return f"# Code style\n{paragraph(250, word)}\n# Commits\n{paragraph(250)}\n# Commits\n{paragraph(260)}"

    before, after = fragments(text("tabs"), "file a.md"), fragments(text("spaces"), "file a.md")
    ids = ["file a.md#code-style", "file a.md#commits", "file a.md#commits-2"]
    assert [each.id for each in before] == [each.id for each in after] == ids
    assert [one.digest == other.digest for one, other in zip(before, after, strict=True)] == [False, True, True]


def test_a_text_that_says_nothing_has_no_chunk() -> None:
    assert fragments(" \n\n", "x") == []
    assert [each.id for each in fragments("Hello.", "server git")] == ["server git"]


@requirement("instructions:unique")
def test_the_same_words_are_kept_once_from_where_they_count_most() -> None:
    foreign = Fragment("server x", "server x", "Be  kind.", upstream="x", digest=digest("Be  kind."))
    own = Fragment("file a", "file a", "Be kind.", "policy", digest=digest("Be kind."))
    other = Fragment("file b", "file b", "Be quick.", digest=digest("Be quick."))
    assert unique([foreign, own, other]) == [own, other]


def test_front_matter_is_read_and_left_out() -> None:
    assert front_matter("---\npriority: policy\nnot a pair\n---\nText\n") == ({"priority": "policy"}, "Text\n")
    assert front_matter("Text\n---\n") == ({}, "Text\n---\n")


def test_what_does_not_fit_is_cut_at_a_sentence_and_says_so() -> None:
    fragment = Fragment("a", "file a", "One two three. Four five six. Seven.", tokens=10)
    assert fit_fragment(fragment, 10) is fragment
    cut = fit_fragment(fragment, 9)
    assert cut is not None and (cut.text, cut.tokens, cut.id) == ("One two three. […]", 6, "a")
    assert fit_fragment(fragment, 2) is None


@requirement("instructions:found")
def test_relevance_is_the_share_of_what_a_query_says() -> None:
    shelf = FragmentIndex(
        [
            Fragment("commits", "file a", "Write commit messages in the imperative."),
            Fragment("food", "file b", "Order lunch before ten."),
        ]
    )
    (hit,) = shelf.find(["write a commit message"])
    assert (hit.fragment.id, hit.relevance) == ("commits", pytest.approx(1.0))
    # One of two words is there; among 20, a word that one has is worth ln(1 + 19.5 / 1.5), none ln(1 + 20.5 / .5).
    (half,) = shelf.find(["lunch meeting"])
    assert (half.fragment.id, half.relevance) == ("food", pytest.approx(2.6391 / (2.6391 + 3.7377), abs=1e-3))
    assert shelf.find(["weather"]) == []
    assert FragmentIndex().find(["weather"]) == []


def test_the_best_line_of_several_counts() -> None:
    shelf = FragmentIndex([Fragment("commits", "a", "Write commit messages."), Fragment("food", "b", "Order lunch.")])
    found = shelf.find(["something else", "commit", "order the lunch and the weather"])
    assert [hit.fragment.id for hit in found] == ["commits", "food"]
