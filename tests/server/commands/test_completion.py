"""`foretool completion`, in real shells as far as they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from foretool.server.commands.group import COMMANDS, run

PROGRAM = Path(sys.executable).with_name("foretool")


def shell(command: list[str], home: Path) -> list[str]:
    """The words that a shell offers, run with foretool on PATH."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    environ = {"HOME": str(home), "PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("doc", ["doctor"]),
        ("misses --cau", ["--cause"]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("token n", ["new"]),
    ],
)
def test_bash_completes_commands_options_and_choices(words: str, offered: list[str], tmp_path: Path) -> None:
    before, _, last = words.rpartition(" ")
    line = ["foretool", *before.split(), last]
    quoted = " ".join(f"'{word}'" for word in line)
    script = (
        f"source <(foretool completion bash); COMP_WORDS=({quoted}); COMP_CWORD={len(line) - 1}; "
        '_foretool_completion foretool "${COMP_WORDS[COMP_CWORD]}"; echo "${COMPREPLY[@]}"'
    )
    assert shell(["bash", "--noprofile", "--norc", "-c", script], tmp_path) == offered


@pytest.mark.slow
def test_fish_completes_commands(tmp_path: Path) -> None:
    script = 'foretool completion fish | source; complete --do-complete "foretool doc"'
    assert "doctor" in shell(["fish", "--no-config", "-c", script], tmp_path)


@pytest.mark.slow
def test_zsh_reads_its_completions(tmp_path: Path) -> None:
    script = "autoload -Uz compinit; compinit -D; source <(foretool completion zsh); whence -w _foretool_completion"
    assert shell(["zsh", "-f", "-c", script], tmp_path)[-1] == "function"


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_what_is_printed_asks_foretool_and_writes_nothing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", name]) == 0
    assert f"_FORETOOL_COMPLETE={name}_complete" in capsys.readouterr().out


def test_another_shell_is_refused_with_those_that_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
    assert "completion" in COMMANDS
