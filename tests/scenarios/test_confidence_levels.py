"""What a client of a default install is told of how sure an answer is: a fresh store, the encoder that ships, policy
`auto`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from requirements import requirement
from served import PATIENCE_S, Served, write_config

from foretool.retrieval import encoders

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(encoders.locate(encoders.MANIFEST[0]) is None, reason="the encoder's weights are not installed"),
]

ECHO = Path(__file__).parents[1] / "support" / "echo_upstream.py"
SERVERS = {
    "files": {
        "search_files": "Search a folder and its subfolders for files whose names match a pattern",
        "read_file": "Read the whole text of a file",
        "move_file": "Move or rename a file",
        "create_directory": "Create a new folder",
        "delete_directory": "Delete a folder with all that is in it",
    },
    "calendar": {
        "create_event": "Create an event in the calendar",
        "list_events": "List the events of a day or a week",
        "find_free_time": "Find times at which all attendees are free",
    },
    "mail": {
        "send_email": "Send an e-mail to one or more people",
        "search_emails": "Search the mailbox for messages by sender, subject or text",
        "delete_email": "Delete an e-mail for good",
    },
}
TASK = "search the folder Documents for files whose names match report"


@contextmanager
def serving(folder: Path, *without: str) -> Iterator[Served]:
    """A proxy over these servers, less some tools, whose searches read by meaning."""
    folder.mkdir()
    entries = {}
    for name, tools in SERVERS.items():
        listed = folder / f"{name}.json"
        schema = {"type": "object", "properties": {}}
        kept = {tool: text for tool, text in tools.items() if tool not in without}
        listed.write_text(
            json.dumps([{"name": tool, "description": text, "inputSchema": schema} for tool, text in kept.items()])
        )
        entries[name] = {"command": sys.executable, "args": [str(ECHO), "--listed", str(listed)]}
    served = Served(write_config(folder, entries, encoder="auto"), "--alone")
    served.initialize()
    served.list_tools()
    until = time.monotonic() + 6 * PATIENCE_S
    while "note" in search(served, TASK):
        assert time.monotonic() < until
        time.sleep(0.5)
    yield served
    assert served.leave() == 0


def search(served: Served, task: str) -> dict[str, Any]:
    arguments = {"task": task, "structured": True}
    found: dict[str, Any] = served.ask("tools/call", {"name": "discover_tools", "arguments": arguments})
    return found["structuredContent"]  # type: ignore[no-any-return]


@requirement("gate:high")
@requirement("gate:unread")
@requirement("gate:harmless")
def test_high_is_said_of_a_tool_that_fits_and_not_of_what_is_left_without_it_or_cannot_be_read(tmp_path: Path) -> None:
    with serving(tmp_path / "whole") as served:
        right, unread = search(served, TASK), search(served, "ta bort inget, skapa mappen åt mig i morgon")
        unserved = search(served, "play some jazz in the living room")
    assert (right["confidence"], right["matches"][0]["name"]) == ("high", "files__search_files")
    for each in (unread, unserved):
        names = [match["name"] for match in each["matches"]] or [tool["name"] for tool in each["nearest"]]
        assert each["confidence"] != "high" and "delete" not in names[0]
    assert "in other words" in unserved["advice"]
    with serving(tmp_path / "less", "search_files") as served:
        removed = search(served, TASK)
    assert removed["confidence"] != "high"
