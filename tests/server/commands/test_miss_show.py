"""`foretool misses NUMBER`: one miss, and the conversation around it in order."""

import json
from pathlib import Path

import pytest
from command_fakes import CALC, fill, write_config
from msgspec.structs import replace

from foretool.server.commands.group import run
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, Prompt


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = write_config(tmp_path)
    fill(path).close()
    return path


def call(session: str, at: float, tool: str = CALC, *, hidden: bool = False) -> Call:
    return Call(session, at, tool, "calc", "name", hidden, "ok", 1.0, True, "")  # type: ignore[arg-type]


def test_one_miss_is_told_with_all_it_points_at(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["misses", "1", "--config", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for said in (
        "1 sky__forecast",
        "client cursor 1.2, legacy, stdio",
        "task weather in Paris",
        "cause budget: it was a candidate for the list",
        "rank number 1 of 3 ranked tools",
        "would have helped pin sky__forecast",
        "recovered discovered: a search found it",
        "cost 1 turn, 80 tokens",
        "in the next list yes",
        "call ok after 12 ms, by name",
        "the client got a list of 1 tool (frozen) [300 tokens]",
        'the client searched for "weather in Paris": found sky__forecast (confidence high) [80 tokens]',
    ):
        assert said in out, said


def test_an_unknown_miss_is_status_1(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["misses", "9", "--config", str(path)]) == 1
    assert capsys.readouterr().err.startswith("foretool: misses: there is no miss 9; ")


def test_the_conversation_is_told_in_order(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(path.parent / "foretool.sqlite3") as store:
        store.tasks.add_prompt(Prompt(100.5, "how warm is it in Paris?"))
        store.calls.record([call("s1", 104.0), call("other", 103.5)])
    assert run(["misses", "1", "--json", "--config", str(path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(step["kind"], step["what"], step["tokens"]) for step in told["story"]] == [
        ("prompt", "how warm is it in Paris?", 0),
        ("list", "got a list of 1 tool (frozen)", 300),
        ("search", 'searched for "weather in Paris": found sky__forecast (confidence high)', 80),
        ("miss", "needed sky__forecast, which it did not see", 80),
        ("call", "called sky__forecast: ok, not defined in its list", 0),
        ("call", "called calc__add: ok", 0),
    ]
    assert told["listed_now"] is True
    assert run(["misses", "1", "--config", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert 'the user asked: "how warm is it in Paris?"' in out
    assert "now the client needed sky__forecast, which it did not see" in out


def test_of_a_search_in_vain_the_tool_that_was_called_after_it_is_told_as_that(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(path.parent / "foretool.sqlite3") as store:
        known = store.calls.miss(1)
        assert known is not None
        vain = replace(known, at=105.0, tool="", noticed="nothing_found", cause="gate", rank=0, recovered="no", call=0)
        store.calls.record([], [vain])
        store.calls.record([call("s1", 105.5)])
    assert run(["misses", "2", "--config", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "called after it calc__add, which is not in the next list" in out


def test_a_hostile_text_breaks_no_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(path.parent / "foretool.sqlite3") as store:
        store.tasks.add_prompt(Prompt(102.5, "ask\n  now           the client did \x1b[2J nothing"))
    assert run(["misses", "1", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and not any(line.startswith("  now           the client did") for line in out.splitlines())


def test_only_the_miss_itself_is_now_and_what_came_before_it_is_told_as_before(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(path.parent / "foretool.sqlite3") as store:
        known = store.calls.miss(1)
        assert known is not None
        unknown = replace(known, noticed="unknown_name", cause="unknown", recovered="no", call=0, discovery=0, tokens=0)
        for at, name in ((101.0, "calc__ad"), (113.0, "calc__addd")):
            store.calls.record([], [replace(unknown, at=at, tool=name)])
        store.discoveries.add(Discovery("s1", 101.0, "the moon", (), None, "none", (), 9, 1.0))
        store.calls.record([call("s1", 101.5)])
    assert run(["misses", "1", "--config", str(path)]) == 0
    story = capsys.readouterr().out.partition("What happened:")[2].splitlines()
    told = [line.strip().partition("the client ")[::2] for line in story if "the client " in line]
    assert [(side.strip(), " ".join(what.split()[:2])) for side, what in told] == [
        ("2 s before", "got a"),
        ("2 s before", "searched for"),
        ("2 s before", "called calc__ad,"),
        ("2 s before", "called calc__add:"),
        ("1 s before", "searched for"),
        ("now", "needed sky__forecast,"),
        ("just after", "called sky__forecast:"),
        ("10 s after", "called calc__addd,"),
    ]
