"""Where the command starts: what it runs without click, and what leaves the process."""

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from command_fakes import WEATHER, fill, write_config

from foretool.server import cli


def test_an_error_of_our_own_is_one_line_without_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        cli.main([click])  # type: ignore[list-item]
    assert exit.value.code == 1
    said = capsys.readouterr().err
    assert re.fullmatch(r"foretool: internal error: \w+ in \S+; set FORETOOL_TRACEBACK=1 .*\n", said), said


def test_the_hook_starts_without_anything_heavy() -> None:
    code = (
        "import os, sys\nfrom foretool.server.cli import main\nos._exit = sys.exit\n"
        "try: main(['hint'])\n"
        "except SystemExit: print(sorted({'click', 'rich', 'asyncio', 'pydantic', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input="", capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_what_a_search_says_is_written_whole_before_the_process_leaves(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    words = ("search", "weather forecast", "--json", "--config", str(path))
    done = subprocess.run([sys.executable, "-m", "foretool", *words], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and json.loads(done.stdout)["matches"][0]["tool"] == WEATHER
    wrong = subprocess.run([sys.executable, "-m", "foretool", "search"], capture_output=True, text=True, timeout=30)
    assert wrong.returncode == 2 and "TASK" in wrong.stderr
