"""What a prompt hook names is read from its text and counted."""

from __future__ import annotations

from bench.agents.hints import count_hints, named_tools
from foretool.server.hints.texts import HEAD

HINT = f"""{HEAD}
- sqlite__read_query (listed)
- my-git__git_add(files: [string]) (write): "Adds files"
- also: files__shut() (write)
For example: call_tool {{"name": "files__other", "arguments": {{}}}}"""


def test_the_names_of_a_hint_in_its_order() -> None:
    assert named_tools(HINT) == ["sqlite__read_query", "my-git__git_add", "files__shut"]
    assert named_tools("Tools of your list that may fit this request: a__b, c__d.") == ["a__b", "c__d"]
    assert named_tools("") == []


def test_a_step_is_held_whose_tool_is_named_anywhere_and_the_first_name_counts_for_the_first_step() -> None:
    needs = (("my-git__git_add", "x__y"), ("files__shut",), ("not__there",))
    assert count_hints([(HINT, needs), (HINT, (("sqlite__read_query",),)), ("", (("a__b",),)), (HINT, ())]) == {
        "prompts": 4, "first": 1, "held": 3, "steps": 5, "silent": 1,
    }  # fmt: skip
