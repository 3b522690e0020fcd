"""The list of tools: their use, the user's words, and whether clients see them."""

from __future__ import annotations

from pathlib import Path

from command_fakes import CALC, WEATHER, fill, write_config

from foretool.desk.page import tools
from foretool.desk.page.viewer import Viewer
from foretool.server.config.loader import load
from foretool.storage.records import Tool, ToolId

ALL = Viewer("key")


def test_tools_come_with_their_use_and_the_users_words(tmp_path: Path) -> None:
    words = {"forecast": {"description": "My weather"}}
    path = write_config(tmp_path, {"calc": {"command": "calc"}, "sky": {"command": "sky", "tools": words}})
    fill(path).close()
    total, rows = tools.read_tools(load(path), ALL, "", "", "")
    assert (total, rows[0].id, rows[0].calls, rows[0].misses, rows[0].is_yours) == (3, WEATHER, 1, 1, True)
    assert [row.id for row in tools.read_tools(load(path), ALL, "ADD", "", "")[1]] == [CALC]


def test_tools_are_filtered_by_what_became_of_them(tmp_path: Path) -> None:
    path = write_config(tmp_path, pin=["calc__add"])
    fill(path).close()

    def names(use: str) -> set[str]:
        return {row.id for row in tools.read_tools(load(path), ALL, "", "", use)[1]}

    every = {"calc__add", "sky__forecast", "sky__moon"}
    assert names("") == names("' or 1=1") == every
    assert names("used") == names("missed") == {WEATHER}
    assert names("never") == every - {WEATHER}
    assert CALC in names("listed") and names("hidden") == every - names("listed")


def test_one_profile_sees_its_servers_and_its_own_use(tmp_path: Path) -> None:
    path = write_config(tmp_path, profiles={"work": {"servers": ["sky"]}})
    fill(path).close()
    total, rows = tools.read_tools(load(path), Viewer("key", "work"), "", "", "")
    assert total == 2 and {row.upstream for row in rows} == {"sky"}
    assert [row.calls + row.misses for row in rows] == [0, 0]
    assert tools.read_tools(load(path), Viewer("key", "gone"), "", "", "") == (0, [])


def test_a_member_that_is_no_text_is_empty() -> None:
    tool = Tool(ToolId("a__b"), "a", "b", b'{"name":"b","description":"Does it.","title":7}', "h")
    assert (tools.member(tool, "description"), tools.member(tool, "title"), tools.member(tool, "other")) == (
        "Does it.",
        "",
        "",
    )
