"""The group of commands: which there are, how errors leave, and that each is documented."""

import json
import os
import pwd
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
from command_fakes import write_config

from foretool import __version__
from foretool.server.commands.group import COMMANDS, FIRST, root, run
from foretool.server.setup.clients import client_files, this_machine

DOCS = Path(__file__).parents[3] / "docs"
WIDEST_LINE = 64
"""Characters that stand beside the widest name at 80 columns."""


def test_the_page_of_the_clients_names_each_that_has_a_file() -> None:
    page = (DOCS / "clients" / "README.md").read_text(encoding="utf-8")
    assert [each.client for each in client_files(this_machine()) if f"`{each.client}`" not in page] == []


def test_every_command_is_on_the_page() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"\n## {name}\n" in page] == list(COMMANDS)
    assert [name for name in COMMANDS if f"<!-- help: foretool {name}" in page] == list(COMMANDS)


def test_a_stale_page_of_the_commands_is_noticed(generate: ModuleType) -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert generate.render(page.replace("Show this message", "Show that message")) == page


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_every_option_has_a_help_text(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None and command.help
    assert [each.name for each in command.params if isinstance(each, click.Option) and not each.help] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_of_each_what_its_own_help_says_first(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    assert command.get_short_help_str(WIDEST_LINE * 2) == COMMANDS[name]
    assert len(COMMANDS[name]) <= WIDEST_LINE, "is broken at 80 columns"


def test_help_and_completion_import_no_command() -> None:
    program = (
        "import sys; from click.shell_completion import ShellComplete;"
        "from foretool.server.commands.group import COMMANDS, FIRST, root, run;"
        "assert run(['--help']) == 0;"
        "found = ShellComplete(root, {}, 'foretool', '_FORETOOL_COMPLETE').get_completions([], 'st');"
        "assert [each.value for each in found] == ['status'], found;"
        "loaded = [name for name in COMMANDS if f'foretool.server.commands.{name}' in sys.modules];"
        "assert loaded == [] and 'rich' not in sys.modules, loaded"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: foretool") and "  init       Set everything up:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope"], "foretool: No such command 'nope'. See foretool --help"),
        (["lst"], "foretool: No such command 'lst'. Did you mean 'list'? See foretool --help"),
        (["misses", "--tool"], "foretool: misses: Option '--tool' requires an argument. See foretool misses --help"),
        (["bench", "--tasks"], "foretool: bench: Option '--tasks' requires an argument. See foretool bench --help"),
        (
            ["search", " "],
            "foretool: search: TASK is empty; say in words what is to be done. See foretool search --help",
        ),
        (
            ["forget", "--server", "", "--since", "1h", "--yes"],
            "foretool: forget: Invalid value for '--server': expected a value, found an empty text.",
        ),
        (
            ["tools", ""],
            "foretool: tools: Invalid value for '[PATTERN]': expected a value, found an empty text.",
        ),
        (["list", "--nope"], "foretool: list: No such option '--nope'. See foretool list --help"),
        (["misses", "x"], "foretool: misses: Invalid value for '[NUMBER]': expected one number of a miss, found 'x'."),
        (
            ["doctor", "--yes"],
            "foretool: doctor: --yes and --dry-run go with --fix. See foretool doctor --help",
        ),
        (
            ["page", "--port", "80x"],
            "foretool: page: Invalid value for '--port': expected a whole number from 0 to 65535, found '80x'.",
        ),
        (
            ["page", "--port", "99999"],
            "foretool: page: Invalid value for '--port': expected a whole number from 0 to 65535, found 99999.",
        ),
        (
            ["misses", "--limit", "few"],
            "foretool: misses: Invalid value for '--limit': expected a whole number of at least 1, found 'few'.",
        ),
        (
            ["doctor", "--timeout", "0"],
            "foretool: doctor: Invalid value for '--timeout': expected a number from 0.1 to 3600, found 0.0.",
        ),
        (["search"], "foretool: search: Missing argument 'TASK...'. See foretool search --help"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith(said) and error.count("\n") == 1


def test_an_empty_home_is_that_of_the_user(tmp_path: Path) -> None:
    words = [sys.executable, "-P", "-m", "foretool", "connect", "claude-code", "--config", str(tmp_path / "none.json")]
    said = [
        subprocess.run(words, capture_output=True, text=True, timeout=60, env={**os.environ, "HOME": home}).stdout
        for home in ("", pwd.getpwuid(os.getuid()).pw_dir)
    ]
    assert said[0] == said[1] and "add to ~/.claude.json:" in said[0] and "add to ~/.claude/settings.json:" in said[0]


NEED_NAMES = ("search", "remove", "enable", "disable", "login", "logout")
NEED_NO_CONFIG = ("init", "connect", "hint", "token", "add", "uninstall")


@pytest.mark.parametrize("name", [each for each in COMMANDS if each not in NEED_NO_CONFIG])
def test_every_command_says_the_same_line_of_a_missing_config(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none.json"
    more = ["x"] if name in NEED_NAMES else ["calls"] if name == "export" else []
    assert run([name, *more, "--config", str(path)]) == 2
    do = "run foretool init or foretool add, or name your client's file with --config"
    assert capsys.readouterr().err == f"foretool: {path}: no such file; {do} [FT101]\n"


@pytest.mark.parametrize("arguments", [["tools"], ["search", "x"], ["misses"], ["status", "--clients"]])
def test_a_damaged_storage_file_is_one_line_and_status_1(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path)
    (tmp_path / "foretool.sqlite3").write_text("this is no database, " * 100)
    assert run([*arguments, "--config", str(path)]) == 1
    error = capsys.readouterr().err
    assert "not a readable SQLite file" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["status"], ["tools"], ["search", "x"], ["misses"], ["status", "--clients"], ["doctor"]]
)
def test_looking_makes_no_storage_file(arguments: list[str], tmp_path: Path) -> None:
    path = write_config(tmp_path, {})
    run([*arguments, "--config", str(path)])
    assert [each.name for each in tmp_path.iterdir()] == ["mcp.json"]


def test_no_command_shows_the_state_and_help_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORETOOL_CONFIG", str(tmp_path / "none.json"))
    assert run([]) == 0
    assert "Next: foretool init" in capsys.readouterr().out
    assert run(["--help"]) == 0
    assert "Usage: foretool" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"foretool, version {__version__}\n"


def test_a_command_is_imported_when_it_is_asked_for() -> None:
    script = (
        "import sys; from foretool.server.commands.group import run; run(['serve', '--help']);"
        "print(any(name.startswith('rich') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.endswith("\nFalse\n")


@pytest.mark.parametrize("name", ["token"])
def test_no_text_beside_a_subcommand_is_cut_at_80_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([name, "--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2]
    assert listed and "..." not in listed


def test_help_shows_what_people_use_first_and_all_the_rest_behind_an_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def listed(*typed: str) -> list[str]:
        assert run(typed) == 0
        return re.findall(r"(?m)^  ([a-z]+) +[A-Z]", capsys.readouterr().out)

    assert listed("--help") == list(FIRST) and len(FIRST) == 8
    assert listed("--help", "--all") == listed("--all", "--help") == listed("--all") == list(COMMANDS)
    assert len(COMMANDS) == 28


BROKEN = '{\n  "mcpServers": {,}\n}'


@pytest.mark.parametrize(
    "words",
    [["list"], ["status"], ["pin"], ["pin", "a"], ["tools"], ["disable", "a"], ["add", "b", "--", "c"], ["doctor"]],
)
def test_each_command_refuses_a_broken_config_alike(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(BROKEN)
    said = []
    for line in (["status", "--config", str(path)], ["--config", str(path), *words]):
        assert run(line) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1] and said[0].startswith(f"foretool: {path}:2:18: ") and "[FT103]" in said[0]


def test_the_config_may_stand_in_front_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    assert run([f"--config={path}", "list", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["calc", "sky"]
    path.write_text(BROKEN)
    assert run(["--config", str(path)]) == 2
    assert "[FT103]" in capsys.readouterr().out
