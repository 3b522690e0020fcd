"""Discoveries, prompts and steps come back as the records they were."""

from msgspec.structs import replace
from stored_records import DISCOVERY, SESSION

from foretool.storage.records import Prompt, StepRecord, ToolId
from foretool.storage.stores import Store


def test_a_discovery_comes_back_as_it_was(store: Store) -> None:
    assert store.discoveries.add(DISCOVERY) == 1
    assert store.discoveries.add(replace(DISCOVERY, sufficiency=0.25, matches=(), level="none")) == 2
    assert store.discoveries.get(1) == replace(DISCOVERY, id=1)
    assert [discovery.sufficiency for discovery in store.discoveries.recent(5)] == [0.25, None]
    assert store.discoveries.get(3) is None


def test_each_task_is_listed_once_and_the_latest_first(store: Store) -> None:
    store.sessions.begin(SESSION)
    for at, task, session in [(1.0, "a", "s1"), (2.0, "b", "s2"), (3.0, "a", "s1"), (4.0, "", "s1")]:
        store.discoveries.add(replace(DISCOVERY, at=at, task=task, session=session))
    assert store.tasks.texts() == ["a", "b"]
    assert store.tasks.texts(limit=1) == ["a"]


def test_prompts_come_back_newest_first_and_count_as_tasks(store: Store) -> None:
    asked = [Prompt(2.0, "mend the roof", "c1", "/home/me"), Prompt(1.0, "paint it")]
    assert [store.tasks.add_prompt(each) for each in asked] == [1, 2]
    assert store.tasks.prompts() == [replace(asked[0], id=1), replace(asked[1], id=2)]
    assert (store.tasks.prompts(since=1.5), store.tasks.prompts(limit=1)) == ([replace(asked[0], id=1)],) * 2
    store.discoveries.add(replace(DISCOVERY, at=1.5, task="find a ladder"))
    assert store.tasks.texts() == ["mend the roof", "find a ladder", "paint it"]


def test_steps_come_back_as_they_were(store: Store) -> None:
    first = StepRecord(
        "s1", 1.0, "mend", (ToolId("a__b"),), ("file x#y",), 120, 2000, 0.7, None, "none", False, "", 1.5
    )
    second = replace(first, at=2.0, sufficiency=0.2, fallback="expand", cached=True)
    assert [store.tasks.add_step(each) for each in (first, second)] == [1, 2]
    assert store.tasks.steps() == [replace(second, id=2), replace(first, id=1)]
