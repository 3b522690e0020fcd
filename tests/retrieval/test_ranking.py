from __future__ import annotations

import time

import pytest

from foretool.retrieval.ranking import MAX_LINES, MOST_SEARCHED, Ranked, Ranking, Reasons, split_needs, task_lines
from foretool.storage.records import ToolId


def test_the_rank_of_a_tool_starts_at_one() -> None:
    ranking = Ranking((Ranked(ToolId("a"), 2.0), Ranked(ToolId("b"), 1.0)), total=2)
    assert [ranking.rank_of(ToolId(name)) for name in "abc"] == [1, 2, 0]


def test_lines_beyond_the_most_are_joined_to_the_last() -> None:
    lines = [str(number) for number in range(MAX_LINES + 3)]
    assert split_needs(["", *lines]) == [*lines[: MAX_LINES - 1], "\n".join(lines[MAX_LINES - 1 :])]


def test_a_paragraph_makes_all_lines_one_story() -> None:
    story = "word " * 41
    assert split_needs(["a line", "", story]) == [f"a line\n{story}"]


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("what is https://www.github.com/a/b?c=d about", "what is this url github web page about"),
        ("see www.bbc.co.uk/x, then go", "see this url bbc web page then go"),
        ("open http://me:secret@127.0.0.1:80/", "open this url  web page"),
        ("http://localhost:3000 is slow", "this url localhost web page is slow"),
        ("读 https://example.cn/news这篇文章", "读 this url example web page这篇文章"),
        ("https://", "this url  web page"),
        ("awww.cute, and the www. prefix", "awww.cute, and the www. prefix"),
        ("nothing at all: http, https, www", "nothing at all: http, https, www"),
    ],
)
def test_of_a_web_address_the_name_of_its_site_is_searched(line: str, read: str) -> None:
    assert split_needs([line]) == [read]


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("read /home/me/slack/april.md.", "read the file april.md"),
        ("open ~/notes/git/log.txt, please", "open the file log.txt, please"),
        ("what does src/memory/search.py do?", "what does the file search.py do?"),
        (r"list C:\Users\anna\Desktop", "list the path Desktop"),
        ("is ./.env in /etc?", "is the file .env in the path etc?"),
        ("(../a/b/)", "(the path b)"),
        ("/review this", "/review this"),
        ("issues and/or pulls of psf/requests, 1/2 or 24/7", "issues and/or pulls of psf/requests, 1/2 or 24/7"),
        ("close </div> at 5 / 6", "close </div> at 5 / 6"),
        ("issues of vercel/next.js, dotnet/docs.NET", "issues of vercel/next.js, dotnet/docs.NET"),
        ("50 €/month or C++/Rust", "50 €/month or C++/Rust"),
        ("app/src/index.js, not src/a.js/b.md", "the file index.js, not the file b.md"),
        ("see https://example.com/a/b.html in /tmp/x", "see this url example web page in the path x"),
    ],
)
def test_of_a_path_the_last_name_is_searched(line: str, read: str) -> None:
    assert split_needs([line]) == [read]


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("what is the state of #4512?", "what is the state of the issue #4512?"),
        ("close #1 and (OPS-341).", "close the issue #1 and (the issue OPS-341)."),
        ("was steht in #312", "was steht in the issue #312"),
        ("who wrote 9b1d3e4f?", "who wrote the commit 9b1d3e4f?"),
        ("is PR #12 or issue ENG-7 in commit a3f9c21", "is PR #12 or issue ENG-7 in commit a3f9c21"),
        ("order #12 of UTF-8, SHA-256, Q3-2024", "order #12 of UTF-8, SHA-256, Q3-2024"),
        ("UTC-5, SARS-2, CO-2 and a USB-3 cable", "UTC-5, SARS-2, CO-2 and a USB-3 cable"),
        ("color: #333, #main, # 12, C#7, 1234567, accessed", "color: #333, #main, # 12, C#7, 1234567, accessed"),
        ("id 550e8400-e29b-41d4-a716-446655440000", "id 550e8400-e29b-41d4-a716-446655440000"),
    ],
)
def test_a_reference_that_says_nothing_of_itself_is_searched_as_what_it_is(line: str, read: str) -> None:
    assert split_needs([line]) == [read]


def test_a_task_of_slashes_is_read_at_once() -> None:
    started = time.process_time()
    for text in (
        "a/" * 2_000, "/a" * 2_000, "~/" * 2_000, "http://" * 600, "./" * 2_000 + "x.y", "a" * 4_000 + "/",
        "a/" + "." * 4_000, "a/.j" * 1_000, "a/b.js/" * 600,
        "#1" * 2_000, "#1 " * 1_300, "A-" * 2_000, "a1" * 2_000, "ab " * 1_300, "A" * 4_000,
    ):  # fmt: skip
        split_needs([text])
    assert time.process_time() - started < 0.5


def test_reasons_are_found_at_the_first_look_and_once() -> None:
    looks: list[tuple[int, ToolId]] = []

    def find(slot: int, tool: ToolId) -> list[str]:
        looks.append((slot, tool))
        return ["name", "used before"]

    reasons = Reasons(find, 3, ToolId("a"))
    assert looks == []
    assert "name" in reasons
    assert (list(reasons), reasons[0], len(reasons), bool(reasons)) == (["name", "used before"], "name", 2, True)
    assert Ranked(ToolId("a"), 1.0, {}, reasons) == Ranked(ToolId("a"), 1.0, {}, ("name", "used before"))
    assert looks == [(3, "a")]


@pytest.mark.parametrize(
    ("task", "lines"),
    [
        ("read the list, add eggs and commit it\nin git", ["read the list, add eggs and commit it in git"]),
        ("lies die Liste\n\n  mit excel \n", ["lies die Liste mit excel"]),
        ("find the page\nsave it to my notes", ["find the page", "save it to my notes"]),
        ("Say what you see.\non screen", ["Say what you see.", "on screen"]),
        ("weather\nscreenshot", ["weather", "screenshot"]),
        ("in git", ["in git"]),
        ("", []),
    ],
)
def test_words_that_only_say_where_go_on_with_the_line_before_them(task: str, lines: list[str]) -> None:
    assert list(task_lines(task)) == lines


def test_of_a_long_task_both_ends_are_read() -> None:
    pasted = "line of a log " * 1_400
    lines = task_lines(f"find the cause\n{pasted}\nand send a mail")
    assert lines[0] == "find the cause"
    assert lines[-1].endswith("and send a mail") or lines[-1] == "and send a mail"
    assert sum(map(len, lines)) <= MOST_SEARCHED
