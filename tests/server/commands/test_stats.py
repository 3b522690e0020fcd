"""`foretool stats`: misses, discovery turns and tokens, by day and client."""

import json
import time
from pathlib import Path

import pytest
from command_fakes import CALC, WEATHER, fill, write_config
from rich.console import Console

from foretool.retrieval.tokens import estimate
from foretool.server.commands import output, stats
from foretool.server.commands.group import run
from foretool.server.commands.stats import LONGEST_LINE, by_day, sparkline
from foretool.server.recording.costs import Costs
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


def test_what_a_time_cost_is_given_whole_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stats", "--json", "--config", str(written(tmp_path))]) == 0
    told = json.loads(capsys.readouterr().out)
    (day,) = told["days"]
    assert (told["full_list_tokens"], told["total"]["calls"], day["tasks"]) == (120, 1, 1)
    assert (day["misses"], day["miss_rate"], day["hidden_per_task"], day["discoveries_per_task"]) == (0, 0.0, 1.0, 0.0)
    assert (day["read_per_task"], day["full_per_task"], day["saved"]) == (40.0, 120.0, pytest.approx(2 / 3))


def test_every_day_and_client_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    assert run(["stats", "--since", "3000w", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "cursor" in out and "codex" in out and "full list" in out and "\x1b" not in out
    assert "in all: 2 tasks, 2 calls, missed 50%; per task: 0.50 discovery turns, 1.00 hidden calls" in out
    assert "\ncursor: 1 task, 1 call, missed 100%" in out


def test_a_narrow_terminal_gets_cards_that_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "console", lambda *, error=False: Console(width=80, markup=False, highlight=False))
    assert run(["stats", "--since", "3000w", "--config", str(written(tmp_path))]) == 0
    out = capsys.readouterr().out
    cards = out[: out.index("\ncodex")]
    assert "  40 tokens read, 120 with the full list: 67% saved" in cards
    assert "│" not in cards and max(map(len, out.splitlines())) <= 80


def test_an_empty_time_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    assert run(["stats", "--config", str(path)]) == 0
    assert "Nothing is on record" in capsys.readouterr().out


def test_what_the_clients_own_search_would_have_taken_is_estimated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["stats", "--json", "--config", str(written(tmp_path))]) == 0
    (day,) = json.loads(capsys.readouterr().out)["days"]
    names = sum(map(estimate, (CALC, WEATHER, "calc__subtract")))
    # The names at both turns, the one that searches too, and five definitions of 40 tokens at the call.
    assert day["own_search_tokens"] == 2 * names + 5 * 40
    assert day["saved_of_own_search"] == pytest.approx(1 - 40 / day["own_search_tokens"])


@pytest.mark.parametrize(
    ("values", "line"),
    [([0.0, 0.5, 1.0], "▁▅█"), ([None, 2.0, None, 1.0], " █ ▅"), ([0.0, 0.0], "▁▁"), ([-1.0, 1.0], "▁█"), ([], "")],
)
def test_a_line_of_bars_stands_between_nothing_and_the_highest(values: list[float | None], line: str) -> None:
    assert sparkline(values) == line


def test_each_day_has_a_bar_also_one_without_calls_and_many_days_share_one() -> None:
    rows = [
        Costs("2026-11-04", "a", calls=2, misses=1),
        Costs("2026-11-01", "a", calls=2),
        Costs("2026-11-01", "b", calls=2),
    ]
    assert [(each.calls, each.misses) for each in by_day(rows)] == [(4, 0), (0, 0), (0, 0), (2, 1)]
    long_ago = [*rows, Costs("2026-05-01", "a", calls=1)]
    assert len(by_day(long_ago)) <= LONGEST_LINE and sum(each.calls for each in by_day(long_ago)) == 7


def test_more_than_was_compared_with_is_said_as_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path)
    monkeypatch.setattr(stats, "estimate_own_search", lambda rows, names, tokens: [
        setattr(row, "own_search_tokens", 10 * row.calls) for row in rows
    ])  # fmt: skip
    assert run(["stats", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "120 with the full list: 67% saved; 10 with the client's own search: 300% more read" in out
