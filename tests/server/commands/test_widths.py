"""What commands print on a terminal: nothing is cut, no line is wider than the terminal, and pipes get no colours."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_fakes import remember, write_config
from msgspec.structs import replace
from rich.cells import cell_len
from stored_records import CALL, MISS, SESSION

from foretool.server.commands import exit, output
from foretool.server.commands.group import run
from foretool.server.config import loader
from foretool.storage.opening import open_store
from foretool.storage.records import (
    AuditEntry,
    ClientRecord,
    Definition,
    Discovery,
    Exposure,
    Match,
    ToolId,
    UpstreamState,
)
from foretool.storage.steps import finish

WIDTHS = (60, 80, 100, 140)
LONG = ToolId("github__list_pull_request_review_comments_of_repo")
"""As long as an exposed name can be."""
TASK = "show me every comment of the reviewers on the pull request that changes the parser of dates"
_STYLE = re.compile(r"\x1b\[[\d;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log with names as long as they can be."""
    path = write_config(tmp_path, {"github": {"command": "github"}, "calc": {"command": "calc"}})
    config = loader.load(path)
    with open_store(config.storage) as store:
        remember(config, store, "github", {LONG.partition("__")[2]: f"{TASK}, in the order of their time. " * 3})
        remember(config, store, "calc", {"add": "Adds two numbers."})
        client = "a-client-with-a-long-name-of-its-own"
        store.sessions.begin(replace(SESSION, key="s1", client=client, profile=""))
        store.clients.add_relist(ClientRecord(client, "2026.11.22", "legacy", 3, 1, 80.0, 9.0))
        list_id = store.sessions.add_exposure(
            Exposure("s1", 9.0, "frozen", 1, (ToolId("calc__add"), LONG), 300, "list")
        )
        call = replace(CALL, session="s1", tool=LONG, hidden=True)
        miss = replace(
            MISS, session="s1", tool=LONG, query=TASK, exposure=list_id, call=1, cause="budget", parts={"lexical": 12.5}
        )
        store.calls.record([call], [miss, replace(miss, cause="stale", call=0)])
        store.flows.add({(ToolId("calc__add"), LONG, "sum", "pull_request_number"): 3}, 9.0)
        finish(store.approvals.hold("calc", ["tool"], [Definition("calc", "tool", "subtract", "h", b"{}")]))
        entry = AuditEntry(
            9.0, "oauth:0123456789abcdef0123456789abcdef", "Ann with a name", client, "", "call", LONG, "ok"
        )
        decision = replace(
            entry, action="decide", target="calc", outcome="approved", detail="tool subtract 0123456789ab"
        )
        store.audit.add([entry, decision])
        state = UpstreamState(
            4, 1.0, "github", "retrying", 9.0, "legacy", 3, 1, 0, "exited with code 1; last stderr line: 'no token'", ()
        )
        store.serving.save_state(state)
        for number in range(2):
            matches = (Match(LONG, 1, 2.0), Match(ToolId("calc__add"), 2, 1.0))
            found = store.discoveries.add(
                Discovery("s1", 10.0 + number, "collect remarks of the reviewers", (), None, "high", matches, 90, 1.0)
            )
            store.calls.record([
                replace(CALL, session="s1", at=10.5 + number, tool=ToolId("calc__add"), outcome="ok", discovery=found)
            ])  # fmt: skip
    return path


def shown(arguments: list[str], width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what a command prints on a terminal of this width, without colours."""
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setenv("TERM", "xterm")
        patch.setattr(sys, "stdout", terminal)
        run(arguments)
    return _STYLE.sub("", terminal.getvalue())


COMMANDS = {
    "misses": [LONG, "budget", "stale"],
    "misses --by cause": ["budget", "stale", LONG],
    "misses --all": [LONG, TASK.split()[0], "budget", "stale", MISS.recovered],
    "misses 1": [LONG, "budget", "a-client-with-a-long-name-of-its-own"],
    "tools": [LONG, "calc__add", "unmarked"],
    "search " + TASK: [LONG],
    f"search {TASK} --tool calc__add": [LONG, "calc__add: not among them"],
    "status --clients": ["a-client-with-a-long-name-of-its-own", "2026.11.22", "legacy"],
    "status": ["github", "down", "no token"],
    "tools --needs": [LONG, "calc__add"],
    "tools calc__add --needs": [LONG, "calc__add"],
    "review": ["calc", "1 tool new"],
    "status --stats --since 3000w": ["a-client-with-a-long-name-of-its-own"],
    "learn --report": [],
    "forget --server github --dry-run": ["calls", "misses"],
    "replay --since 3000w --set list_tokens=900": ["list_tokens=900", "misses", "discovery turns"],
    "misses --confused --since 3000w": [f"1 {LONG} was taken for calc__add", "add to the description of calc__add"],
    "misses --confused 1 --since 3000w --fix --change alias --dry-run": ["calc__add_collect"],
}
"""By command line, what has to be on the terminal whole."""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_key_is_cut_and_no_line_is_too_wide(
    command: str, width: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = shown([*command.split(), "--config", str(path)], width, monkeypatch)
    assert out.strip(), "it printed nothing"
    assert [line for line in out.splitlines() if len(line) > width] == []
    assert "…" not in out
    assert [text for text in COMMANDS[command] if text not in out and text not in " ".join(out.split())] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_become_cards_where_the_table_does_not_fit(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "stdout", terminal)
    row = (12, LONG, "2026-11-22 18:00:00", "budget", TASK, "")
    output.table(("id#", "tool…", "when", "cause", "task…", "note"), [row], title="Two words")
    lines = _STYLE.sub("", terminal.getvalue()).splitlines()
    assert lines[0] == "Two words" and max(map(len, lines)) <= width
    is_table = any("───" in line for line in lines)
    assert is_table == (width == 140)
    if not is_table:
        assert lines[1] == f"12  {LONG}"
        assert lines[2].startswith("  when: 2026-11-22 18:00:00; cause: budget")
        assert "note" not in terminal.getvalue()


def test_colours_are_for_terminals_that_want_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    colour = "\x1b[31m"
    command = ["status", "--config", str(path)]
    for terminal, no_color, is_colored in (
        (Terminal(), "", True),
        (Terminal(), "1", False),
        (io.StringIO(), "", False),
    ):
        with monkeypatch.context() as patch:
            patch.setenv("TERM", "xterm")
            patch.setenv("NO_COLOR", no_color)
            patch.setattr(sys, "stdout", terminal)
            output.say("down", "red")
        assert (colour in terminal.getvalue()) == is_colored
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stdout", plain)
    run(command)
    assert "\x1b" not in plain.getvalue()


def terminal_of(width: int, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of so many columns, which gets all that is printed."""
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", str(width))
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, terminal)
    return terminal


@pytest.mark.parametrize("width", range(43, 90, 3))
@pytest.mark.parametrize(
    "say",
    [
        output.say, output.say_paragraph, output.warn, exit.complain,
        lambda text: output.say(f"  {text}"), lambda text: output.say_fact("failing", text),
    ],
)  # fmt: skip
def test_no_line_breaks_within_a_command_or_ends_with_a_blank(
    say: Callable[[str], object], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = terminal_of(width, monkeypatch)
    say("nothing changed; to do it: foretool init, by line: foretool init --diff 42; so: foretool search 'a b' --why")
    lines = _STYLE.sub("", terminal.getvalue()).splitlines()
    for command in ("foretool init,", "foretool init --diff 42", "foretool search 'a b' --why"):
        assert any(command in line for line in lines)
    assert all(line == line.rstrip() and len(line) <= width for line in lines)


@pytest.mark.parametrize("width", (40, 79, 80))
@pytest.mark.parametrize("say", [output.say, output.say_paragraph, output.warn, exit.complain])
def test_letters_of_two_columns_count_as_two(
    say: Callable[[str], object], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terminal broke such a line a second time, a word before its end."""
    terminal = terminal_of(width, monkeypatch)
    text = "日本語サーバー: is the same server as 中文服务器, so each of its tools is there twice " * 3
    say(text)
    lines = _STYLE.sub("", terminal.getvalue()).splitlines()
    assert all(cell_len(line) <= width for line in lines) and " ".join(lines).split()[-14:] == text.split()[-14:]
