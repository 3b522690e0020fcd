"""Whatever a user did between the first `foretool init` and `foretool uninstall`, no client loses a server."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from requirements import requirement

from foretool.server.commands import uninstall
from foretool.server.commands.group import run
from foretool.server.setup.documents import open_document
from foretool.server.setup.launches import starts_foretool

CLAUDE = (
    '{\n  "numStartups": 12,\n  "mcpServers": {\n    "time": {"command": "uvx", "args": ["mcp-server-time"]}\n  }\n}\n'
)
CURSOR = """// Cursor
{
\t"mcpServers": {
\t\t/* same as in Claude Desktop */
\t\t"files": {"command": "npx", "args": ["files-mcp", "/srv"]},
\t}
}
"""
CODEX = 'model = "o4"  # mine\n\n[mcp_servers.git]  # a comment\ncommand = "uvx"\nargs = ["mcp-server-git"]\n'
FILES = {".claude.json": CLAUDE, ".cursor/mcp.json": CURSOR, ".codex/config.toml": CODEX}
KEYS = {".codex/config.toml": "mcp_servers"}


class Home:
    """A home folder with three clients, and what each of them must have in the end."""

    def __init__(self, path: Path) -> None:
        self.path, self._count = path, 0
        self.expected: dict[str, dict[str, Any]] = {}
        self.added_by_foretool: list[str] = []
        for name, text in FILES.items():
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_text(text)
            self.expected[name] = self.servers(name)

    def servers(self, name: str) -> dict[str, Any]:
        """Return the servers that a client's file has now."""
        kind = "toml" if name.endswith("toml") else "json"
        found = open_document((self.path / name).read_text(), kind).data()  # type: ignore[arg-type]
        return dict(found.get(KEYS.get(name, "mcpServers"), {}))

    def run(self, *words: str) -> str:
        """Run a command of foretool and return what it prints."""
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            run(list(words))
        return printed.getvalue()

    def init(self) -> None:
        self.run("init", "--yes", "--no-start")

    def init_with_hooks(self) -> None:
        self.run("init", "--yes", "--no-start", "--hook", "--shell-hook")

    def undo(self) -> None:
        self.run("init", "--undo")

    def uninstall(self) -> str:
        return self.run("uninstall", "--yes")

    def rewrite(self) -> None:
        """Claude Code writes its whole file again, in its own form."""
        self._count += 1
        path = self.path / ".claude.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "numStartups": 12 + self._count}, indent=1))

    def edit_line(self) -> None:
        """A user changes a line beside the servers."""
        self._count += 1
        path = self.path / ".codex/config.toml"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([f'model = "o{self._count}"  # mine\n', *lines[1:]]))

    def add_by_hand(self) -> None:
        """A user adds a server to Cursor."""
        self._count += 1
        name, path = f"new{self._count}", self.path / ".cursor/mcp.json"
        document = open_document(path.read_text(), "json")
        document.set(("mcpServers", name), {"command": name})
        path.write_text(document.text())
        self.expected[".cursor/mcp.json"][name] = {"command": name}

    def add_by_foretool(self) -> None:
        self._count += 1
        name = f"notes{self._count}"
        self.run("add", name, "--no-start", "--", name)
        self.added_by_foretool.append(name)

    def check_no_client_is_cut_off(self) -> None:
        """A client that starts foretool has a config to start it with."""
        for name in FILES:
            if any(starts_foretool(entry) for entry in self.servers(name).values()):
                assert (self.path / ".config/foretool/mcp.json").is_file()

    def check_end(self, said: str) -> None:
        for name, expected in self.expected.items():
            assert self.servers(name) == expected, name
        config = self.path / ".config/foretool/mcp.json"
        ours = json.loads(config.read_text())["mcpServers"] if config.is_file() else {}
        for name in self.added_by_foretool:
            assert name in ours and name in said.partition("No client will have")[2].partition("alone")[0]
        assert not (self.path / ".claude").exists()


STEPS: dict[str, Callable[[Home], object]] = {
    "init": Home.init,
    "init with hooks": Home.init_with_hooks,
    "a client rewrites its file": Home.rewrite,
    "a line is edited": Home.edit_line,
    "a server is added by hand": Home.add_by_hand,
    "foretool add": Home.add_by_foretool,
    "init --undo": Home.undo,
    "uninstall": Home.uninstall,
}


@pytest.fixture(autouse=True)
def _no_program_is_uninstalled(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "FORETOOL_CONFIG", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(uninstall, "run_commands", lambda *given, **more: 0)


def walk(steps: tuple[str, ...]) -> None:
    with TemporaryDirectory() as folder, patch.dict("os.environ", {"HOME": folder, "PWD": folder}):
        home = Home(Path(folder))
        for step in steps:
            STEPS[step](home)
            home.check_no_client_is_cut_off()
        home.check_end(home.uninstall())


@requirement("manage:uninstall")
@pytest.mark.parametrize("steps", [each for count in range(3) for each in product(STEPS, repeat=count)], ids=", ".join)
def test_no_client_loses_a_server_whatever_came_before(steps: tuple[str, ...]) -> None:
    walk(steps)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=3, max_size=5).map(tuple))
def test_no_client_loses_a_server_after_longer_ways(steps: tuple[str, ...]) -> None:
    walk(steps)


@requirement("setup:undo")
def test_undo_puts_servers_back_into_a_file_that_its_client_rewrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    home = Home(tmp_path)
    home.init()
    home.rewrite()
    home.edit_line()
    said = home.run("init", "--undo")
    assert {name: home.servers(name) for name in FILES} == home.expected
    assert "~/.claude.json is as it was, with your edits since" in said and "has changed since" not in said
    assert json.loads((tmp_path / ".claude.json").read_text())["numStartups"] == 13
    assert (tmp_path / ".codex/config.toml").read_text() == CODEX.replace("o4", "o2")
    assert (tmp_path / ".cursor/mcp.json").read_text() == CURSOR
    assert not (tmp_path / ".config/foretool/mcp.json").exists()
    assert "there is nothing to undo" in home.run("init", "--undo")
    assert "No client has foretool." in home.uninstall()


@requirement("setup:undo")
def test_our_config_stays_while_a_client_starts_foretool_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    home, cursor, ours = Home(tmp_path), tmp_path / ".cursor/mcp.json", tmp_path / ".config/foretool/mcp.json"
    home.init()
    text = cursor.read_text()
    cursor.write_text(text[:-5])
    said = home.run("init", "--undo")
    assert "mcp.json stays: a client that was not put back may start foretool with it" in said and ours.is_file()
    assert ".cursor/mcp.json: " in said and "so it stays as it is; its old text is" in said
    cursor.write_text(text)
    home.run("init", "--undo")
    assert home.servers(".cursor/mcp.json") == home.expected[".cursor/mcp.json"]


@requirement("setup:undo")
def test_an_earlier_init_that_is_still_in_force_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    home = Home(tmp_path)
    home.init()
    home.add_by_hand()
    home.init()
    said = home.run("init", "--undo")
    assert "An earlier init, of 20" in said and "To undo that too: foretool init --undo" in said
    assert "An earlier init" not in home.run("init", "--undo")
    assert {name: home.servers(name) for name in FILES} == home.expected
    home.init()
    home.uninstall()
    assert "foretool uninstall put the files back" in home.run("init", "--undo")


VSCODE = """{
\t// my servers
\t"servers": {
\t\t// search
\t\t"duckduckgo": {
\t\t\t"type": "stdio",
\t\t\t"command": "ddg"
\t\t},
\t\t/* local */ "calculator": { "command": "calc" },
\t\t"tracker": { "type": "http", "url": "http://127.0.0.1:9/mcp" } // refuses
\t}
}
"""
GOOSE = """extensions:
  git:   # my git
    type: stdio
    cmd: uvx
    args: [mcp-server-git]   # a comment
    enabled: true
    name: git
"""
ABOVE, BELOW = "above foretool", "below foretool"
ADDED = {
    (".config/Code/User/mcp.json", ABOVE): ('\t\t"foretool"', '\t\t// new\n\t\t"extra": { "command": "x" },\n\\g<0>'),
    (".config/Code/User/mcp.json", BELOW): (r"\n\t\t}", '\\g<0>,\n\t\t// new\n\t\t"extra": { "command": "x" }'),
    (".codex/config.toml", ABOVE): (r"\[mcp_servers.foretool\]", '# new\n[mcp_servers.extra]\ncommand = "x"\n\n\\g<0>'),
    (".codex/config.toml", BELOW): (r"\s*\Z", '\n\n# new\n[mcp_servers.extra]\ncommand = "x"\n'),
    (".config/goose/config.yaml", ABOVE): ("  foretool:", "  extra:  # new\n    type: stdio\n    cmd: x\n\\g<0>"),
    (".config/goose/config.yaml", BELOW): (r"\s*\Z", "\n  extra:  # new\n    type: stdio\n    cmd: x\n"),
}
"""Where a user adds a server by hand, and what."""
OLD = {".config/Code/User/mcp.json": VSCODE, ".codex/config.toml": CODEX, ".config/goose/config.yaml": GOOSE}


@requirement("setup:undo")
@pytest.mark.parametrize("back", [["init", "--undo"], ["uninstall", "--yes"]], ids=" ".join)
@pytest.mark.parametrize(("name", "place"), ADDED)
def test_what_init_took_comes_back_as_it_was_written_beside_a_server_that_the_user_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, place: str, back: list[str]
) -> None:
    """A comment was lost and four entries came back in another layout, under the words "as it was"."""
    monkeypatch.setenv("HOME", str(tmp_path))
    home = Home(tmp_path)
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(OLD[name])
    home.init()
    assert "uvx" not in path.read_text() and "refuses" not in path.read_text()
    path.write_text(re.sub(*ADDED[name, place], path.read_text(), count=1))
    said = " ".join(home.run(*back).split())
    text = path.read_text()
    new = [line for line in text.splitlines() if line not in OLD[name].splitlines()]
    assert set(OLD[name].splitlines()) <= set(text.splitlines()) and "new" in new[0] + new[1] and "foretool" not in text
    assert f"~/{name} is as it was, with your edits" in said or f"~/{name} becomes what it was" in said


@requirement("setup:undo")
@pytest.mark.parametrize("back", [["init", "--undo"], ["uninstall", "--yes"]], ids=" ".join)
def test_a_file_whose_comments_do_not_come_back_names_the_copy_that_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: list[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    home = Home(tmp_path)
    home.init()
    path = tmp_path / ".codex/config.toml"
    path.write_text(path.read_text().replace("[mcp_servers.foretool]", "[mcp_servers.foretool]  # the gateway"))
    said = " ".join(home.run(*back).split())
    assert home.servers(".codex/config.toml") == home.expected[".codex/config.toml"]
    place = said.partition("not all with the comments and the layout they had; the old text is in ~/")[2].split()[0]
    assert (tmp_path / place).read_text() == CODEX
    assert "~/.codex/config.toml is as it was" not in said and "~/.codex/config.toml becomes" not in said
