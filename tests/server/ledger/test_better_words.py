"""Better descriptions and names, from words of tasks that may say anything."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from recorded_tasks import write_recorded

from foretool.server import offline
from foretool.server.config import loader
from foretool.server.ledger.better_words import describe_for, name_for
from foretool.storage.records import Tool, ToolId


def test_a_description_gains_the_words_once_and_on_one_line() -> None:
    tool = Tool(ToolId("a__b"), "a", "b", b'{"name":"b","description":"Does it."}', "h")
    assert describe_for(tool, "find\x1b my\nkeys\u202e.") == "Does it.\nUsed for: find my keys."
    again = replace(tool, definition=b'{"name":"b","description":"Does it.\\nUsed for: find keys."}')
    assert describe_for(again, "Find keys") is None
    assert describe_for(again, "open doors") == "Does it.\nUsed for: find keys. open doors."
    assert describe_for(tool, "  ") is None


def name(folder: Path, *tasks: str, other: str = "", **override: Any) -> str | None:
    """The name that `sky__moon` could get for these tasks."""
    path = write_recorded(folder, [])
    text = json.loads(path.read_text())
    text["mcpServers"]["sky"]["tools"] = {"moon": override}
    path.write_text(json.dumps(text))
    with offline.read(loader.load(path)) as app:
        (tool,) = (each for each in app.catalog.tools() if (each.upstream, each.name) == ("sky", "moon"))
        return name_for(app.catalog, tool, tasks, app.catalog.get(ToolId(other)) if other else None)


def test_a_name_takes_the_word_that_most_tasks_share(tmp_path: Path) -> None:
    assert name(tmp_path, "when is the lunar eclipse", "eclipse of the moon") == "moon_eclipse"


def test_a_name_lacks_the_words_of_the_tool_that_is_taken_for_it(tmp_path: Path) -> None:
    assert name(tmp_path, "forecast of the tide", other="sky__forecast") == "moon_tide"


@pytest.mark.parametrize(
    "task", ["", "the moon", "\u202e\x1b[2J \u0440\u0443\u0441 4711", "x" * 80, "'; drop-table__calc \"}"]
)
def test_no_word_that_may_not_stand_in_a_name_is_in_one(tmp_path: Path, task: str) -> None:
    found = name(tmp_path, task)
    assert found is None or (found.isascii() and found.replace("_", "").isalpha() and len(found) <= 40)


def test_a_tool_that_the_user_named_keeps_its_name(tmp_path: Path) -> None:
    assert name(tmp_path, "when is the eclipse", name="luna") is None


@pytest.mark.parametrize("own", ["alarm_change", "bookFlight", "get-moon"])
def test_a_name_of_several_words_gets_no_other_word_behind_it(tmp_path: Path, own: str) -> None:
    path = write_recorded(tmp_path, [])
    with offline.read(loader.load(path)) as app:
        tool = Tool(ToolId(f"sky__{own}"), "sky", own, b"{}", "h")
        assert name_for(app.catalog, tool, ["eclipse of the sun"]) is None


@pytest.mark.parametrize("task", ["daily", "how full tonight", "is it waning", "shared"])
def test_no_word_that_says_when_or_how_is_in_a_name(tmp_path: Path, task: str) -> None:
    assert name(tmp_path, task) is None
