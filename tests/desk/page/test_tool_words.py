"""Members of a definition as text."""

from __future__ import annotations

from foretool.desk.page.tool_words import member
from foretool.storage.records import Tool, ToolId


def test_a_member_that_is_no_text_is_empty() -> None:
    tool = Tool(ToolId("a__b"), "a", "b", b'{"name":"b","description":"Does it.","title":7}', "h")
    assert (member(tool, "description"), member(tool, "title"), member(tool, "other")) == ("Does it.", "", "")
