"""Tools are read as they were at first, and later episodes judge what earlier ones trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from requirements import requirement

from foretool.learning.timeline import (
    KnownModels,
    Timeline,
    drop_calls,
    read_demonstrations,
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
    assert timeline(0, 5000).parts_to_replay(None)[0][0] == 4700


def test_a_model_is_not_judged_on_tasks_that_it_has_seen() -> None:
    held = timeline(5, 45)
    seen = model(imported=5, until=104.0)
    assert held.place_after(seen) == 10
    # The new model is trained on half of what the old one has not seen.
    assert held.parts_to_replay(seen) == [(30, 50)]
    assert held.describe_too_few("dtdr", model(imported=5, until=143.0)) == (
        "tasks since dtdr 3: 1 of the 10 that it takes to tell whether it is better"
    )


def test_of_other_tasks_those_came_earlier_that_began_before() -> None:
    given, others = timeline(2, 3), [Episode((TOOL,), source="import"), *(Episode((TOOL,), at=at) for at in (99, 101))]
    assert [len(given.earlier(others, place)) for place in range(6)] == [0, 0, 2, 2, 3, 3]


def test_calls_of_removed_tools_are_left_out_and_usage_is_as_of_then() -> None:
    held = Timeline([], [Episode((TOOL, GONE)), Episode((TOOL,))], {TOOL: "a"})
    assert [each.calls for each in held.episodes] == [(TOOL,), (TOOL,)]
    assert {tool: each.calls for tool, each in held.usage_before(1).items()} == {TOOL: 1}


def test_calls_of_tools_that_no_longer_exist_are_dropped() -> None:
    a, b, c = ToolId("a"), ToolId("b"), ToolId("c")
    whole = Episode((a, c))
    holed = Episode((a, b, c), ("t",), ((0, 1), (0, 2)), at=3.0)
    assert drop_calls([whole, holed, Episode((b,)), Episode(())], {a: 1, c: 1}) == [
        whole, Episode((a, c), ("t",), ((0, 1),), at=3.0), Episode(()),
    ]  # fmt: skip
    (kept,) = drop_calls([Episode((a, c), arguments=('{"x":"number"}', "{}"))], {c: 1})
    assert (kept.calls, kept.arguments) == ((c,), ("{}",))


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


@requirement("learn:import")
def test_demonstrations_may_use_any_name_of_a_tool_and_rows_with_unknown_tools_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "demos.jsonl"
    rows = [
        {"id": "7", "query": "do", "calls": ["a", "u/b"], "edges": [[0, 1]], "args": [{"x": 1}, {}]},
        {"query": "other", "calls": ["gone"]},
        {"query": "chat", "calls": ["a"], "needs_tool": False},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    names = {"a": ToolId("u__a"), "u/b": ToolId("u__b")}
    found = read_demonstrations(path, names)
    assert (found.rows, found.unknown) == (3, ("gone",))
    assert found.episodes == (
        Episode(
            (ToolId("u__a"), ToolId("u__b")),
            ("do",),
            ((0, 1),),
            source="import",
            key="demos.jsonl:7",
            arguments=('{"x":1}', "{}"),
        ),
        Episode((), ("chat",), source="import", key="demos.jsonl:3"),
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", 'line 2: Input data was truncated; expected an object with "query"'),
        ("[]", "line 2: Expected `object`, got `array`; expected an object with"),
        (
            '{"query": "x", "calls": "a"}',
            'line 2: Expected `array`, got `str` - at `$.calls`; expected an object with "query"',
        ),
        (
            '{"query": "x", "calls": ["a"], "edges": [[0, 1]]}',
            'line 2: "edges" has the place 1, "calls" has 1 tools; expected',
        ),
        (
            '{"query": "x", "calls": ["a"], "args": []}',
            'line 2: "args" has 0 objects, "calls" has 1 tools; expected an object with',
        ),
    ],
)
@requirement("learn:import")
def test_an_error_names_the_file_and_the_line(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "demos.jsonl"
    path.write_text(f'{{"query": "x", "calls": []}}\n{line}\n')
    with pytest.raises(ValueError) as caught:
        read_demonstrations(path, {})
    assert str(caught.value).startswith(f"{path}: {said}")
