"""Which recorded tasks can be played again, and what is known of each."""

from pathlib import Path

from recorded_tasks import HOUR, START, add_prompt, write_recorded

from foretool.desk.replay.queries import last_tasks, read_tasks
from foretool.server.config import loader
from foretool.storage.opening import open_store

TASKS = [("add two numbers", ["calc__add"]), ("", ["sky__moon", "sky__forecast"]), ("send mail", ["mail__send"])]
NOW = START + 100 * HOUR


def test_tasks_come_with_their_session_and_their_words(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS)
    add_prompt(path, START + 2 * HOUR, "tell Ann that I am late")
    with open_store(loader.load(path).storage) as store:
        tasks = read_tasks(store, START, NOW)
    assert [task.episode.calls for task in tasks] == [tuple(calls) for _, calls in TASKS]
    assert [task.session.key for task in tasks] == ["s0", "s1", "s2"]
    assert [task.searches for task in tasks] == [("add two numbers",), (), ("send mail",)]
    assert [task.prompt for task in tasks] == ["", "", "tell Ann that I am late"]
    assert all(task.is_last for task in tasks)
    assert last_tasks(tasks)["s1"] == tasks[1].episode.at


def test_only_the_latest_tasks_since_a_time_are_played(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS)
    with open_store(loader.load(path).storage) as store:
        assert [task.session.key for task in read_tasks(store, START + HOUR, NOW)] == ["s1", "s2"]
        assert [task.session.key for task in read_tasks(store, START, NOW, 1)] == ["s2"]
