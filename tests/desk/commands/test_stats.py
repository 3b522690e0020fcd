"""`foretool status --stats`: misses, discovery turns and tokens, by day and client."""

import json
import time
from pathlib import Path

import pytest
from command_fakes import CALC, WEATHER, fill, write_config
from requirements import requirement
from rich.console import Console

from foretool.desk.commands import stats
from foretool.desk.commands.stats import by_span, sparkline
from foretool.server.commands import output
from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.server.recording.costs import Costs
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Exposure, SessionRecord


def written(tmp_path: Path) -> Path:
    path = write_config(tmp_path)
    now = time.time()
    with fill(path) as store:
        store.sessions.begin(SessionRecord("s2", "codex\x1b[2J", "1", "modern", "stdio", "", now))
        store.sessions.add_exposure(Exposure("s2", now - 9, "frozen", 1, (CALC,), 30, "list"))
        store.sessions.add_exposure(Exposure("s2", now - 8, "frozen", 1, (WEATHER,), 10, "hint"))
        store.calls.record([Call("s2", now - 7, WEATHER, "sky", "bridge", True, "ok", 1.0, True, "")])
    return path


def test_what_a_time_cost_is_given_whole_as_json_and_no_rate_comes_from_one_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["status", "--stats", "--json", "--config", str(written(tmp_path))]) == 0
    told = json.loads(capsys.readouterr().out)
    (day,) = told["days"]
    assert (told["full_list_tokens"], told["total"]["calls"], day["tasks"]) == (120, 1, 1)
    assert (day["misses"], day["hidden"], day["read_tokens"], day["full_tokens"]) == (0, 1, 40, 120)
    rates = ("miss_rate", "saved", "saved_of_own_search", *(name for name in day if name.endswith("_per_task")))
    assert {day[name] for name in rates} == {None}


def test_every_day_and_client_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    assert run(["status", "--stats", "--since", "3000w", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert (
        "cursor" in out
        and "codex" in out
        and "A list of all tools takes " in out
        and "\x1b" not in out
        and "%" not in out
    )
    assert (
        "In 2 calls and 1 search models read about 720 tokens of lists, answers and hints. With all tools listed as"
        " they were then, and no search, the same calls would have read 240: foretool cost 480 more."
    ) in " ".join(out.split())
    assert "in all: 2 tasks, 2 calls, 1 miss, 1 search, " in out
    assert "\ncursor: 1 task, 1 call, 1 miss, 1 search, " in out
    assert "(rates take 50 tasks whose end is known; so far " in out


def test_a_narrow_terminal_gets_cards_that_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "console", lambda *, error=False: Console(width=80, markup=False, highlight=False))
    assert run(["status", "--stats", "--since", "3000w", "--config", str(written(tmp_path))]) == 0
    out = capsys.readouterr().out
    cards = " ".join(out[: out.index("\ncodex")].split())
    assert "1 task, 1 call, 0 misses, 0 searches, 40 tokens of lists, answers and hints read" in cards
    assert "│" not in cards and max(map(len, out.splitlines())) <= 80


def test_a_narrow_terminal_says_once_what_one_day_of_one_client_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "console", lambda *, error=False: Console(width=80, markup=False, highlight=False))
    assert run(["status", "--stats", "--config", str(written(tmp_path))]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("1 task, 1 call, 0 misses, 0 searches, 40 tokens") == 1


def test_a_client_that_did_nothing_has_no_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    with open_store(load(path).storage) as store:
        store.sessions.begin(SessionRecord("s3", "peek", "1", "modern", "stdio", "", time.time()))
        store.sessions.add_exposure(Exposure("s3", time.time(), "frozen", 1, (CALC,), 30, "list"))
    assert run(["status", "--stats", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "Called and searched nothing: peek." in out and out.count("peek") == 1


def test_an_empty_time_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    assert run(["status", "--stats", "--config", str(path)]) == 0
    assert "Nothing is on record" in capsys.readouterr().out


def test_what_the_clients_own_search_would_have_taken_is_estimated_for_the_tasks_that_rates_come_from() -> None:
    row = Costs("2026-11-04", "a", calls=9, rated_tasks=50, rated_calls=100, rated_read_tokens=9_000)
    stats.estimate_own_search([row], 30, 40.0)
    # The names at all turns, those that search too, and five definitions of 40 tokens at each call.
    assert row.own_search_tokens == 30 * 150 + 5 * 40 * 100
    assert row.saved_of_own_search == pytest.approx(1 - 9_000 / row.own_search_tokens)


@pytest.mark.parametrize(
    ("values", "line"),
    [([0.0, 0.5, 1.0], "▁▅█"), ([None, 2.0, None, 1.0], " █ ▅"), ([0.0, 0.0], "▁▁"), ([-1.0, 1.0], "▁█"), ([], "")],
)
def test_a_line_of_bars_stands_between_nothing_and_the_highest(values: list[float | None], line: str) -> None:
    assert sparkline(values) == line


def test_a_bar_stands_for_as_many_days_as_rates_take_and_many_bars_share_one() -> None:
    few = [Costs(f"2026-11-0{day}", "a", calls=day, rated_tasks=20, rated_calls=20) for day in (4, 1, 2, 3, 5)]
    assert [each.calls for each in by_span(few)] == [15]
    rows = [Costs(f"2026-{month:02}-{day:02}", "a", rated_tasks=50) for month in range(1, 6) for day in range(1, 29)]
    assert len(by_span(rows)) <= 45 and sum(each.rated_tasks for each in by_span(rows)) == 50 * 140
    assert [each.rated_tasks for each in by_span([*rows[:2], few[0]])] == [50, 70]


@requirement("rates:fifty-tasks")
def test_more_than_was_compared_with_is_said_as_more_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Costs("2026-11-04", "a", tasks=50, calls=60, misses=30, discoveries=40, read_tokens=9_000, rated_tasks=50,
                rated_calls=60, rated_misses=15, rated_hidden=30, rated_discoveries=40, rated_read_tokens=9_000,
                rated_full_tokens=6_000)  # fmt: skip
    monkeypatch.setattr(stats, "read_costs", lambda *arguments: [row])
    assert run(["status", "--stats", "--config", str(written(tmp_path))]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "of the calls of 50 tasks 25% missed; per task: 0.80 searches, 0.60 hidden calls, 180 tokens read" in out
    assert "120 with the full list: 50% more read, because the list at each turn and the searches took" in out
