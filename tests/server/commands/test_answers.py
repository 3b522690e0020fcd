"""What commands print with `--json` is what its schema says; exit statuses are those of the table."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import jsonschema_rs
import pytest
from command_fakes import CALC, ECHO, WEATHER, echo, fill, write_config
from homes import write_home
from msgspec.structs import replace
from registry_fakes import item, npm, registry
from stored_records import MISS, SESSION

from foretool.server.commands import edits, output
from foretool.server.commands import exit as statuses
from foretool.server.commands.group import COMMANDS, root, run
from foretool.server.config import loader
from foretool.server.setup.own_servers import save_edit
from foretool.storage.opening import open_store
from foretool.storage.records import AuditEntry, Call, Definition, Exposure, UpstreamState, Wording
from foretool.storage.steps import finish

DOCS = Path(__file__).parents[3] / "docs"

LINES: dict[str, Sequence[str]] = {
    "init": ("init", "--yes", "--no-start"),
    "init --undo": ("init", "--undo"),
    "logout": ("logout", "away"),
    "status": ("status",),
    "status --stats": ("status", "--stats"),
    "status --clients": ("status", "--clients"),
    "tools": ("tools",),
    "tools --needs": ("tools", "--needs"),
    "tools TOOL --needs": ("tools", "calc__add", "--needs"),
    "list": ("list",),
    "add": ("add", "echo", sys.executable, str(ECHO)),
    "add --search": ("add", "--search", "weather"),
    "remove": ("remove", "sky"),
    "enable": ("enable", "sky"),
    "disable": ("disable", "sky"),
    "pin": ("pin",),
    "pin TOOL": ("pin", "calc__add"),
    "pin --undo": ("pin", "--undo"),
    "search": ("search", "weather in Paris", "--tool", "calc__add"),
    "misses": ("misses",),
    "misses NUMBER": ("misses", "1"),
    "misses --undo": ("misses", "--undo"),
    "misses --confused": ("misses", "--confused"),
    "replay": ("replay", "--since", "4000w", "--set", "list_tokens=100"),
    "bench": ("bench", "--since", "4000w"),
    "enrich": ("enrich", "--dry-run"),
    "enrich --show": ("enrich", "--show"),
    "enrich --remove": ("enrich", "--remove"),
    "learn": ("learn",),
    "learn --report": ("learn", "--report"),
    "learn --rollback": ("learn", "--rollback"),
    "forget": ("forget", "--server", "sky", "--dry-run"),
    "doctor": ("doctor", "--fix", "--dry-run"),
    "doctor --explain CODE": ("doctor", "--explain", "ft316"),
    "doctor --undo": ("doctor", "--undo"),
    "connect": ("connect",),
    "review": ("review",),
    "review SERVER": ("review", "calc"),
    "review SERVER --approve": ("review", "calc", "--approve"),
    "token new": ("token", "new"),
    "uninstall": ("uninstall",),
}
"""What is typed for each command line of the page."""
STARTS = {"doctor"}
"""Commands that start servers."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "FORETOOL_CONFIG", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PWD", str(tmp_path))
    return tmp_path


@pytest.fixture
def path(home: Path) -> Path:
    """A log in which there is something of everything."""
    path = write_config(home, enrich={"url": "http://127.0.0.1:1/v1", "model": "tiny"})
    now = time.time()
    with fill(path) as store:
        store.sessions.begin(replace(SESSION, key="s2", client="codex", started_at=now - 9))
        list_id = store.sessions.add_exposure(Exposure("s2", now - 8, "frozen", 1, (CALC,), 30, "list"))
        call = Call("s2", now - 7, WEATHER, "sky", "bridge", True, "ok", 1.0, True, "")
        store.calls.record([call], [replace(MISS, session="s2", at=now - 7, tool=WEATHER, exposure=list_id, call=1)])
        failed = replace(call, tool=CALC, outcome="tool_error")
        for ago in (6, 4):  # twice called in vain before the other one
            store.calls.record([replace(failed, at=now - ago), replace(call, at=now - ago + 1)])
        store.flows.add({(CALC, WEATHER, "sum", "days"): 3}, now)
        store.audit.add([AuditEntry(now - 7, "oauth:1", "ann", "codex", "", "call", WEATHER, "ok", session="s2")])
        store.artifacts.add("dtdr", b"one", {"new": {"mrr": 0.5}}, promote=True, at=1.0)
        store.artifacts.add("dtdr", b"two", {"new": {"mrr": 0.6}}, promote=True, at=2.0)
        finish(
            store.approvals.hold(
                "calc", ["tool"], [Definition("calc", "tool", "subtract", "h", b'{"name": "subtract"}')]
            )
        )
        store.wordings.save(Wording(b"1", "tiny", 1, "sky", WEATHER, ("do I need a coat",), 90, 0.5, now))
        store.serving.save_state(
            UpstreamState(4, 1.0, "sky", "retrying", 9.0, "legacy", 3, 1, 0, "exited with code 1", ("no token",))
        )
    return path


@cache
def read_schemas() -> dict[str, Any]:
    """Return the schemas as `docs/json.md` says how to print them."""
    printed = subprocess.run([sys.executable, DOCS / "answers.py"], capture_output=True, check=True, timeout=60).stdout
    return dict(json.loads(printed))


def problems(line: str, answer: Any) -> list[str]:
    """Return how an answer differs from the schema of a command line."""
    # Programs bear with members of a newer version; this version has none that the schema lacks.
    schemas = read_schemas()
    types = {name: {"additionalProperties": False, **kind} for name, kind in schemas["$defs"].items()}
    schema = {**schemas["properties"][line], "$defs": types}
    return [f"{error.instance_path}: {error.message}" for error in jsonschema_rs.iter_errors(schema, answer)]


@pytest.mark.parametrize("line", LINES)
def test_a_command_prints_what_the_schema_says(
    line: str, path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = [*LINES[line], "--json"]
    if line.startswith("init"):
        write_home(home)
        if line == "init --undo":
            run(["init", "--yes", "--no-start"])
    elif line != "token new":
        if line in ("pin --undo", "doctor --undo", "misses --undo"):
            own = edits.open_file(path)
            own.switch("calc", on=False)
            save_edit(own, "switched off", line.partition(" ")[0])
        if line in STARTS:
            path = write_config(home, {"echo": echo()})
        if line == "logout":
            path = write_config(home, {"away": {"url": "https://mcp.example/mcp"}})
        monkeypatch.chdir(home)
        typed += ["--config", str(path)]
    capsys.readouterr()
    with registry(item(packages=[npm()])) as known:
        monkeypatch.setenv("FORETOOL_REGISTRY", known.url)
        run(typed)
    answer = json.loads(capsys.readouterr().out)
    assert answer, "an empty answer would fit every schema"
    assert problems(line, answer) == []


def test_the_pages_are_up_to_date(generate: ModuleType) -> None:
    assert generate.main(["--check"]) == 0, "stale; run `python docs/generate.py`"


def test_every_command_that_prints_json_has_a_schema() -> None:
    described = set(read_schemas()["properties"])
    assert described == set(LINES)
    assert sorted(line for line in _lines_with_json() if line not in described) == []


def _lines_with_json() -> list[str]:
    context = click.Context(root)
    found = []
    for name in COMMANDS:
        command = root.get_command(context, name)
        assert command is not None
        inner = {f"{name} {each}": sub for each, sub in getattr(command, "commands", {}).items()}
        for line, each in {name: command, **inner}.items():
            if any(parameter.name == "as_json" for parameter in each.params):
                found.append(line)
    return found


# Exit statuses


def test_the_table_of_exit_statuses_has_those_that_there_are() -> None:
    section = (DOCS / "cli.md").read_text(encoding="utf-8").partition("\n## Exit status\n")[2].partition("\n## ")[0]
    told = {int(number) for number in re.findall(r"(?m)^\| (\d+) \|", section)}
    assert told == {0, statuses.WRONG, statuses.USAGE, statuses.INTERRUPTED}


@pytest.mark.parametrize(
    ("typed", "status"),
    [
        (["misses"], 0),
        (["--version"], 0),
        (["status"], 1),
        (["misses", "99"], 1),
        (["tools", "nobody", "--needs"], 1),
        (["tools", "--schema", "nobody"], 1),
        (["review", "nobody"], 1),
        (["nonsense"], 2),
        (["misses", "--nonsense"], 2),
        (["misses", "--since", "soon"], 2),
        (["search"], 2),
        (["tools", "--upstream", "nobody"], 1),
    ],
)
def test_a_command_ends_with_the_status_of_the_table(
    typed: list[str], status: int, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del capsys
    with open_store(loader.load(path).storage) as store:
        store.serving.save_state(
            UpstreamState(os.getpid(), time.time(), "sky", "retrying", 9.0, None, 0, 1, 0, "gone", ())
        )
    needs_config = typed[0] in COMMANDS
    assert run([*typed, *(["--config", str(path)] if needs_config else [])]) == status


def test_answering_no_is_status_1_and_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(output, "agrees", lambda *args, **options: False)
    assert run(["forget", "--server", "sky", "--config", str(path)]) == statuses.WRONG
    with open_store(loader.load(path).storage) as store:
        assert store.calls.misses()
