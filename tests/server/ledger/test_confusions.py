"""Pairs of tools that are taken for each other, read from failed calls and from rankings."""

from pathlib import Path

from recorded_tasks import HOUR, START, write_recorded

from foretool.server import offline
from foretool.server.config import loader
from foretool.server.ledger.confusions import Confusion, find_confusions, suggest
from foretool.server.replay.effect import Replays
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, Match, ToolId

SEND, FIND, MOON = ToolId("mail__send"), ToolId("mail__find"), ToolId("sky__moon")


def search(path: Path, at: float, words: str, *found: ToolId) -> int:
    with open_store(loader.load(path).storage) as store:
        matches = tuple(Match(tool, rank, 3.0 - rank) for rank, tool in enumerate(found, 1))
        return store.discoveries.add(Discovery("c", at, words, (), None, "high", matches, 90, 1.0))


def call(path: Path, at: float, tool: ToolId, outcome: str = "ok", discovery: int = 0, session: str = "c") -> None:
    with open_store(loader.load(path).storage) as store:
        done = Call(session, at, tool, "", "name", False, outcome, 1.0, True, "", discovery)  # type: ignore[arg-type]
        store.calls.record([done])


def found(path: Path) -> list[Confusion]:
    config = loader.load(path)
    with offline.read(config) as app:
        return find_confusions(app.store, app.catalog, START - 10)


def test_a_tool_called_in_vain_right_before_another_is_taken_for_it(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, [])
    for number in range(2):
        at = START + number * HOUR
        search(path, at, f"look up the letter of Ann {number}")
        call(path, at + 1, SEND, "tool_error")
        call(path, at + 2, FIND)
    (pair,) = found(path)
    assert (pair.taken, pair.needed, pair.called, pair.ranked) == (SEND, FIND, 2, 0)
    assert pair.tasks == ("look up the letter of Ann 1", "look up the letter of Ann 0")


def test_a_tool_ranked_above_the_called_one_is_taken_for_it(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, [])
    for number in range(3):
        at = START + number * HOUR
        call(path, at + 1, FIND, discovery=search(path, at, "letters", SEND, FIND))
    (pair,) = found(path)
    assert (pair.taken, pair.needed, pair.called, pair.ranked) == (SEND, FIND, 0, 3)


def test_chance_other_needs_and_other_chats_are_no_confusion(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, [])
    for number in range(2):
        at = START + number * HOUR
        call(path, at, SEND, "tool_error")
        call(path, at + 1, SEND)  # it worked in the end
        call(path, at + 2, SEND, "tool_error")
        search(path, at + 3, "the moon")
        call(path, at + 4, MOON)  # another search came between
        call(path, at + 5, FIND, "tool_error")
        call(path, at + 6, MOON, session="other")
        call(path, at + 1500, MOON)  # too late
    call(path, START + 9 * HOUR, SEND, "tool_error")
    call(path, START + 9 * HOUR + 1, MOON)  # once is chance
    assert found(path) == []


def test_a_tool_that_is_gone_is_not_named(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, [])
    for number in range(2):
        call(path, START + number, ToolId("old__send"), "tool_error")
        call(path, START + number + 0.5, FIND)
    assert found(path) == []


def test_the_words_of_a_task_are_suggested_and_tried(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, [("look up the letter of Ann", [FIND])] * 3)
    for number in range(2):
        at = START + number
        call(path, at + 1, FIND, discovery=search(path, at, "look up the letter of Ann", SEND, FIND))
    config = loader.load(path)
    with offline.read(config) as app:
        pairs = find_confusions(app.store, app.catalog, START - 10)
        replays = Replays(config, app.store, START - 10, START + 99 * HOUR)
        (pair,) = suggest(app, pairs, replays)
        (untried,) = suggest(app, pairs, None)
    assert pair.fix is not None and pair.fix.effect is not None and pair.fix.effect.tasks >= 3
    (change,) = pair.fix.fix.changes
    assert change.keys == ("servers", "mail", "tools", "find", "description")
    assert change.value.endswith("\nUsed for: look up the letter of Ann.")
    assert untried.fix is not None and untried.fix.effect is None
