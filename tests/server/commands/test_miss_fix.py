"""`foretool misses NUMBER --fix`: shows each change with its effect, makes one, keeps comments, and takes it back."""

import io
from pathlib import Path

import pytest
from command_fakes import fill, write_config
from msgspec.structs import replace
from recorded_tasks import START, write_recorded
from stored_records import MISS

from foretool.server.commands import one_miss
from foretool.server.commands.group import run
from foretool.server.config import loader
from foretool.storage.opening import open_store
from foretool.storage.records import ToolId


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Number 2 is of a tool that the list lacks, 3 of one that a rule denies."""
    path = write_config(tmp_path)
    with fill(path) as store:
        missed = replace(MISS, tool="sky__moon", noticed="call", cause="rank", query="", call=0)
        denied = replace(missed, tool="calc__add", cause="denied", change='remove "add" from "deny" of server \'calc\'')
        store.calls.record([], [missed, denied])
    text = path.read_text().replace('{"mcpServers"', '{ // mine\n"mcpServers"', 1)
    path.write_text(text.replace('"command": "calc"', '"command": "calc", "deny": ["add"]'))
    return path


def fix(path: Path, *arguments: str) -> int:
    return run(["misses", *arguments, *(() if "--undo" in arguments else ("--fix",)), "--config", str(path)])


def test_a_fix_says_its_effect_keeps_comments_and_is_taken_back(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    assert fix(path, "2", "--yes") == 1, "what changes nothing on record is not made unless it is named"
    err = capsys.readouterr().err
    assert "pin sky__moon: over 1 task: it would have spared no miss and no search" in err
    assert err.endswith("to make it all the same, add --change pin\n")
    assert fix(path, "2", "--dry-run") == 1 and fix(path, "2", "--change", "pin", "--dry-run") == 0
    assert path.read_bytes() == before
    assert fix(path, "2", "--change", "pin", "--yes") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "sky__moon was missed (rank). What would have shown it:" in out
    assert "pin: pin sky__moon (the list then takes" in out
    assert "over 1 task: it would have spared no miss and no search" in out
    assert "// mine" in path.read_text() and '"pin": ["sky__moon"]' in path.read_text()
    assert fix(path, "2", "--yes") == 0
    assert "is in the next list; nothing has to change" in capsys.readouterr().out
    assert fix(path, "--undo") == 0
    assert path.read_bytes() == before


def test_a_rule_is_lifted_only_by_name(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    assert fix(path, "3", "--yes") == 1
    assert "--yes alone does not" in capsys.readouterr().err and path.read_bytes() == before
    assert fix(path, "3", "--change", "rule", "--yes") == 0
    assert '"deny": []' in path.read_text()


def test_a_change_that_does_not_help_is_refused_with_those_that_do(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fix(path, "2", "--change", "alias", "--yes") == 1
    assert "alias would not have shown sky__moon; these would: pin" in capsys.readouterr().err
    assert fix(path, "99", "--yes") == 1


def test_the_user_is_asked_before_a_change(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = path.read_bytes()
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(one_miss.click, "prompt", lambda *_, **__: "n")
    assert fix(path, "2", "--change", "pin") == 1
    assert "Nothing was changed." in capsys.readouterr().out and path.read_bytes() == before
    monkeypatch.setattr(one_miss.click, "prompt", lambda *_, **__: "y")
    assert fix(path, "2", "--change", "pin") == 0
    assert path.read_bytes() != before


def test_another_command_is_named_and_not_run_unasked(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert one_miss._run("foretool review sky", path, agreed=True, dry_run=False) == 0
    assert "This is done by another command, which shows what it does: foretool review sky" in capsys.readouterr().out
    assert one_miss._run("foretool review sky", path, agreed=False, dry_run=False) == 0
    assert "sky" in capsys.readouterr().out
    assert one_miss._run("foretool learn --report", path, agreed=False, dry_run=False) == 0
    assert "Nothing was learned yet" in capsys.readouterr().out, "a command of a pack is found too"


def test_nothing_is_written_where_nobody_can_be_asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert fix(path, "2", "--change", "pin") == 2
    assert path.read_bytes() == before


def write_missed(tmp_path: Path) -> tuple[Path, str]:
    """Write a record with a miss that several changes would have spared; return the config and the miss."""
    path = write_recorded(tmp_path, [("when is the eclipse", ["sky__moon"])] * 3, list_tokens=320)
    missed = replace(
        MISS, session="s0", tool="sky__moon", noticed="discovery", cause="budget", rank=2, of=6, exposure=0,
        discovery=0, call=0, query="when is the eclipse", at=START + 3,
    )  # fmt: skip
    with open_store(loader.load(path).storage) as store:
        store.calls.record([], [missed])
        (id,) = (each.id for each in store.calls.misses() if each.at == START + 3)
    return path, str(id)


def test_a_server_that_does_not_work_is_for_doctor_and_nothing_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, {"brave": {"command": "brave"}})
    before = path.read_bytes()
    missed = replace(MISS, session="s0", tool="brave__search", noticed="call", cause="offline", exposure=0, discovery=0)
    with open_store(loader.load(path).storage) as store:
        store.calls.record([], [replace(missed, call=0)])
        (id,) = (each.id for each in store.calls.misses())
    assert fix(path, str(id)) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.endswith("Run foretool doctor brave: it says why server brave does not work.")
    assert "Make this change" not in out and path.read_bytes() == before
    assert run(["misses", str(id), "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "foretool doctor brave" in out and "--fix" not in out, "it would change nothing"


def test_a_cause_that_has_ended_leaves_nothing_to_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, list_tokens=1)
    with fill(path) as store:
        store.catalog.save_exposed_names({ToolId("sky__moon"): ("sky", "moon")})
        gone = replace(MISS, tool="sky__moon", noticed="call", cause="gone", query="", call=0, recovered="no")
        store.calls.record([], [replace(gone, change="server 'sky' is disabled: foretool enable sky")])
    assert run(["disable", "sky", "--config", str(path)]) == 0
    capsys.readouterr()
    assert run(["misses", "2", "--config", str(path)]) == 0
    assert "foretool enable sky" in capsys.readouterr().out
    assert fix(path, "2", "--dry-run") == 0
    assert capsys.readouterr().out.startswith(
        "sky__moon was missed (server 'sky' is disabled). What would have shown it:\n"
        "1  enable: enable server sky (foretool enable sky)\n"
    )
    assert run(["enable", "sky", "--config", str(path)]) == 0
    capsys.readouterr()
    assert run(["misses", "2", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "nothing any more: its server is in use again" in out and "pin" not in out and "--fix" not in out
    before = path.read_bytes()
    assert fix(path, "2", "--yes") == 0 and path.read_bytes() == before
    assert "nothing has to change any more: its server is in use again" in capsys.readouterr().out


@pytest.mark.parametrize(("typed", "status"), [("y", 0), ("", 1), ("1", 0), ("n", 1), ("0", 1)])
def test_a_choice_among_changes_takes_yes_and_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, status: int
) -> None:
    path, id = write_missed(tmp_path)
    before = path.read_bytes()
    monkeypatch.setattr("sys.stdin", Typed(f"{typed}\n"))
    assert fix(path, id) == status
    assert (path.read_bytes() == before) == bool(status)


class Typed(io.StringIO):
    """What a person types."""

    def isatty(self) -> bool:
        return True
