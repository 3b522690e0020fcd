"""`foretool token new`."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretool.server.commands.group import run
from foretool.server.config import loader
from foretool.server.config.tokens import digest, find_problems


def made(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["token", "new", *arguments]) == 0
    return capsys.readouterr().out


def test_a_token_is_shown_once_with_the_entry_that_lets_it_in(capsys: pytest.CaptureFixture[str]) -> None:
    printed = made(capsys, "--name", "laptop", "--profile", "work", "--profile", "default")
    token = printed.split("\n\n")[1]
    lines = printed[printed.index('"tokens"') :].partition("\n\n")[0]
    config = loader.parse(
        f'{{"mcpServers": {{}}, "foretool": {{"profiles": {{"work": {{}}}}, {lines}}}}}'.encode(), Path("mcp.json"), {}
    )
    (entry,) = config.settings.tokens
    assert (entry.name, entry.sha256, entry.profiles) == ("laptop", digest(token), ("work", "default"))
    assert len(token) >= 43
    assert find_problems(config.settings) == []
    assert max(map(len, printed.splitlines())) <= 100


def test_a_name_that_cannot_be_printed_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["token", "new", "--name", "a\nb"]) == 2
    assert "expected a name that can be printed" in capsys.readouterr().err


def test_a_profile_that_the_config_lacks_opens_no_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {}, "foretool": {"profiles": {"work": {}}}}')
    assert run(["--config", str(path), "token", "new", "--profile", "wrok"]) == 2
    assert "no profile 'wrok'; it has: work" in capsys.readouterr().err
    assert run(["token", "new", "--config", str(path), "--profile", "work", "--profile", "default"]) == 0
