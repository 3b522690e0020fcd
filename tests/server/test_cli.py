"""Where the command starts: what it runs without click, and what leaves the process."""

import re
import subprocess
import sys

import click
import pytest

from foretool.server import cli
from foretool.server.cli import plain_hint


def test_an_error_of_our_own_is_one_line_without_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        cli.main([click])  # type: ignore[list-item]
    assert exit.value.code == 1
    said = capsys.readouterr().err
    assert re.fullmatch(r"foretool: internal error: \w+ in \S+; set FORETOOL_TRACEBACK=1 .*\n", said), said


def test_the_hooks_command_line_needs_no_click() -> None:
    plain = [["hint"], ["hint", "--config", "a.json"], ["hint", "--config=a.json"]]
    assert [plain_hint(each) for each in plain] == ["", "a.json", "a.json"]
    others: list[list[str]] = [[], ["serve"], ["hint", "--help"], ["hint", "--install"], ["hint", "--config"]]
    assert [plain_hint(each) for each in others] == [None] * 5
    code = (
        "import sys\nfrom foretool.server.cli import main\n"
        "try: main(['hint'])\n"
        "except SystemExit: print(sorted({'click', 'rich', 'asyncio', 'pydantic', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input="", capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "[]\n"
