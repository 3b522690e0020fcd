"""Sessions, and what happened in one."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_fakes import fill, write_config

from foretool.desk.page.history import Revealed, read_session, read_sessions
from foretool.desk.page.viewers import Viewer
from foretool.server.config.loader import load
from foretool.storage.opening import open_store
from foretool.storage.records import Miss, SessionRecord

ALL = Viewer("key")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = write_config(tmp_path, profiles={"work": {"servers": ["*"]}})
    fill(path).close()
    return path


def test_a_session_is_told_in_order_and_its_misses_lead_to_their_page(path: Path) -> None:
    page = read_session(load(path), ALL, "s1")
    assert page is not None
    assert [step.kind for step in page.steps] == ["session", "list", "search", "call"]
    assert [step.miss for step in page.steps if isinstance(step, Revealed)] == [1]
    assert (page.calls, page.misses, page.is_cut) == (1, 1, False)


def test_a_miss_without_a_call_stands_alone(path: Path) -> None:
    miss = Miss("s1", 110.0, "", "nothing_found", "gate", 0, 3, "a task", (), 0, 0, "", "no", 1, 5)
    with open_store(load(path).storage) as store:
        store.calls.record([], [miss])
    page = read_session(load(path), ALL, "s1")
    assert page is not None
    assert isinstance(step := page.steps[-1], Revealed) and (step.kind, step.miss) == ("miss", 2)


def test_a_session_of_another_profile_is_not_there(path: Path) -> None:
    with open_store(load(path).storage) as store:
        store.sessions.begin(SessionRecord("s2", "codex", "1", "modern", "http", "work", 200.0))
    work, default = Viewer("key", "work"), Viewer("key", "")
    assert [each.session.key for each in read_sessions(load(path), work, "", 0.0)] == ["s2"]
    assert [each.session.key for each in read_sessions(load(path), default, "", 0.0)] == ["s1"]
    assert read_session(load(path), work, "s1") is None
    assert read_session(load(path), default, "s1") is not None
    assert read_session(load(path), ALL, "none") is None
