"""`foretool misses --confused`: the pairs, what would tell them apart, and making that change."""

import json
from pathlib import Path

import pytest
from recorded_tasks import START, write_recorded

from foretool.server.commands.group import run
from foretool.server.config import loader
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, Match, ToolId

LONG_AGO = ["--since", "4000w"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = write_recorded(tmp_path, [("look up the letter of Ann", ["mail__find"])] * 3)
    with open_store(loader.load(path).storage) as store:
        for number in range(2):
            matches = (Match(ToolId("mail__send"), 1, 2.0), Match(ToolId("mail__find"), 2, 1.0))
            asked = Discovery("c", START + number, "look up \x1b[2J the letter", (), None, "high", matches, 90, 1.0)
            id = store.discoveries.add(asked)
            at = START + number + 0.5
            store.calls.record([Call("c", at, ToolId("mail__find"), "mail", "name", False, "ok", 1.0, True, "", id)])
    return path


def test_pairs_are_shown_with_what_would_tell_them_apart(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["misses", "--confused", *LONG_AGO, "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "1  mail__send was taken for mail__find" in out and "ranked above it 2 times" in out
    assert 'add to the description of mail__find: "Used for: look up' in out and "would have spared no miss" in out
    assert "\x1b" not in out


def test_a_change_is_made_and_taken_back(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    arguments = ["misses", "--confused", "1", *LONG_AGO, "--no-replay", "--fix", "--config", str(path)]
    assert run([*arguments, "--dry-run"]) == 0 and path.read_bytes() == before
    assert run(arguments) == 0
    entry = loader.load(path).servers["mail"].entry.tools["find"]
    assert entry.description.startswith("Finds messages") and "Used for: look up" in entry.description
    assert run(["misses", "--undo", "--config", str(path)]) == 0
    assert path.read_bytes() == before
    assert run([*arguments[:2], "9", *arguments[3:]]) == 1


def test_json_has_the_pairs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["misses", "--confused", *LONG_AGO, "--json", "--config", str(path)]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["taken"], told["needed"], told["ranked"]) == ("mail__send", "mail__find", 2)
    assert {each["fix"]["kind"] for each in told["fixes"]} == {"alias", "description"}
    assert all(each["effect"]["tasks"] >= 3 for each in told["fixes"])


def test_the_change_that_is_wanted_is_made(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["misses", "--confused", "1", *LONG_AGO, "--no-replay", "--fix", "--change", "alias", "--config", str(path)]
    assert run(given) == 0
    entry = loader.load(path).servers["mail"].entry.tools["find"]
    assert entry.name.startswith("find_") and not entry.description
    capsys.readouterr()
    assert run(given) == 1
    assert "there is no alias to suggest for pair 1" in capsys.readouterr().err
    assert run(["misses", "--confused", *LONG_AGO, "--no-replay", "--config", str(path)]) == 0
    assert "mail__send was taken for mail__find_" in capsys.readouterr().out


def test_no_pair_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_recorded(tmp_path, [])
    assert run(["misses", "--confused", "--config", str(path)]) == 0
    assert capsys.readouterr().out == "No two tools were taken for each other more than once in this time.\n"
