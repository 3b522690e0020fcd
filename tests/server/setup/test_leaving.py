"""Clients lose foretool and get their own servers back: byte for byte, from a copy, or from our file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretool.server.setup import changes, dialects
from foretool.server.setup.changes import FileChange
from foretool.server.setup.clients import ClientFile
from foretool.server.setup.dialects import Dialect, Entry, write_entry
from foretool.server.setup.documents import Kind, open_document
from foretool.server.setup.leaving import plan_leaving
from foretool.server.setup.scan import FoundFile, scan

BEFORE = '{"mcpServers": {"time": {"command": "uvx", "alwaysAllow": ["x"]}}} // mine\n'
AFTER = '{"mcpServers": {"foretool": {"command": "/b/foretool", "args": ["serve"]}}} // mine\n'
OWN: dict[str, Any] = {"git": {"command": "g", "env": {"A": "1"}}}


def found(path: Path, dialect: Dialect = dialects.PLAIN, kind: Kind = "json") -> list[FoundFile]:
    key = ("mcpServers",)
    return scan([ClientFile(client="c", title="C", path=path, kind=kind, keys=key, dialect=dialect, home=path.parent)])


@pytest.fixture
def client(tmp_path: Path) -> Path:
    path = tmp_path / "client.json"
    path.write_text(BEFORE)
    changes.write_changes([FileChange(path, BEFORE.encode(), AFTER.encode(), "init")], tmp_path / "backups")
    return path


def test_the_way_back_leads_over_several_runs(client: Path, tmp_path: Path) -> None:
    again = AFTER.replace("/b/", "/c/")
    changes.write_changes([FileChange(client, AFTER.encode(), again.encode(), "init")], tmp_path / "backups")
    (change,), _ = plan_leaving(found(client), tmp_path / "backups", OWN)
    assert change.after == BEFORE.encode()


def test_an_edited_file_keeps_the_edit_and_gets_its_own_entries_back(client: Path, tmp_path: Path) -> None:
    client.write_text(AFTER.replace("}}}", '}, "new": {"command": "n"}}, "theme": 1}'))
    (change,), _ = plan_leaving(found(client), tmp_path / "backups", OWN)
    assert open_document(change.after.decode(), "json").data() == {
        "mcpServers": {"new": {"command": "n"}, "time": {"command": "uvx", "alwaysAllow": ["x"]}},
        "theme": 1,
    }
    assert (
        b"// mine" in change.after and change.why == "becomes what it was before foretool init, with your edits since"
    )


def test_without_a_copy_the_servers_of_our_file_come_back(tmp_path: Path) -> None:
    path = tmp_path / "client.json"
    path.write_text(AFTER)
    (change,), _ = plan_leaving(found(path), tmp_path / "backups", OWN)
    assert open_document(change.after.decode(), "json").data() == {
        "mcpServers": {"git": {"command": "g", "args": [], "env": {"A": "1"}}}
    }


def test_a_damaged_list_of_copies_is_passed_over(client: Path, tmp_path: Path) -> None:
    (folder,) = (tmp_path / "backups").iterdir()
    (folder / changes.LIST).write_text("{")
    (change,), _ = plan_leaving(found(client), tmp_path / "backups", OWN)
    assert b'"git"' in change.after


@pytest.mark.parametrize(
    "dialect",
    [
        dialects.PLAIN, dialects.CLAUDE_CODE, dialects.CLINE, dialects.GEMINI, dialects.CODEX, dialects.COPILOT,
        dialects.OPENCODE, dialects.GOOSE, dialects.VSCODE, dialects.ZED, dialects.CONTINUE,
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "uvx", "args": ["x", "--y"], "env": {"A": "1"}},
        {"url": "https://h/mcp", "headers": {"X": "y"}, "type": "http"},
        {"url": "https://h/sse", "headers": {"X": "y"}, "type": "sse"},
    ],
)
def test_what_a_client_gets_it_would_read_as_the_same(dialect: Dialect, entry: Entry) -> None:
    back, _ = dialect.read(write_entry(dialect, entry))
    reached = {key: value for key, value in back.items() if key != "type"}
    assert reached == {key: value for key, value in entry.items() if key != "type"}
    if dialect not in (dialects.CODEX, dialects.OPENCODE, dialects.ZED, dialects.CONTINUE):
        assert back.get("type", "http") == entry.get("type", "http")


@pytest.mark.parametrize("dialect", [dialects.GEMINI, dialects.CODEX, dialects.COPILOT, dialects.GOOSE])
def test_what_restricts_a_server_goes_back_with_it(dialect: Dialect) -> None:
    entry = {"command": "x", "disabled": True, "include": ["a"], "timeout_s": 90}
    back, notes = dialect.read(write_entry(dialect, entry))
    assert (back, notes) == (entry, [])
