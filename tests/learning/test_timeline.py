"""Tools are read as they were at first, and later episodes judge what earlier ones trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from requirements import requirement

from foretool.learning.timeline import (
    MOST_REPLAYED,
    KnownModels,
    Timeline,
    rename_calls,
    trusted_tools,
)
from foretool.server.catalog.names import names_for_demonstrations
from foretool.storage.records import Artifact, Episode, Tool, ToolId

if TYPE_CHECKING:
    from learning_setting import Setting


TOOL, GONE = ToolId("a__x"), ToolId("a__gone")


def timeline(imported: int, logged: int) -> Timeline:
    demonstrations = [Episode((TOOL,), source="import", key=str(number)) for number in range(imported)]
    return Timeline(demonstrations, [Episode((TOOL,), at=100.0 + number) for number in range(logged)], {TOOL: "a"})


def model(**report: Any) -> Artifact:
    return Artifact(1, "dtdr", 3, 0.0, "", 0, True, 0, 0.0, report)


def test_the_first_model_is_judged_on_two_parts_of_the_latest_tasks() -> None:
    assert timeline(0, 300).parts_to_replay(None) == [(180, 240), (240, 300)]
    assert timeline(0, 30).parts_to_replay(None) == [(18, 30)]
    assert timeline(0, 9).parts_to_replay(None) == []
    assert timeline(0, 5000).parts_to_replay(None)[0][0] == 5000 - MOST_REPLAYED


def test_a_model_is_not_judged_on_tasks_that_it_has_seen() -> None:
    held = timeline(5, 45)
    seen = model(imported=5, until=104.0)
    assert held.place_after(seen) == 10
    # The new model is trained on half of what the old one has not seen.
    assert held.parts_to_replay(seen) == [(30, 50)]
    assert held.describe_too_few("dtdr", model(imported=5, until=143.0)) == (
        "1 tasks since dtdr 3; it takes 10 to tell whether it is better"
    )


def test_of_other_tasks_those_came_earlier_that_began_before() -> None:
    given, others = timeline(2, 3), [Episode((TOOL,), source="import"), *(Episode((TOOL,), at=at) for at in (99, 101))]
    assert [len(given.earlier(others, place)) for place in range(6)] == [0, 0, 2, 2, 3, 3]


def test_calls_of_removed_tools_are_left_out_and_usage_is_as_of_then() -> None:
    held = Timeline([], [Episode((TOOL, GONE)), Episode((TOOL,))], {TOOL: "a"})
    assert held.calls(0, 2) == [(TOOL,), (TOOL,)]
    assert {tool: each.calls for tool, each in held.usage_before(1).items()} == {TOOL: 1}


def test_the_latest_model_that_has_not_seen_a_place_ranks_it() -> None:
    known: KnownModels = KnownModels()
    first, second, other = (object() for _ in range(3))
    known.add("dtdr", 10, first)  # type: ignore[arg-type]
    known.add("dtdr", 20, second)  # type: ignore[arg-type]
    known.add("tgr", 15, other)  # type: ignore[arg-type]
    assert known.before(9) == {}
    assert known.before(19) == {"dtdr": first, "tgr": other}
    assert known.before(20) == {"dtdr": second, "tgr": other}
    assert (len(known), known.places()) == (2, [10, 15, 20])


def test_a_tool_may_be_called_by_any_name_that_is_its_own() -> None:
    tools = [Tool(ToolId(f"{one}__{name}"), one, name, b"{}", "") for one, name in (("a", "x"), ("b", "x"), ("b", "y"))]
    assert names_for_demonstrations(tools) == {
        "y": "b__y", "a/x": "a__x", "b/x": "b__x", "b/y": "b__y", "a__x": "a__x", "b__x": "b__x", "b__y": "b__y",
    }  # fmt: skip


@requirement("learn:trusted")
def test_a_tool_whose_text_changed_is_read_as_it_was_at_first(setting: Setting) -> None:
    from learning_setting import change_rain  # needs numpy

    now, first = change_rain(setting)
    assert now != first
    assert trusted_tools(setting.store, now) == first


@requirement("learn:trusted")
def test_the_users_own_words_are_read_whatever_the_server_said_later(setting: Setting) -> None:
    from learning_setting import change_rain  # needs numpy

    now, first = change_rain(setting)
    told = trusted_tools(setting.store, now, lambda tool: replace(tool, definition=tool.definition + b" mine"))
    assert [tool.definition for tool in told if tool.name == "rain"] == [
        tool.definition + b" mine" for tool in first if tool.name == "rain"
    ]


def test_calls_by_an_earlier_name_are_those_of_the_tool() -> None:
    tool = Tool(ToolId("sky__wet"), "sky", "rain", b"{}", "")
    known = {"sky__rain": tool, "sky__wet": tool}
    told = [Episode((ToolId("sky__rain"), ToolId("gone__x")), failed=(ToolId("sky__rain"),))]
    assert rename_calls(told, known.get) == [Episode((ToolId("sky__wet"), ToolId("gone__x")), failed=(tool.id,))]
