from __future__ import annotations

import time

import pytest

from foretool.fleet.people import subjects
from foretool.fleet.people.subjects import Subjects


def test_tokens_are_kept_only_where_a_server_needs_them() -> None:
    found = Subjects()
    found.note("ann", "secret", time.time() + 60)
    assert found.find("ann") == ""
    found.wanted = True
    found.note("ann", "secret", time.time() + 60)
    assert found.find("ann") == "secret" and found.find("ben") == ""
    assert "secret" not in repr(found)


def test_a_token_that_has_expired_is_not_found() -> None:
    found = Subjects()
    found.wanted = True
    found.note("ann", "old", time.time() - 1)
    assert found.find("ann") == ""


def test_the_people_who_called_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "MOST_KEPT", 2)
    found = Subjects()
    found.wanted = True
    for name in ("ann", "ben", "ann", "cem"):
        found.note(name, name, time.time() + 60)
    assert [found.find(name) for name in ("ann", "ben", "cem")] == ["ann", "", "cem"]
