"""What enters a training of what several people have said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from requirements import requirement

from foretool.learning.run import Learner
from foretool.learning.shared_words import (
    choose_episodes,
    clean_episodes,
    clean_missed,
    episode_session,
    sharing,
)
from foretool.server import offline
from foretool.storage.records import Call, Discovery, Episode, MissedNeed, SessionRecord, ToolId

if TYPE_CHECKING:
    from learning_setting import Setting

TOOL = ToolId("git__push")
ADD = ToolId("calc__add")
PEOPLE = {"s1": ("ann", True), "s2": ("ben", True), "s3": ("cem", True), "s4": ("ann", True), "s5": ("dan", False)}


def said(session: str, *tasks: str) -> Episode:
    return Episode((TOOL,), tasks, key=f"{session}:1", arguments=("{}",))


@requirement("trust:shared-words")
def test_a_word_enters_only_if_enough_people_have_used_it() -> None:
    episodes = [
        said("s1", "Push the branch of HUSHHUSH", "push it"), said("s2", "push a branch"),
        said("s3/h1", "PUSH, branch!"), said("s4", "hushhush hushhush: push"),
    ]  # fmt: skip
    clean = sharing(episodes, PEOPLE, 3)
    assert [each.tasks for each in clean_episodes(episodes, clean)] == [
        ("Push branch", "push"), ("push branch",), ("PUSH, branch!",), (": push",),
    ]  # fmt: skip
    assert clean("hushhush") == "" == clean("?!") and clean("push hushhush-7") == "push -"
    assert clean_missed([MissedNeed(1.0, "hushhush", TOOL), MissedNeed(1.0, "push hushhush", TOOL)], clean) == [
        MissedNeed(1.0, "push", TOOL)
    ]
    changed, *_, kept = clean_episodes([episodes[0], episodes[2]], clean)
    assert changed.arguments == () and kept == episodes[2]


@requirement("trust:shared-words")
def test_one_person_in_many_sessions_is_one_person() -> None:
    episodes = [said(session, "secret plan") for session in ("s1", "s4", "s1", "s4")]
    assert sharing(episodes, PEOPLE, 2)("secret plan") == ""
    unknown = [said(f"x{number}", "secret plan") for number in range(9)]  # nobody knows whose they are
    assert sharing(unknown, PEOPLE, 2)("secret plan") == ""


def test_where_nobody_called_over_http_nothing_is_taken_out() -> None:
    assert sharing([said("s1", "secret plan")], {}, 3)("secret plan") == "secret plan"
    assert sharing([said("s1", "secret plan")], {"s1": ("", False)}, 3)("a b") == "a b"
    assert sharing([said("s1", "secret plan")], PEOPLE, 1)("secret plan") == "secret plan"


@requirement("trust:shared-words")
def test_sessions_that_may_not_be_learned_from_stay_out() -> None:
    episodes = [said("s1", "a"), said("s5", "b"), said("s5/handle", "c"), said("s9", "d")]
    assert [each.tasks for each in choose_episodes(episodes, PEOPLE)] == [("a",), ("d",)]
    assert [episode_session(each) for each in episodes] == ["s1", "s5", "s5", "s9"]


@requirement("trust:shared-words")
def test_a_run_learns_from_shared_words_alone(setting: Setting) -> None:
    from foretool.learning.training.linear_maps import fit_lsa

    store = setting.store
    for number, (person, learns) in enumerate(PEOPLE.values()):
        key, at = f"{number:032x}", 1000.0 * (number + 1)
        store.sessions.begin(SessionRecord(key, "c", "1", "modern", "http", "", at, at + 60))
        store.sessions.name_person(key, person, learns=learns, at=at)
        words = "add numbers" + (" hushhush" if person == "ann" else " opted" if not learns else "")
        found = store.discoveries.add(Discovery(key, at + 1, words, (), None, "high", (), 90, 1.0))
        store.calls.record([Call(key, at + 2, ADD, "calc", "name", False, "ok", 1.0, True, "{}", found)], [])
    with offline.open_offline(setting.config) as app:
        learner = Learner(setting.config, app.catalog, store, lambda *_: None, 1e6)
    tasks = [task for each in learner.timeline.episodes for task in each.tasks]
    assert tasks == ["add numbers"] * 4  # of Ann, Ben, Cem and Ann again; not of Dan
    assert "hushhush" not in fit_lsa(tasks, 8, 1).vocabulary
    assert "hushhush" in fit_lsa(["add numbers hushhush"] * 2, 8, 1).vocabulary  # as it would have been
