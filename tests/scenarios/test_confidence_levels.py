"""What a client of a default install is told of how sure an answer is: a fresh store, the encoder that ships, policy
`auto`."""

from __future__ import annotations

import inspect
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
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, Match, ToolId

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("forked"),
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
NOTHING = {"type": "object", "properties": {}}
URL = {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}
TASK = "search the folder Documents for files whose names match report"


@contextmanager
def serving(folder: Path, *without: str, servers: dict[str, dict[str, str]] = SERVERS) -> Iterator[Served]:
    """A proxy over these servers, less some tools, whose searches read by meaning."""
    folder.mkdir(exist_ok=True)
    entries = {}
    for name, tools in servers.items():
        listed = folder / f"{name}.json"
        kept = {tool: text for tool, text in tools.items() if tool not in without}
        listed.write_text(
            json.dumps(
                [
                    {"name": tool, "description": text, "inputSchema": URL if tool == "fetch" else NOTHING}
                    for tool, text in kept.items()
                ]
            )
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
    assert unserved["confidence"] in ("low", "none") and "in other words" in unserved["advice"]
    with serving(tmp_path / "less", "search_files") as served:
        removed = search(served, TASK)
    assert removed["confidence"] != "high"


def record(folder: Path, searches: int, *, right: bool, tools: int = 1000) -> None:
    """Put searches into the store of a proxy, after each of which its first tool was called, or one that only another
    search found; so many tools stood first in them."""
    folder.mkdir()
    with open_store(folder / "store.sqlite3") as store, store.atomic():
        for at in range(searches):
            first, other = ToolId(f"old__t{at % tools}"), ToolId("old__other")
            found = Discovery(
                "earlier", float(at), f"task {at}", (), None, "medium", (Match(first, 1, 1.0),), 1, 1.0, handle=str(at),
                probability=0.9, first_probability=0.8,
            )  # fmt: skip
            id = store.discoveries.add(found)
            called = (first, id) if right else (other, 0)
            store.calls.record(
                [
                    Call(
                        "earlier",
                        at + 0.5,
                        called[0],
                        "old",
                        "bridge",
                        True,
                        "ok",
                        1.0,
                        True,
                        "",
                        called[1],
                        handle=str(at),
                    )
                ]
            )


NEARLY, HALF_SURE = "rename draft.txt to final.txt", "put lunch into the calendar on Friday"
"""The gate as shipped says .86 and .76 of their first tools, which are right."""


@requirement("gate:use")
@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (None, ("high", "medium", "medium")),
        ({"searches": 50, "right": True}, ("high", "high", "medium")),
        ({"searches": 50, "right": False}, ("low", "low", "low")),
        # What a server can bring about: its one tool called time and again, or any number of its tools.
        ({"searches": 500, "right": True, "tools": 1}, ("high", "medium", "medium")),
        ({"searches": 800, "right": True}, ("high", "high", "medium")),
    ],
    ids=["none", "right", "wrong", "one tool", "flood"],
)
def test_what_followed_earlier_searches_says_how_often_an_answer_is_sure(
    log: dict[str, Any] | None, expected: tuple[str, str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "used"
    if log is not None:
        record(folder, **log)
    levels: tuple[str, ...] = ()
    with serving(folder) as served:
        time.sleep(3.0)  # a proxy reads the log in its first seconds, later on a busy machine
        until = time.monotonic() + 6 * PATIENCE_S
        while levels != expected and time.monotonic() < until:
            levels = tuple(search(served, task)["confidence"] for task in (TASK, NEARLY, HALF_SURE))
            time.sleep(0.2)
    assert levels == expected


@requirement("ranking:address")
def test_the_words_of_a_web_address_or_a_path_do_not_decide_which_tool_is_needed(tmp_path: Path) -> None:
    servers = {
        "web": {"fetch": "Fetches a page from the internet and extracts its contents as markdown"},
        "linear": {
            "search_issues": "Search issues, tickets and prices", "list_releases": "List releases with their notes",
        },
        "git": {"show_changes": "Show what changed in the files", "log": "List commits since a date"},
        "memory": {"add_facts": "Remember facts about people and places"},
    }  # fmt: skip
    servers["files"] = {"read_text_file": "Read the whole text of a file", "list_directory": "List a folder"}
    servers["files"]["search_files"] = "Search for files by pattern"
    servers["github"] = {"search_code": "Search for code across GitHub repositories"}
    with serving(tmp_path, servers=servers) as served:
        for task in (
            "What does a ticket for children cost according to https://museum.example.com/tickets/prices?",
            "who is named at https://example.com/releases/notes and what else does it say",
            "which issues does https://git.example.com/log mention",
        ):
            assert search(served, task)["matches"][0]["name"] == "web__fetch", task
        for path in ("/home/me/linear/issues/list.txt", "./git/log/changes/words.txt", "src/memory/facts/people.py"):
            assert search(served, f"what does {path} say?")["matches"][0]["name"] == "files__read_text_file", path
        assert search(served, "search vuejs/vue.js for useEffect")["matches"][0]["name"] == "github__search_code"


CODE = inspect.getsource(json.JSONDecoder)[:1800]
TRACE = "\n".join(
    f'  File "/home/me/app/part{at}.py", line {at}, in load\n    result = process(path[{at}], encoding=None)'
    for at in range(12)
)
LOG = "\n".join(f"2026-11-30T10:{at:02d}:12Z INFO [worker-{at}] GET /api/v1/users/{at} 200 {at}ms" for at in range(40))
DATA = json.dumps([{"id": at, "name": f"User {at}", "email": f"u{at}@example.com"} for at in range(20)], indent=1)
TABLE = "\n".join(f"{at},Customer {at},{at}0.50,2026-01-{at:02d},DE" for at in range(1, 30))


@requirement("gate:use")
def test_a_pasted_block_finds_few_tools_and_a_wish_with_one_still_finds_its_own(tmp_path: Path) -> None:
    parts = ("page", "row", "cell", "link", "image", "list", "table", "line", "user", "group", "event", "order")
    deeds = {"read": "Reads", "edit": "Changes the text of", "find": "Finds by name", "add": "Adds"}
    many = {f"{deed}_{part}": f"{said} the {part} of a document" for part in parts for deed, said in deeds.items()}
    files = {**SERVERS["files"], "write_file": "Write text into a file, which is made if it is missing"}
    blocks = {"code": CODE, "trace": TRACE, "log": LOG, "data": DATA, "table": TABLE, "base64": 60 * "bW92ZV9maWxlIGxp"}
    with serving(tmp_path, servers={**SERVERS, "files": files, "docs": many}) as served:
        for kind, block in blocks.items():
            alone, wish = search(served, block), search(served, f"save this as notes.txt:\n{block}")
            most = 5 if alone["confidence"] in ("low", "none") else 10
            assert len(alone["matches"]) <= most and alone["confidence"] != "high", kind
            names = [match["name"] for match in wish["matches"]] or [each["name"] for each in wish["nearest"]]
            assert len(names) <= 10 and "files__write_file" in names, (kind, names)
