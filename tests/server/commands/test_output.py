"""What commands print: times and sizes in words, tables that are never cut, texts that cannot steer a terminal."""

import io
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import click
import pytest
from command_fakes import fill, write_config
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from foretool.server.commands import output


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0 s"), (0, "0 s"), (59, "59 s"), (60, "1 min"), (7200, "2 h"), (86_400, "1 d"), (2_000_000, "3 w")],
)
def test_a_span_is_said_in_its_largest_unit(seconds: float, words: str) -> None:
    assert output.span(seconds) == words


def test_a_moment_is_said_as_how_long_ago_it_was() -> None:
    now = time.time()
    assert [output.ago(0), output.ago(now), output.ago(now - 180)] == ["never", "just now", "3 min ago"]


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (3 << 30, "3.0 GiB")]
)
def test_a_size_is_said_in_its_largest_unit(count: int, words: str) -> None:
    assert output.size(count) == words


def test_nouns_have_their_plural() -> None:
    said = [
        output.plural(1, "miss"),
        output.plural(0, "miss"),
        output.plural(2, "discovery"),
        output.plural(1234, "call"),
    ]
    assert said == ["1 miss", "0 misses", "2 discoveries", "1,234 calls"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "is_told"), [(Terminal(), True), (io.StringIO(), False)])
def test_a_long_wait_says_what_it_is_for_on_a_terminal_alone(
    stream: io.StringIO, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "PATIENCE_S", 0.0)
    monkeypatch.setattr(sys, "stderr", stream)
    begun = threading.Event()
    start = Progress.start
    monkeypatch.setattr(Progress, "start", lambda self: (start(self), begun.set()))
    with output.waiting("counting \x1b[2J tokens"):
        assert not is_told or begun.wait(10)
    assert ("counting" in stream.getvalue()) == is_told
    assert "\x1b[2J" not in stream.getvalue()


def test_a_short_wait_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(output, "PATIENCE_S", 600.0)
    monkeypatch.setattr(sys, "stderr", terminal)
    with output.waiting("counting tokens"):
        pass
    assert terminal.getvalue() == ""


def test_texts_cannot_steer_the_terminal_or_be_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    output.say("[red]\x1b[31mhere\x07[/red]")
    output.table(("name",), [("\x1b]0;title\x07x",)])
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x07" not in out and "[red]" in out


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_table_that_fits_is_drawn_as_rich_draws_it(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    columns = ("name…", "calls#", "", "last used")
    rows = [("日本語 and words", 12, "", "never"), ("a", 1_000_000, "x", Text("3 min ago", "green"))]
    stream = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    output.table(columns, rows)
    drawn = Table(box=box.SIMPLE_HEAD)
    for name in columns:
        drawn.add_column(name.rstrip("#…"), justify="right" if name.endswith("#") else "left")
    for row in rows:
        drawn.add_row(*(cell if isinstance(cell, Text) else str(cell) for cell in row))
    expected = io.StringIO()
    Console(file=expected, width=80, markup=False, highlight=False).print(drawn)
    assert re.sub("\x1b\\[[0-9;]*m", "", stream.getvalue()) == expected.getvalue()
    assert ("\x1b[32m" in stream.getvalue()) == is_terminal


def test_a_card_goes_on_below_its_own_text_and_cuts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(sys, "stdout", stream := Terminal())
    output.table(
        ("name", "words…", "n#"), [("tool_with_a_name_of_thirty_chars", "one two three four five six seven", 3)]
    )
    lines = re.sub("\x1b\\[[0-9;]*m", "", stream.getvalue()).splitlines()
    assert lines == [
        "tool_with_a_name_of_thirty_cha",
        "rs",
        "  words: one two three four",
        "  five six seven",
        "  n: 3",
    ]


def test_a_table_without_rows_that_does_not_fit_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setattr(sys, "stdout", stream := Terminal())
    output.table(("a long name", "another"), [])
    assert stream.getvalue() == ""


def test_a_question_is_broken_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("builtins.input", lambda prompt="": print(prompt, end="") or "y")
    monkeypatch.setattr("click.termui.visible_prompt_func", input)
    question = "fetch, git and time did not trust a certificate of this network. Pass the names of files on?"
    assert output.agrees(question)
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 40 and " ".join(said.split()) == f"{question} [y/N]:"


@pytest.mark.parametrize("command", [["tools"], ["list"], ["pin"], ["misses", "--all"], ["status", "--json"]])
def test_a_reader_that_has_read_enough_is_no_error(tmp_path: Path, command: list[str]) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    reader, writer = os.pipe()
    os.close(reader)
    typed = [sys.executable, "-m", "foretool", *command, "--config", str(path)]
    done = subprocess.run(typed, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_question_says_what_it_expects_and_who_leaves_it_what_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("maybe\nYes\n\n"))
    assert output.agrees("Change it?") and not output.agrees("Change it?")
    assert "Error: expected y or n, found 'maybe'\n" in capsys.readouterr().out
    with pytest.raises(click.Abort):
        output.agrees("Change it?")
    assert capsys.readouterr().err == "\nNothing was changed.\n"
