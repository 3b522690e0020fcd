"""What entries of clients start, what is wrong with them, and what they should say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from foretool.server.commands import serve
from foretool.server.commands.serving import ServeOptions
from foretool.server.commands.window import read_options
from foretool.server.setup.launches import (
    _known,
    config_of,
    find_fault,
    lacks_serve,
    mend,
    starts_foretool,
    write_launch,
)

LAUNCHER = ["/new/bin/foretool"]


def test_foretool_itself_is_no_server() -> None:
    assert starts_foretool({"command": "/opt/bin/foretool", "args": ["serve"]})
    assert starts_foretool({"command": r"C:\tools\foretool.exe", "args": ["serve"]})
    assert starts_foretool({"command": "uvx", "args": ["foretool", "serve", "--config", "/a"]})
    assert starts_foretool({"command": "uvx", "args": ["--from", "foretool[all]", "foretool", "serve"]})
    assert starts_foretool({"command": "uvx", "args": ["foretool[all]", "serve"]})
    assert starts_foretool({"command": "uv", "args": ["run", "/opt/bin/foretool", "serve"]})
    assert not starts_foretool({"command": "docs", "args": ["serve", "--root", "/src/foretool"]})
    assert not starts_foretool({"command": "foretool", "args": ["hint"]})
    assert not starts_foretool({"command": "npx", "args": ["foretool-docs", "serve"]})
    assert not starts_foretool({"command": "npx", "args": ["@mcp/server-filesystem", "/home/ann/foretool"]})


@pytest.mark.parametrize(
    ("entry", "lacks"),
    [
        ({"command": "/opt/foretool"}, True),
        ({"command": "foretool", "args": ["--config", "/a"]}, True),
        ({"command": "/usr/bin/python3", "args": ["-P", "-m", "foretool"]}, True),
        ({"command": "foretool", "args": ["serve"]}, False),
        ({"command": "foretool", "args": ["doctor"]}, False),
        ({"command": "python", "args": ["-m", "other", "foretool"]}, False),
        ({"command": "docs", "args": []}, False),
        ({"url": "http://h/foretool"}, False),
    ],
)
def test_an_entry_without_serve_is_one_of_ours_that_does_not_work(entry: dict[str, Any], lacks: bool) -> None:
    assert lacks_serve(entry) is lacks
    assert not lacks or starts_foretool(entry)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name, first in (("good", "#!/bin/sh"), ("orphan", "#!/gone/bin/python")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "foretool").write_text(f"{first}\n")
        (tmp_path / name / "foretool").chmod(0o755)
    (tmp_path / "mcp.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "args", "fault"),
    [
        ("{home}/good/foretool", ["serve", "--config", "{home}/mcp.json"], ""),
        ("{home}/good/foretool", ["serve", "--config={home}/mcp.json", "--profile", "w", "--alone", "--http"], ""),
        ("{home}/gone/foretool", ["serve"], "{home}/gone/foretool is not a program"),
        ("no-such-foretool", ["foretool", "serve"], "no-such-foretool is not a program"),
        ("{home}/good", ["foretool", "serve"], "{home}/good is not a program"),
        ("{home}/orphan/foretool", ["serve"], "{home}/orphan/foretool needs /gone/bin/python, which is gone"),
        ("{home}/good/foretool", [], 'its arguments lack "serve"'),
        ("{home}/good/foretool", ["serve", "--stdio"], "foretool serve does not take --stdio"),
        ("{home}/good/foretool", ["serve", "--config"], "foretool serve does not take --config"),
        ("{home}/good/foretool", ["serve", "mcp.json"], "foretool serve does not take mcp.json"),
        ("{home}/good/foretool", ["serve", "--config", "{home}/old.json"], "its config {home}/old.json does not exist"),
    ],
)
def test_why_an_entry_cannot_start_foretool(home: Path, command: str, args: list[str], fault: str) -> None:
    entry = {"command": command.format(home=home), "args": [each.format(home=home) for each in args]}
    found = find_fault(entry, {"HOME": str(home), "PATH": "/usr/bin:/bin", "XDG_CONFIG_HOME": ""})
    if fault or "--config" in str(args):
        assert found == fault.format(home=home)


@pytest.mark.parametrize(
    ("command", "args", "wanted"),
    [
        ("/gone/foretool", ["serve", "--config", "{own}"], ["/new/bin/foretool", "serve", "--config", "{own}"]),
        ("/gone/foretool", ["serve", "--profile", "work", "--config={own}", "--alone"],
         ["/new/bin/foretool", "serve", "--profile", "work", "--config={own}", "--alone"]),
        ("/gone/uvx", ["--from", "foretool[all]", "foretool", "serve", "--config", "{own}"],
         ["/new/bin/foretool", "serve", "--config", "{own}"]),
        ("{good}", ["serve", "--stdio", "--config", "{own}", "x"], ["{good}", "serve", "--config", "{own}"]),
        ("{good}", [], ["{good}", "serve", "--config", "{own}"]),
        ("{good}", ["serve", "--config", "/gone.json", "--alone"], ["{good}", "serve", "--config", "{own}", "--alone"]),
        ("{good}", ["--config", "{own}"], ["{good}", "serve", "--config", "{own}"]),
    ],
)  # fmt: skip
def test_what_it_should_say(home: Path, command: str, args: list[str], wanted: list[str]) -> None:
    words = {"own": str(home / "mcp.json"), "good": str(home / "good" / "foretool")}
    entry = {"command": command.format(**words), "args": [each.format(**words) for each in args]}
    environ = {"HOME": str(home / "nobody"), "PATH": "/usr/bin:/bin"}
    mended = mend(entry, LAUNCHER, home / "mcp.json", environ)
    assert mended == [each.format(**words) for each in wanted]
    assert read_options(mended[mended.index("serve") :]) is not None
    assert config_of({"command": mended[0], "args": mended[1:]}, environ) == str(home / "mcp.json")


def test_an_entry_that_means_your_own_file_without_naming_it_stays_short(home: Path) -> None:
    environ = {"HOME": str(home), "PATH": ""}
    own = home / ".config" / "foretool" / "mcp.json"
    assert mend({"command": "/gone/foretool", "args": ["serve"]}, LAUNCHER, own, environ) == [*LAUNCHER, "serve"]


@pytest.mark.parametrize(
    "rest", [["--config", "a"], ["--config=a", "--alone"], ["--http"], ["--http", "h:1"], ["--http", "--alone"],
             ["--profile", "p", "--http=unix:/a"], ["--nonsense"], ["--config"], ["a"], ["--alone=1"]]
)  # fmt: skip
def test_it_knows_the_arguments_that_serve_takes(rest: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "serve", lambda options: int(not isinstance(options, ServeOptions)))
    result = CliRunner().invoke(serve.command, rest)
    assert (_known(rest) == rest) is (result.exit_code == 0), result.output


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ({"command": "a", "args": ["b"], "env": {}}, {("command",): "x", ("args",): ["serve"]}),
        ({"command": "a"}, {("command",): "x", ("args",): ["serve"]}),
        ({"command": ["a", "b"]}, {("command",): ["x", "serve"]}),
        ({"command": ["a"], "args": ["b"]}, {("command",): ["x", "serve"], ("args",): []}),
        ({"command": {"path": "a"}}, {("command", "path"): "x", ("command", "args"): ["serve"]}),
        ({"cmd": "a", "args": []}, {("cmd",): "x", ("args",): ["serve"]}),
        ({"type": "stdio", "config": {"cmd": "a"}}, {("config", "cmd"): "x", ("config", "args"): ["serve"]}),
    ],
)
def test_each_spelling_of_an_entry_keeps_its_own(written: dict[str, Any], wanted: dict[Any, Any]) -> None:
    assert write_launch(written, ["x", "serve"]) == wanted
