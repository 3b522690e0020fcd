"""The figures of the first page, without HTML."""

from __future__ import annotations

import re
import threading
import time
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path

import pytest
from browsing import HOME, browser, make_door
from command_fakes import fill, write_config
from msgspec.structs import replace
from stored_records import CALL, MISS

from foretool.desk.page import overview
from foretool.desk.page.viewers import Viewer
from foretool.server.config.loader import load
from foretool.server.recording.costs import Costs, add_everything
from foretool.storage.records import SHELL_CLIENT, ProfileCount

pytestmark = pytest.mark.anyio

ALL = Viewer("key")


def test_the_bound_of_a_share_is_wilsons() -> None:
    assert overview.wilson(0, 0) is None
    low, high = overview.wilson(2, 20) or (0, 0)
    assert (round(low, 4), round(high, 4)) == (0.0279, 0.3010)  # Newcombe 1998, by hand
    assert overview.wilson(0, 10) == (0.0, pytest.approx(0.2775, abs=1e-4))
    assert overview.wilson(12, 10) == (pytest.approx(0.7225, abs=1e-4), pytest.approx(1.0))


@pytest.mark.parametrize(
    ("figures", "lists_all", "said"),
    [
        ((0, 0, 300), True, ("Nothing yet", "")),
        ((90, 18_515, 1_845), False, ("90% saved", "first list takes 1,845 tokens; all 90 tools would take 18,515.")),
        ((90, 629_958, 165_493), False, ("74% saved", "takes 165,493 tokens")),
        ((9, 7_642, 7_973), True, ("Nothing", "so few that all are listed: 7,973 tokens, 331 of them for foretool's")),
        ((2, 120, 331), False, ("Nothing", "first list takes 331 tokens; all 2 tools would take 120.")),
        ((900, 900_000, 1_000), False, ("99% saved", "takes 1,000 tokens; all 900 tools would take 900,000.")),
    ],
)
def test_what_the_first_list_saves_reads_as_what_is_meant(
    figures: tuple[int, int, int], lists_all: bool, said: tuple[str, str]
) -> None:
    headline, sentence = overview.say_saved(*figures, lists_all=lists_all)
    assert headline == said[0] and said[1] in sentence


@pytest.mark.parametrize(("tasks", "said"), [(15, "464,465 tokens saved"), (50, "74% saved"), (51, "Nothing")])
def test_a_rate_is_shown_from_as_many_tasks_as_the_page_says(tmp_path: Path, tasks: int, said: str) -> None:
    path = write_config(tmp_path, list_tokens=1)
    fill(path).close()
    page = overview.read_overview(load(path), ALL)
    read = 700_000 if said == "Nothing" else 165_493
    costs = Costs(
        "", "", tasks=tasks, calls=99, read_tokens=read, full_tokens=629_958, rated_tasks=tasks, rated_calls=99,
        rated_read_tokens=read, rated_full_tokens=629_958,
    )  # fmt: skip
    assert replace(page, total=costs).saved[0] == said


def test_a_day_has_what_was_listed_found_and_missed_and_days_without_a_call_are_there(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    noon = datetime.now().replace(hour=0, minute=0, second=30, microsecond=0)
    today, before = noon.timestamp(), (noon - timedelta(days=3)).timestamp()
    with fill(path) as store:
        calls = [replace(CALL, session="s1", at=before + number, hidden=number == 0) for number in range(3)]
        store.calls.record([*calls, replace(CALL, session="s1", at=today, hidden=False)])
        lost = replace(MISS, session="s1", at=before + 9, recovered="no", call=0)
        store.calls.record([], [replace(lost, recovered="discovered"), lost, replace(lost, at=before - 30 * 86_400)])
    page = overview.read_overview(load(path), ALL)
    days = [(day.day.isoformat(), day.listed, day.named, day.found, day.missed) for day in page.days]
    assert len(days) == overview.DAYS and days[-1] == (noon.date().isoformat(), 1, 0, 0, 0)
    assert days[-4] == ((noon.date() - timedelta(days=3)).isoformat(), 2, 0, 1, 1)
    assert [day.needs for day in page.days].count(0) == overview.DAYS - 2
    assert (page.most, page.misses, page.lost) == (4, 2, 1)
    month = overview.read_overview(load(path), ALL, overview.MONTH)
    assert len(month.days) == month.days_back == 30 and month.days[-15:][1:] == page.days


def test_each_need_of_a_day_counts_once_however_a_call_of_it_ended(tmp_path: Path) -> None:
    path, now = write_config(tmp_path), time.time()
    with fill(path) as store:
        ran, lost = replace(CALL, session="s1", at=now - 60, hidden=False), replace(MISS, session="s1", at=now - 60)
        refused = replace(ran, hidden=True, outcome="refused")
        denied = replace(lost, noticed="bridge", cause="denied", recovered="no", call=1)
        store.calls.record([refused], [denied])
        store.calls.record([refused, ran, replace(ran, outcome="tool_error", at=now - 50)])
        found = replace(lost, noticed="discovery", recovered="discovered", call=1)
        store.calls.record([replace(ran, hidden=True)], [found])
        search = replace(lost, tool="", noticed="search", cause="unused", recovered="no", call=0)
        name = replace(lost, tool="order_pizza", noticed="unknown_name", recovered="suggested", call=0)
        store.calls.record([], [search, name])
        calls, misses = store.calls.recent(-1), store.calls.misses(0.0)
    page = overview.read_overview(load(path), ALL)
    assert (page.days[-1].listed, page.days[-1].named, page.days[-1].found, page.days[-1].missed) == (2, 0, 1, 2)
    ran_at_all = [each for each in calls if each.outcome != "refused" and each.at > now - 90]
    assert page.days[-1].needs == len(ran_at_all) + sum(each.recovered == "no" for each in misses if each.at > now - 90)
    assert page.calls == "5 calls (2 refused, 1 failed)"
    assert (page.kinds, page.misses, page.lost) == (
        "2 of tools, 1 of a search after which no tool was called, 1 of a name that no server has", 4, 2,
    )  # fmt: skip
    assert sum(each.count for each in page.most_missed) == page.misses
    assert {name: each.misses for name, each in page.clients.items()} == {"cursor": page.misses}


def test_what_is_not_named_of_many_misses_is_counted_as_others(tmp_path: Path) -> None:
    path, now = write_config(tmp_path), time.time()
    with fill(path) as store:
        for number in range(9):
            missed = replace(MISS, session="s1", tool=f"sky__t{number}", at=now - 60, call=0)
            store.calls.record([], [missed] * (number + 1))
    page = overview.read_overview(load(path), ALL)
    named = [(each.name, each.count, each.address) for each in page.most_missed]
    assert named[0] == ("sky__t8", 9, "misses?tool=sky__t8") and named[-1] == ("4 others", 10, "misses")
    assert sum(each.count for each in page.most_missed) == page.misses == 45


def test_the_overview_of_a_new_user_is_empty_and_names_the_servers(tmp_path: Path) -> None:
    page = overview.read_overview(load(write_config(tmp_path)), ALL)
    assert (page.bound, page.days, page.missed, page.proxies) == (None, (), [], 0)
    assert [(row.name, row.condition) for row in page.servers] == [("calc", "new"), ("sky", "new")]


def test_one_profile_has_its_own_servers_and_no_figures_of_others(tmp_path: Path) -> None:
    path = write_config(tmp_path, profiles={"work": {"servers": ["calc"]}})
    fill(path).close()
    page = overview.read_overview(load(path), Viewer("key", "work", may_decide=False))
    assert [(row.name, row.runs) for row in page.servers] == [("calc", "")]
    assert (page.tools, page.total.calls, page.missed, page.todo) == (1, 0, [], [])


async def test_misses_of_tools_stand_apart_from_searches_and_each_link_says_what_it_opens(tmp_path: Path) -> None:
    path, now = write_config(tmp_path), time.time()
    with fill(path) as store:
        tool = replace(MISS, session="s1", at=now - 60, call=0)
        search = replace(tool, tool="", noticed="search", cause="unused", recovered="no")
        found = replace(search, noticed="nothing_found", cause="unknown")
        store.calls.record([], [tool, replace(tool, cause="rank"), search, search, found])
    async with browser(make_door(path)) as client:
        page = (await client.get("/")).text
    _, missed, _ = read_answers(page)
    assert missed[:2] == [
        "5 misses",
        "2 of tools, 3 of searches after which no tool was called. After 3 of these 5 the client called nothing of the"
        " kind. In all: 0 calls.",
    ]
    links = re.findall(r'href="\./misses([^"]*)">([^<]*)</a> (\d+ times?)', page)
    assert links == [
        (f"?tool={MISS.tool}", MISS.tool, "2 times"),
        ("?cause=unused", "a search after which no tool was called (unused)", "2 times"),
        ("/6", "a search after which no tool was called (unknown)", "1 time"),
    ]


async def test_the_first_screen_says_what_was_saved_what_was_missed_and_what_to_do(tmp_path: Path) -> None:
    path, now = write_config(tmp_path), time.time()
    async with browser(make_door(path)) as client:
        assert read_answers((await client.get("/")).text) == [
            ["Nothing yet", "What models read is estimated from the first call of a tool on."],
            ["Nothing yet", "This fills when a model needs a tool that its list lacks."],
            ["Run foretool doctor", "it starts calc and sky once, to learn what tools there are"],
        ]
    with fill(path) as store:
        store.calls.record([replace(CALL, at=now - 60)], [replace(MISS, session=CALL.session, at=now - 60)])
    async with browser(make_door(path)) as client:
        saved, missed, todo = read_answers((await client.get("/")).text)
    # The list that this client had took more than all tools, which is said as it is.
    assert saved[0] == "Nothing", "what is sure comes first"
    assert re.fullmatch(r"A client's first list takes \d+ tokens; all 3 tools would take 120\.", saved[1])
    assert saved[2] == (
        "In 1 call models read about 300 tokens of lists, answers and hints. With all tools listed as they"
        " were then, the same call would have read 120: foretool cost 180 more."
    )
    assert missed[:2] == ["1 miss", "1 of tools. In all: 1 call."]
    assert todo[0] == "Nothing"


def read_answers(html: str) -> list[list[str]]:
    """Return the texts of the three answers, without their headings."""
    cards = re.findall(r'<section class="card">(.*?)</section>', html, re.DOTALL)
    texts = [[re.sub(r"\s+", " ", unescape(each)).strip() for each in re.split(r"<[^>]+>", card)] for card in cards]
    return [[each for each in found if each][1:] for found in texts]


@pytest.mark.anyio
async def test_a_log_that_is_not_added_up_is_added_up_beside_the_page_which_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "AT_ONCE", 3)
    path, now = write_config(tmp_path), time.time()
    with fill(path) as store:
        store.calls.record([replace(CALL, session="s9", at=now - 9000 + number) for number in range(8)])
        waiting = store.costs.waiting()
    page = overview.read_overview(load(path), ALL)
    assert waiting >= 8 and (page.waiting, page.total.calls) == (waiting, 0)
    async with browser(door := make_door(path)) as client:
        first = (await client.get(f"{HOME}{door.place}/")).text
        for thread in threading.enumerate():
            if getattr(thread, "_target", None) is add_everything:
                thread.join(30.0)
        second = (await client.get(f"{HOME}{door.place}/")).text
    assert f"{waiting} calls are still being added up" in first and "still being added up" not in second
    page = overview.read_overview(load(path), ALL)
    assert page.waiting == 0 and page.total.calls == 8
    assert overview.read_overview(load(path), Viewer("key", "", may_decide=False)).waiting == 0


def test_what_foretool_call_did_is_counted_for_no_profile() -> None:
    counts = [ProfileCount(3600.0, client, 2, 0, 1, 0) for client in ("cursor", SHELL_CLIENT)]
    assert [(each.client, each.calls, each.misses) for each in overview.count_profile(counts)] == [("cursor", 2, 1)]
