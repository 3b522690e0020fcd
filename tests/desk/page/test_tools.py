"""The list of tools: their use, the user's words, and whether clients see them."""

from __future__ import annotations

from pathlib import Path

from command_fakes import CALC, WEATHER, fill, remember, write_config

from foretool.desk.page import tools
from foretool.desk.page.viewers import Viewer
from foretool.server.config.loader import load
from foretool.storage.opening import open_store
from foretool.storage.records import Tool, ToolId

ALL = Viewer("key")


def test_tools_come_with_their_use_and_the_users_words(tmp_path: Path) -> None:
    words = {"forecast": {"description": "My weather"}}
    path = write_config(tmp_path, {"calc": {"command": "calc"}, "sky": {"command": "sky", "tools": words}})
    fill(path).close()
    page = tools.matching_tools(load(path), ALL, "", "", "")
    assert (page.total, page.is_open) == (3, False)
    # The server with most calls comes first, and its most called tool.
    sky, calc = page.groups
    assert (sky.server, sky.total, sky.calls, sky.misses) == ("sky", 2, 1, 1)
    assert sky.tokens == sum(row.tokens for row in sky.tools) > 0
    first = sky.tools[0]
    assert (first.id, first.calls, first.misses, first.is_yours) == (WEATHER, 1, 1, True)
    assert [row.id for row in calc.tools] == [CALC]
    for text, found in (("ADD", [CALC]), ("two NUMBERS", [CALC]), ("my weather", [WEATHER]), ("nothing", [])):
        page = tools.matching_tools(load(path), ALL, text, "", "")
        assert page.is_open and [row.id for group in page.groups for row in group.tools] == found


def test_a_page_names_few_tools_of_each_of_many_servers(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(50)]
    path = write_config(tmp_path, {name: {"command": name} for name in names})
    config = load(path)
    with open_store(config.storage) as store:
        for name in names:
            remember(config, store, name, {f"t{number}": "Does it." for number in range(9)})
    page = tools.matching_tools(config, ALL, "", "", "")
    assert (page.total, len(page.groups)) == (450, 50)
    assert {(group.total, len(group.tools)) for group in page.groups} == {(9, tools.FEWEST)}
    (own,) = tools.matching_tools(config, ALL, "", "s7", "").groups
    assert len(own.tools) == 9


def test_tools_are_filtered_by_what_became_of_them(tmp_path: Path) -> None:
    path = write_config(
        tmp_path,
        {"calc": {"command": "calc"}, "sky": {"command": "sky", "deny": ["moon"]}},
        pin=["calc__add"],
        list_fill=True,
    )
    fill(path).close()

    def names(use: str) -> set[str]:
        groups = tools.matching_tools(load(path), ALL, "", "", use).groups
        return {row.id for group in groups for row in group.tools}

    every = {"calc__add", "sky__forecast", "sky__moon"}
    assert names("") == names("' or 1=1") == every
    assert names("used") == names("missed") == {WEATHER}
    assert names("never") == every - {WEATHER}
    assert (names("defined"), names("named"), names("hidden")) == ({CALC}, {WEATHER}, {"sky__moon"})


def test_one_profile_sees_its_servers_and_its_own_use(tmp_path: Path) -> None:
    path = write_config(tmp_path, profiles={"work": {"servers": ["sky"]}})
    fill(path).close()
    (group,) = tools.matching_tools(load(path), Viewer("key", "work"), "", "", "").groups
    assert (group.server, group.total, group.calls, group.misses) == ("sky", 2, 0, 0)
    assert tools.matching_tools(load(path), Viewer("key", "gone"), "", "", "").groups == []


def test_a_member_that_is_no_text_is_empty() -> None:
    tool = Tool(ToolId("a__b"), "a", "b", b'{"name":"b","description":"Does it.","title":7}', "h")
    assert (
        tools.text_member(tool, "description"),
        tools.text_member(tool, "title"),
        tools.text_member(tool, "other"),
    ) == (
        "Does it.",
        "",
        "",
    )
