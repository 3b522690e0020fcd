"""Attacks on who reads a terminal: texts of servers and clients that pose as rows, colours, links or directions."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from command_fakes import definition, echo, write_config
from msgspec.structs import replace
from requirements import requirement
from stored_records import CALL, MISS, SESSION, STATE

from foretool.server.commands.exit import complain
from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.server.config.servers import fingerprint
from foretool.server.system import logs
from foretool.storage.opening import open_store
from foretool.storage.records import Discovery, Flow, Match, Tool, ToolId, UpstreamRecord
from foretool.storage.steps import finish

EVIL = (
    "x\nfiles__delete  called  never\r\x1b[2J\x1b]8;;https://evil.example\x07click\x1b]8;;\x07"
    "[red]fine[/red][link=https://evil.example]here[/link]\u202egnp\u2028seized\u200b\U000e0041\x9b31m\x85end\x00"
)
COMMANDS = [
    ["misses"], ["misses", "1"], ["tools"], ["tools", "--unused"], ["search", "adds numbers"],
    ["search", "adds numbers", "--text"], ["status"], ["status", "-v"], ["status", "--clients"],
    ["tools", "--needs"], ["learn", "--report"],
    ["review"], ["doctor"], ["connect"], ["forget", "--all", "--dry-run"],
    ["status", "--stats", "--since", "3000w"], ["search", "adds numbers", "--tool", "one__add"],
    ["search", EVIL, "--tool", EVIL],
    ["replay", "--since", "3000w", "--set", "list_tokens=20"], ["replay", "--set", EVIL],
    ["misses", "--confused", "--since", "3000w"],
    ["misses", "--confused", "1", "--since", "3000w", "--fix", "--dry-run"],
    ["tools", EVIL], ["tools", EVIL, "--needs"], ["misses", EVIL], ["search", EVIL, "--profile", EVIL],
]  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A store into which a server and a client have put what they like."""
    path = write_config(tmp_path, {"one": echo("--name", "x")})
    loaded = load(path)
    with open_store(loaded.storage) as store:
        store.sessions.begin(replace(SESSION, client=EVIL, version=EVIL))
        evil = Tool(ToolId("one__add"), "one", EVIL, definition("add", f"Adds numbers {EVIL}"), "hash")
        known = UpstreamRecord(
            "one", fingerprint(loaded.servers["one"]), "legacy", json.dumps({"name": EVIL}), EVIL, "{}", 5.0
        )
        good = Tool(ToolId("one__sum"), "one", "sum", definition("sum", f"Sums up {EVIL}"), "hash of sum")
        finish(store.catalog.save_upstream(known, [evil, good]))
        store.calls.record([replace(CALL, tool=ToolId(EVIL), arguments=json.dumps({EVIL: "string"}))])
        store.calls.record([], [replace(MISS, tool=EVIL, query=EVIL, change=EVIL, history=(ToolId(EVIL),), call=0)])
        store.serving.save_state(replace(STATE, upstream=EVIL, last_error=EVIL, stderr=(EVIL, EVIL)))
        store.flows.add({(ToolId("one__add"), ToolId(EVIL), EVIL, EVIL): 9}, 5.0)
        for number in range(2):  # a pair that is taken for each other, in the words of a client
            matches = (Match(ToolId("one__add"), 1, 2.0), Match(ToolId("one__sum"), 2, 1.0))
            found = store.discoveries.add(
                Discovery(SESSION.key, 10.0 + number, f"numbers {EVIL}", (), None, "high", matches, 90, 1.0)
            )
            right = replace(CALL, session=SESSION.key, at=10.5 + number, tool=ToolId("one__sum"), outcome="ok")
            store.calls.record([replace(right, discovery=found)])
        assert store.flows.all() == [Flow(ToolId("one__add"), ToolId(EVIL), EVIL, EVIL, 9, 5.0)]
    return path


@requirement("trust:terminal:rows")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command)[:20])
def test_no_text_of_a_server_or_a_client_makes_a_row_or_steers_the_terminal(
    command: list[str], config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run([*command, "--config", str(config)])
    shown = "".join(capsys.readouterr())
    assert shown
    for line in shown.split("\n"):
        assert line.isprintable(), ascii(line)
        assert not line.lstrip().startswith(("files__delete", "seized", "end")), line


JSON = [
    ["misses"], ["misses", "1"], ["tools"], ["status"], ["status", "--clients"],
    ["status", "--stats", "--since", "3000w"],
    ["list"], ["doctor"], ["review"], ["search", "adds numbers"], ["tools", "--needs"],
    ["misses", "--confused", "--since", "3000w"],
]  # fmt: skip


@requirement("trust:terminal:rows")
@pytest.mark.parametrize("command", JSON, ids=" ".join)
def test_json_keeps_the_exact_text_and_escapes_it(
    command: list[str], config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run([*command, "--json", "--config", str(config)])
    out = capsys.readouterr().out
    assert json.loads(out) is not None
    assert [ascii(line) for line in out.split("\n") if not line.isprintable()] == []


@requirement("trust:terminal:rows")
@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("kind", ["misses", "episodes", "calls", "exposures", "audit"])
def test_what_is_exported_steers_no_terminal(
    kind: str, form: str, config: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run(["export", kind, "--format", form, "--config", str(config)]) == 0
    out = capsysbinary.readouterr().out.decode()
    assert [ascii(line) for line in out.replace("\r\n", "\n").split("\n") if not line.isprintable()] == []
    if form == "jsonl" and kind == "misses":
        assert [json.loads(line)["query"] for line in out.splitlines()] == [EVIL]


@requirement("trust:terminal:rows")
def test_an_error_is_one_line_without_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    complain(f"unknown tool {EVIL}")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()


@requirement("trust:terminal:rows")
def test_a_log_record_is_one_line_whatever_a_server_said() -> None:
    record = logging.LogRecord("foretool", logging.WARNING, "", 0, "upstream said %s", (EVIL,), None)
    for formatter in (logs.Redacting(str), logs.JsonLines(str)):
        (line,) = formatter.format(record).splitlines()
        assert line.isprintable()
