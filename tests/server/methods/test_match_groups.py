"""Matches that say much the same."""

from __future__ import annotations

from fakes import tool

from foretool.retrieval.ranking import Ranked
from foretool.server.methods.match_groups import ALIKE_OF_ONE, group, thin
from foretool.server.protocol.jsonrpc import encode
from foretool.storage.records import Tool, ToolId


def known(server: str, name: str, text: str) -> tuple[Tool, Ranked]:
    id = ToolId(f"{server}__{name}")
    return Tool(id, server, name, encode(tool(name, text)), ""), Ranked(id, 1.0)


def test_what_a_server_says_too_often_stands_behind_the_others() -> None:
    copies = [known("mail", f"click_{number}", "Click an element of the page") for number in range(9)]
    other = known("calc", "paint", "Paint a wall")
    found = [tool.id for tool, _ in thin([*copies, other], 0, 10)]
    assert found.index(other[0].id) == ALIKE_OF_ONE
    assert len(found) == 10


def test_tools_of_two_servers_that_say_the_same_are_like_the_older_one() -> None:
    new, old = known("calc", "click", "Click an element"), known("mail", "click", "Click an element")
    order, like = group([new, old], 0, lambda each: 0 if each == old[0].id else 1)
    assert [tool.id for tool, _ in order] == [old[0].id, new[0].id]
    assert like == {new[0].id: old[0].id}
