"""Discoveries, prompts and steps come back as the records they were."""

from pathlib import Path

from msgspec.structs import replace
from stored_records import CALL, DISCOVERY, SESSION

from foretool.storage.records import AnswerSummary, Match, Prompt, StepRecord, ToolId
from foretool.storage.sql.calls import first_call
from foretool.storage.sqlite.database import SqliteDatabase
from foretool.storage.store import Store


def test_each_task_is_listed_once_and_the_latest_first(store: Store) -> None:
    store.sessions.begin(SESSION)
    for at, task, session in [(1.0, "a", "s1"), (2.0, "b", "s2"), (3.0, "a", "s1"), (4.0, "", "s1")]:
        store.discoveries.add(replace(DISCOVERY, at=at, task=task, session=session))
    assert store.tasks.latest(1) == ["a"]
    assert store.tasks.latest(5) == ["a", "b"]


def test_the_latest_tasks_are_looked_for_among_the_latest_records_alone(store: Store) -> None:
    store.sessions.begin(SESSION)
    store.discoveries.add(replace(DISCOVERY, at=1.0, task="long ago"))
    store.tasks.add_prompt(Prompt(2.0, "a prompt"))
    for at in range(250):
        store.discoveries.add(replace(DISCOVERY, at=10.0 + at, task="the same" if at % 2 else ""))
    assert store.tasks.latest(5) == ["the same", "a prompt"]


def test_what_followed_a_discovery_is_found_without_reading_the_calls_before_it(tmp_path: Path) -> None:
    database = SqliteDatabase.open(tmp_path / "log.db", 100)
    store = Store(database)
    hours = 3600.0
    # The last call but one began before the discovery that it is written after, the first is of another day.
    times = {1: 0.0, 2: 30 * hours, 3: 49 * hours, 4: 48 * hours, 5: 49 * hours}
    store.calls.record([replace(CALL, at=at, hidden=True, discovery=id == 5) for id, at in times.items()])
    assert [first_call(database, since * hours) for since in (0, 32, 48, 60)] == [1, 3, 3, 5]
    assert store.discoveries.first_calls(1, 48 * hours) == {1: CALL.tool}
    assert [each.at / hours for each in store.discoveries.needs(48 * hours)] == [49, 48, 49]
    store.close()


def test_discoveries_are_counted_by_session(store: Store) -> None:
    for session, at in (("s1", 1.0), ("s1", 2.0), ("s2", 2.0), ("s1", 3.0)):
        store.discoveries.add(replace(DISCOVERY, session=session, at=at))
    assert store.discoveries.count_by_session(2.0) == {"s1": 2, "s2": 1}
    assert store.discoveries.count_by_session(9.0) == {}


def test_steps_come_back_as_they_were(store: Store) -> None:
    first = StepRecord(
        "s1", 1.0, "mend", (ToolId("a__b"),), ("file x#y",), 120, 2000, 0.7, None, "none", False, "", 1.5
    )
    second = replace(first, at=2.0, sufficiency=0.2, fallback="expand", cached=True)
    assert [store.tasks.add_step(each) for each in (first, second)] == [1, 2]
    assert store.tasks.steps() == [replace(second, id=2), replace(first, id=1)]


def test_answers_name_the_found_tools_of_searches_by_task(store: Store) -> None:
    store.sessions.begin(SESSION)
    first, second = ToolId("a__one"), ToolId("a__two")
    matches = (Match(first, 1, 2.0, {"words": 2.0}), Match(second, 2, 1.0))
    found = replace(DISCOVERY, names=(), matches=matches)
    for each in (replace(found, at=1.0), found, replace(found, matches=()), replace(found, names=("a__one",))):
        store.discoveries.add(each)
    answers = store.discoveries.answers(10, 0.0)
    assert answers == [
        AnswerSummary(2, found.at, found.task, (first, second)), AnswerSummary(1, 1.0, found.task, (first, second)),
    ]  # fmt: skip
    assert store.discoveries.answers(10, 2.0) == answers[:1] and store.discoveries.answers(1, 0.0) == answers[:1]
