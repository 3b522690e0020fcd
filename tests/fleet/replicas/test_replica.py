"""What a replica keeps and says can be read and written by those alone who know the session."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foretool.fleet.replicas import replica as module
from foretool.fleet.replicas.replica import Replica, Shared
from foretool.storage.engine import StorageError
from foretool.storage.records import Letter, LiveEvent

pytestmark = pytest.mark.anyio


class Database:
    """Remembers what was written, or refuses it."""

    def __init__(self) -> None:
        self.events: list[LiveEvent] = []
        self.letters: list[Letter] = []
        self.steps: list[str] = []
        self.is_away = False

    def keep_events(self, events: list[LiveEvent]) -> None:
        self._check()
        self.steps.append("events")
        self.events += events

    def post(self, letter: Letter) -> None:
        self._check()
        self.letters.append(letter)

    def is_alive(self, replica: str) -> bool:
        self._check()
        return False

    def clean_up(self, now: float, idle_s: float) -> None:
        self.steps.append(f"cleaned {idle_s}")

    def _check(self) -> None:
        if self.is_away:
            raise StorageError("away", temporary=True)


def make() -> tuple[Replica, Any]:
    database = Database()
    return Replica(database), database  # type: ignore[arg-type]


async def test_what_is_sealed_opens_for_the_same_session_and_purpose_alone() -> None:
    one, again, other = Shared("a" * 32), Shared("a" * 32), Shared("b" * 32)
    sealed = one.seal(b"answer", "s.1")
    assert again.open(sealed, "s.1") == b"answer"
    assert again.open(sealed, "s.2") is None
    assert other.open(sealed, "s.1") is None
    assert one.open(sealed[:-1] + bytes([sealed[-1] ^ 1]), "s.1") is None
    assert one.open(b"", "s.1") is one.open(b"short", "s.1") is None
    assert one.seal(b"answer", "s.1") != sealed
    assert b"a" * 32 not in one.ident and one.ident == again.ident != other.ident


async def test_events_of_one_turn_are_kept_together_after_what_changed() -> None:
    replica, database = make()
    shared = Shared("a" * 32)
    for number in range(3):
        replica.keep(shared, "r-1", number, b"x", number == 2, lambda: database.steps.append("saved"))
    assert database.steps == []
    await asyncio.sleep(0)
    assert database.steps == ["saved", "events"]
    assert [(each.number, each.last) for each in database.events] == [(0, 0), (1, 0), (2, 1)]
    assert shared.open(database.events[0].data, "r-1.0") == b"x"


async def test_events_wait_for_a_database_that_is_away_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 250)
    replica, database = make()
    database.is_away = True
    for number in range(5):
        replica.keep(Shared("a" * 32), "r-1", number, b"x" * 72, False, lambda: None)
        await asyncio.sleep(0)
    database.is_away = False
    replica.tick(0.0)
    assert [each.number for each in database.events] == [3, 4]


async def test_an_event_that_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EVENT", 3)
    replica, database = make()
    replica.keep(Shared("a" * 32), "r-1", 0, b"xxxx", True, lambda: database.steps.append("saved"))
    await asyncio.sleep(0)
    assert (database.steps, database.events) == (["saved"], [])


async def test_letters_of_ourselves_and_for_others_are_not_taken() -> None:
    replica, _ = make()
    taken: list[Letter] = []
    replica.take = taken.append
    wanted = [Letter("k", "other"), Letter("k", "other", replica.id)]
    for letter in (*wanted, Letter("k", replica.id), Letter("k", "other", "third")):
        replica._take(letter)
    assert taken == wanted


async def test_a_database_that_is_away_stops_nobody() -> None:
    replica, database = make()
    database.is_away = True
    replica.post("message", Shared("a" * 32), b"x")
    assert replica.is_alive("other")
    database.is_away = False
    assert not replica.is_alive("other")


async def test_what_is_old_is_removed_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    replica, database = make()
    replica.tick(5.0)
    assert database.steps == []
    monkeypatch.setattr(module, "CLEAN_S", 0.0)
    replica.tick(5.0)
    assert database.steps == ["cleaned 5.0"]
