"""What is counted for a file of priors: names and numbers, of enough people, of those who may be learned from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from command_fakes import remember, write_config
from postgres import SKIPPED, new_schema
from requirements import requirement

from foretool.learning.portable import gather
from foretool.retrieval.portable_priors import Followed, ListFigures, PortablePriors, decode_priors, encode_priors
from foretool.server.app import App
from foretool.server.catalog.models import PRIOR
from foretool.server.config import loader
from foretool.server.lists.order import Prior
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, SessionRecord, ToolId
from foretool.storage.store import Store

NOW = 1_763_900_000.0
ADD, SUB, MOON = ToolId("calc__add"), ToolId("calc__sub"), ToolId("sky__moon")


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    place = ":memory:" if request.param == "sqlite" else new_schema()
    if place is None:
        pytest.skip(SKIPPED)
    with open_store(place) as store:
        yield store


def gathered(store: Store, folder: Path, least: int = 3) -> PortablePriors:
    config = loader.load(write_config(folder))
    remember(config, store, "calc", {"add": "Adds HUSHHUSH.", "sub": "Subtracts."})
    remember(config, store, "sky", {"moon": "Phase of the moon."})
    found = gather(store, App(config, store).catalog, least, NOW)
    assert decode_priors(encode_priors(found)) == found
    return found


def do(store: Store, key: str, calls: Sequence[ToolId], person: str = "", *, learns: bool = True) -> None:
    """A session with one task, an hour before the next one."""
    at = NOW - 90_000 + 3600.0 * len(store.sessions.recent())
    store.sessions.begin(SessionRecord(key, "cursor", "1", "legacy", "http", "", at, at + 60))
    if person or not learns:
        store.sessions.name_person(key, person, learns=learns, at=at)
    store.discoveries.add(Discovery(key, at, "HUSHHUSH of Mr. Smith", (), None, "high", (), 9, 1.0))
    arguments = '{"text": "HUSHHUSH"}'
    for place, tool in enumerate(calls):
        call = Call(key, at + 1 + place, tool, "x", "bridge", True, "ok", 5.0, True, arguments)
        store.calls.record([call])
    store.sessions.end(key, at + 60)


@requirement("learn:priors-people")
def test_calls_pairs_and_ends_of_one_person_are_counted_and_no_text_is(store: Store, tmp_path: Path) -> None:
    for number in range(3):
        do(store, f"s{number}", (ADD, SUB, MOON))
    do(store, "s9", (ADD,))
    store.artifacts.add(PRIOR, msgspec.json.encode(Prior({ADD: 0.9}, 1.0, False)), {}, promote=True)
    found = gathered(store, tmp_path)
    assert [(each.server, each.name, each.parameters, each.calls, each.ended) for each in found.tools] == [
        ("calc", "add", ("text",), 4, 1), ("calc", "sub", ("text",), 3, 0), ("sky", "moon", ("text",), 3, 3),
    ]  # fmt: skip
    assert found.followed == (Followed(0, 1, 3), Followed(1, 2, 3))
    assert (found.people, found.tasks, found.lists) == (1, 4, ListFigures(1.0, False))
    assert found.exported == "2025-11-23"
    data = encode_priors(found)
    assert [each for each in (b"HUSHHUSH", b"Smith", b"Adds", b"Phase", b"cursor", b"s9") if each in data] == []


@requirement("learn:priors-people")
def test_of_several_people_only_what_enough_of_them_did_is_counted(store: Store, tmp_path: Path) -> None:
    for person in ("ann", "ben", "cem"):
        do(store, f"{person}1", (ADD, SUB), person)
    for number in range(5):
        do(store, f"dan{number}", (MOON,), "dan")  # one person, however often
    do(store, "ann2", (SUB, ADD), "ann")
    found = gathered(store, tmp_path)
    assert [(each.name, each.calls, each.ended) for each in found.tools] == [("add", 4, 0), ("sub", 4, 3)]
    assert (found.followed, found.people) == ((Followed(0, 1, 3),), 3)
    assert b"ann" not in encode_priors(found)


@requirement("learn:priors-people")
def test_people_who_are_not_learned_from_stay_out(store: Store, tmp_path: Path) -> None:
    do(store, "s1", (ADD,))
    do(store, "s2", (MOON, SUB), learns=False)
    assert [each.name for each in gathered(store, tmp_path).tools] == ["add"]


def test_tools_that_are_gone_and_empty_stores_give_nothing(store: Store, tmp_path: Path) -> None:
    do(store, "s1", (ToolId("gone__tool"),))
    found = gathered(store, tmp_path)
    assert (found.tools, found.followed, found.lists) == ((), (), None)
