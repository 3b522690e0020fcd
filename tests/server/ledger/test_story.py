"""The conversation around a miss, in order."""

from command_fakes import CALC, WEATHER
from msgspec.structs import replace
from stored_records import MISS

from foretool.server.ledger.story import STEPS_BEFORE, read_miss_story, read_story
from foretool.storage.records import Call, Discovery, Exposure, Prompt, SessionRecord
from foretool.storage.stores import Store


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
        "needed (tool not known), which the client could not see",
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


def test_the_facts_of_a_miss_are_told_once_for_the_command_and_the_page(store: Store) -> None:
    store.sessions.begin(SessionRecord("s", "cursor", "1.2", "legacy", "stdio", "work", 900.0))
    store.calls.record([call("s", 1020.5, WEATHER)])
    missed = replace(MISS, session="s", at=1020.4, call=1, exposure=0, discovery=0, cause="denied", change="add 'x'")
    told = read_miss_story(store, missed)
    facts = {each.name: each.text for each in (*told.tell(), *told.tell_end())}
    assert (facts["client"], facts["profile"]) == ("cursor 1.2, legacy, stdio", "work")
    assert facts["cause"] == "denied: the profile does not have its server"
    assert facts["call"] == "ok after 1 ms, by name" and told.session is not None
    lone = read_miss_story(store, replace(missed, session="gone", call=0, query="", history=()))
    facts = {each.name: each.text for each in (*lone.tell(), *lone.tell_end())}
    assert facts["client"] == facts["task"] == "(unknown)" and facts["called before"] == "(nothing)"
    assert "call" not in facts
