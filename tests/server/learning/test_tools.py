"""Learning reads tools by every name of theirs, and their text as it was at first."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learning_setting import Setting, change_rain
from requirements import requirement

from foretool.server.learning.tools import names_of, trusted_tools
from foretool.storage.records import Tool, ToolId


def test_a_tool_may_be_called_by_any_name_that_is_its_own() -> None:
    tools = [Tool(ToolId(f"{one}__{name}"), one, name, b"{}", "") for one, name in (("a", "x"), ("b", "x"), ("b", "y"))]
    assert names_of(tools) == {
        "y": "b__y", "a/x": "a__x", "b/x": "b__x", "b/y": "b__y", "a__x": "a__x", "b__x": "b__x", "b__y": "b__y",
    }  # fmt: skip


@requirement("learn:trusted")
def test_a_tool_whose_text_changed_is_read_as_it_was_at_first(setting: Setting) -> None:
    now, first = change_rain(setting)
    assert now != first
    assert trusted_tools(setting.store, now) == first
