"""The conversation around a miss, in order."""

from collections.abc import Iterator

import pytest
from command_fakes import CALC, WEATHER
from msgspec.structs import replace
from stored_records import MISS

from foretool.server.ledger.story import STEPS_BEFORE, read_story
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, Exposure, Prompt
from foretool.storage.stores import Store


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(":memory:") as store:
        yield store


def call(session: str, at: float, tool: str = CALC, *, hidden: bool = False) -> Call:
    return Call(session, at, tool, "calc", "name", hidden, "ok", 1.0, True, "")  # type: ignore[arg-type]


def test_a_long_conversation_is_cut_but_keeps_its_list(store: Store) -> None:
    store.sessions.add_exposure(Exposure("s", 1.0, "growing", 1, (CALC,), 300, "list"))
    store.calls.record([call("s", 1000.0 + at) for at in range(40)])
    missed = replace(MISS, session="s", at=1020.5, tool=WEATHER, call=0, exposure=1)
    story = read_story(store, missed)
    assert [step.kind for step in story] == ["list", *["call"] * STEPS_BEFORE, "miss", "call", "call", "call"]
    assert [step.at for step in story] == sorted(step.at for step in story)


def test_hints_and_searches_by_name_are_told(store: Store) -> None:
    store.sessions.add_exposure(Exposure("s", 1000.0, "frozen", 1, (CALC,), 20, "hint"))
    store.discoveries.add(Discovery("s", 1001.0, "", ("a", "b"), None, "none", (), 9, 1.0))
    story = read_story(store, replace(MISS, session="s", at=1002.0, tool="", call=0))
    assert [step.what for step in story] == [
        "was told of calc__add (hint)",
        "searched for a, b: found no tool (confidence none)",
        "needed (no tool found), which the client could not see",
    ]


def test_the_last_prompt_before_the_miss_is_told_and_none_after_it(store: Store) -> None:
    for at, text in ((900.0, "long ago"), (1000.0, "earlier"), (1001.0, "this one"), (1003.0, "later")):
        store.tasks.add_prompt(Prompt(at, text))
    told = read_story(store, replace(MISS, session="s", at=1002.0, call=0))
    assert [step.kind for step in told] == ["prompt", "miss"] and told[0].what == "this one"


def test_what_the_user_asked_is_told_only_to_who_may_see_everything(store: Store) -> None:
    store.tasks.add_prompt(Prompt(1001.0, "the secret of another profile"))
    missed = replace(MISS, session="s", at=1002.0, call=0)
    assert [step.kind for step in read_story(store, missed)] == ["prompt", "miss"]
    assert [step.kind for step in read_story(store, missed, prompts=False)] == ["miss"]
