"""`foretool misses`: the ledger, and one miss in full."""

import json
from pathlib import Path

import pytest
from command_fakes import CALC, WEATHER, fill, write_config
from msgspec.structs import replace
from stored_records import MISS

from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.server.ledger.story import A_MISS
from foretool.storage.opening import open_store
from foretool.storage.records import UNNAMED


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = write_config(tmp_path)
    fill(path).close()
    return path


def test_misses_are_counted_by_tool(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["misses", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if "sky__forecast" in line)
    assert row.split()[:6] == ["sky__forecast", "1", "budget", "1", "1", "80"]
    assert "1 miss: 1 of tools. What the causes mean:" in out
    assert "`foretool misses 1` explains number 1." in out


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ([], 1),
        (["--cause", "budget"], 1),
        (["--cause", "rank"], 0),
        (["--since", "7d"], 0),
        (["--until", "7d"], 1),
        (["--client", "Cursor", "--tool", "fore", "--recovered", "yes", "--profile", ""], 1),
        (["--client", "codex"], 0),
        (["--server", "nobody"], 0),
    ],
)
def test_the_ledger_is_narrowed(
    arguments: list[str], count: int, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["misses", *arguments, "--json", "--config", str(path)]) == int(
        "codex" in arguments or "nobody" in arguments
    )
    told = json.loads(capsys.readouterr().out)
    assert (len(told["misses"]), told["total"], len(told["groups"])) == (count, count, count)


def test_an_empty_ledger_says_so_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    assert run(["misses", "--config", str(path)]) == 0
    assert capsys.readouterr().out == f"No misses so far. {A_MISS}\n"
    assert run(["misses", "--since", "7d", "--config", str(path)]) == 0
    assert capsys.readouterr().out.startswith("No miss fits these options.")


def test_a_time_that_is_none_is_refused(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["misses", "--since", "soon", "--config", str(path)]) == 2
    assert "expected a time like 7d, 12h or 30min, found 'soon'" in capsys.readouterr().err


def test_searches_without_a_call_are_counted_apart_from_hidden_tools(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vain = replace(MISS, tool="", noticed="search", cause="unknown", recovered="no", call=0, query="book a table")
    with open_store(path.parent / "foretool.sqlite3") as store:
        earlier = replace(vain, at=2.0, tool="sky__forecast", recovered="discovered", query="will I need a coat")
        store.calls.record([], [vain, earlier, replace(vain, at=3.0, noticed="nothing_found")])
    assert run(["misses", "--config", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "4 misses: 1 of tools, 3 of searches after which no tool was called." in out
    assert run(["misses", "--json", "--config", str(path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["total"], told["hidden"], told["searches"]) == (4, 1, 3)
    assert [(each["name"], each["count"]) for each in told["groups"]] == [("sky__forecast", 1), ("", 3)]
    assert run(["tools", "--json", "--config", str(path)]) == 0
    rows = {each["name"]: each["misses"] for each in json.loads(capsys.readouterr().out)["tools"]}
    assert rows["sky__forecast"] == 1, "tools and misses count the same"


def test_a_call_without_a_name_is_no_search(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nameless = replace(MISS, tool="", noticed="unknown_name", cause="unknown", recovered="no", call=0, query="")
    vain = replace(nameless, noticed="search", query="book a table")
    with open_store(path.parent / "foretool.sqlite3") as store:
        store.calls.record([], [nameless, vain])
    assert run(["misses", "--json", "--config", str(path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["count"]) for each in told["groups"]][1:] == [('the name ""', 1), ("", 1)]
    assert run(["misses", "2", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith('2  the name ""') and 'called the name "", which no server has' in out


def test_a_name_that_only_the_profile_lacks_is_counted_as_a_tool(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change = "add 'calc' to the servers of profile 'work'"
    left_out = replace(MISS, tool="calc__add", noticed="unknown_name", cause="denied", change=change, recovered="no")
    with open_store(path.parent / "foretool.sqlite3") as store:
        store.calls.record([], [left_out, replace(left_out, tool="calc__ad", cause="unknown", change=UNNAMED)])
    assert run(["misses", "--config", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "3 misses: 2 of tools, 1 of a name that no server has." in out and "the profile excludes its server" in out
    assert run(["misses", "2", "--config", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "denied: the profile does not have its server" in out and "needed calc__add, and could not call it" in out


def test_tools_stand_before_the_many_searches_that_led_to_no_call(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(load(path).storage) as store:
        missed = store.calls.misses()[0]
        search = replace(missed, tool="", noticed="search", cause="unused", query="something", call=0, id=0)
        store.calls.record([], [replace(search, at=missed.at + number) for number in range(1, 5)])
    assert run(["misses", "--all", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.index(missed.tool) < out.index("Searches after which no tool was called:") < out.index("something")
    assert "unused: the search found tools, and the client called none of them" in out


@pytest.mark.parametrize(
    ("option", "name", "status", "said"),
    [
        ("--profile", "nosuch", 2, "no profile 'nosuch'; it has: none"),
        ("--tool", "sky__forecst", 1, "no tool fits 'sky__forecst'; did you mean \"sky__forecast\"?"),
        ("--tool", "git__*", 1, "no tool fits 'git__*'"),
        ("--tool", "add", 0, ""),
    ],
)
def test_a_filter_on_a_name_that_nothing_has_says_so(
    option: str, name: str, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path)
    with fill(path) as store:
        store.catalog.save_exposed_names({WEATHER: ("sky", "forecast"), CALC: ("calc", "add")})
    assert run(["misses", option, name, "--config", str(path)]) == status
    assert said in " ".join(capsys.readouterr().err.split())
