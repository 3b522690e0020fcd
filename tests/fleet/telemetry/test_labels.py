"""Texts of strangers as values: short, visible, and few."""

from __future__ import annotations

from requirements import requirement

from foretool.fleet.telemetry.labels import MOST_TEXT, MOST_TOOLS, ToolNames, name_error, name_method, shorten


def test_a_text_becomes_one_short_line_of_visible_characters() -> None:
    assert shorten("add\x1b[2J\nrm\u202e") == "add [2J | rm "
    assert len(shorten("x" * 10**6)) == MOST_TEXT
    assert shorten("half \ud800 of a pair") == "half ? of a pair"


def test_methods_that_mcp_does_not_have_share_a_name() -> None:
    assert [name_method("tools/call"), name_method("evil/" + "x" * 1000)] == ["tools/call", "_OTHER"]


def test_codes_that_the_protocol_does_not_have_share_a_name() -> None:
    assert [name_error(kind) for kind in ("tool_error", "-32602", "-31999", "4711")] == [
        "tool_error", "-32602", "_OTHER", "_OTHER",
    ]  # fmt: skip


@requirement("telemetry:bounded")
def test_only_tools_that_exist_get_a_name_and_only_so_many() -> None:
    names = ToolNames(lambda name: name.startswith("tool"))
    assert names.label("nonsense") == "_other"
    labels = {names.label(f"tool{number}") for number in range(10 * MOST_TOOLS)}
    assert len(labels) == MOST_TOOLS + 1
    assert names.label("tool0") == "tool0"
    assert ToolNames(lambda _: True).label("x" * (MOST_TEXT + 1)) == "_other"
