"""Where the command starts: what it runs without click, and what leaves the process."""

import re
import subprocess
import sys

import click
import pytest

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
