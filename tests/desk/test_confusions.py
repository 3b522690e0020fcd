"""Pairs of tools that are taken for each other, read from failed calls and from rankings."""

import json
import random
from collections import Counter
from pathlib import Path

from recorded_tasks import HOUR, START, write_recorded

from foretool.desk.confusions import (
    Confusion,
    find_confusions,
    find_outranked,
    find_retries,
    suggest_changes,
)
from foretool.desk.replay.effect import Replays
from foretool.server import offline
from foretool.server.config import loader
from foretool.server.ledger.fixes import open_own
from foretool.server.setup.own_servers import ConfigChange, change_config
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, Event, Match, Outcome, ToolId
from foretool.storage.store import Store

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
    with offline.open_offline(config) as app:
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
    with offline.open_offline(config) as app:
        pairs = find_confusions(app.store, app.catalog, START - 10)
        replays = Replays(config, app.store, START - 10, START + 99 * HOUR)
        (pair,) = suggest_changes(app, pairs, replays)
        (untried,) = suggest_changes(app, pairs, None)
    tried = {each.fix.kind: each for each in pair.fixes}
    assert all(each.effect is not None and each.effect.tasks >= 3 for each in pair.fixes)
    (change,) = tried["description"].fix.changes
    assert change.keys == ("servers", "mail", "tools", "find", "description")
    assert change.value.endswith("\nUsed for: look up the letter of Ann.")
    assert [each.fix.kind for each in untried.fixes] == ["description", "alias"]
    assert [each.effect for each in untried.fixes] == [None, None]
    (change,) = tried["alias"].fix.changes
    assert change.keys == ("servers", "mail", "tools", "find", "name") and change.value.startswith("find_")


def renamed(tmp_path: Path, tasks: list[str], **entry: str) -> list[str]:
    """The names that are suggested for the tool that these tasks meant."""
    path = write_recorded(tmp_path, [])
    for number, words in enumerate(tasks):
        at = START + number * HOUR
        call(path, at + 1, FIND, discovery=search(path, at, words, SEND, FIND))
    text = json.loads(path.read_text())
    text["mcpServers"]["mail"]["tools"] = {"find": entry} if entry else {}
    path.write_text(json.dumps(text))
    with offline.open_offline(loader.load(path)) as app:
        pairs = suggest_changes(app, find_confusions(app.store, app.catalog, START - 10), None)
    return [each.fix.changes[0].value for pair in pairs for each in pair.fixes if each.fix.kind == "alias"]


def test_a_name_takes_the_word_that_the_tasks_share_and_the_other_tool_lacks(tmp_path: Path) -> None:
    assert renamed(tmp_path, ["look up the letter of Ann", "the letter by mail", "a message of Bob"]) == ["find_letter"]


def test_a_tool_that_the_user_named_keeps_its_name(tmp_path: Path) -> None:
    assert renamed(tmp_path, ["the letter of Ann", "the letter of Bob"], name="look") == []


def test_words_that_cannot_stand_in_a_name_are_in_none(tmp_path: Path) -> None:
    assert renamed(tmp_path, ["\u202e\x1b[2J \u0440\u0443\u0441 4711 " + "x" * 80] * 3) == []


def test_a_replay_counts_the_misses_of_a_renamed_tool_as_its_own_and_knows_its_use(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, [("look up the letter of Ann", [FIND])] * 6, list_tokens=1)
    config = loader.load(path)
    with offline.open_offline(config) as app:
        replays = Replays(config, app.store, START - 10, START + 99 * HOUR)
        changed = change_config(
            config, open_own(config), [ConfigChange(("servers", "mail", "tools", "find", "name"), "find_letter")]
        )
        now, then = replays.now, replays.play(changed)
    assert [each.missed for each in then] == [each.missed for each in now] and now[0].missed == (FIND,)
    with offline.open_offline(changed) as app:
        (used,) = app.catalog.meanings.count_under_new_names(app.store.calls.usage())
        assert (used.tool, used.calls) == ("mail__find_letter", 6)
        assert app.catalog.meanings.name_now(ToolId("mail__send")) == "mail__send"
        assert app.catalog.meanings.name_now(ToolId("no__such")) == "no__such"


def confused_slowly(store: Store, since: float) -> Counter[tuple[str, str, str]]:
    """The same pairs with their words, from everything that happened, one thing after the other."""
    calls = [each for each in store.calls.events(-1) if each.at >= since]
    failed: dict[tuple[str, str], Event] = {}
    words: dict[tuple[str, str], str] = {}
    pairs: Counter[tuple[str, str, str]] = Counter()
    for event in sorted((*store.discoveries.events(), *calls), key=lambda each: (each.at, each.kind == "call")):
        chat = (event.session, event.handle)
        before = failed.pop(chat, None)
        if event.kind == "task":
            words[chat] = event.text
        elif not event.ok:
            failed[chat] = event
        elif before is not None and before.text != event.text and event.at - before.at <= 600.0:
            pairs[before.text, event.text, words.get(chat, "")] += 1
    done = [each for each in reversed(store.calls.recent(-1)) if each.at >= since and each.outcome != "refused"]
    for answer in store.discoveries.answered(-1):
        called = next((each.tool for each in done if each.discovery == answer.id), "")
        if answer.at >= since and called != answer.matches[0].tool and called in [each.tool for each in answer.matches]:
            pairs[answer.matches[0].tool, called, answer.task] += 1
    return pairs


def test_the_pairs_are_those_of_going_through_the_whole_log() -> None:
    store = open_store(":memory:")
    choose = random.Random(14)
    tools = [ToolId(each) for each in "abcde"]
    at = 0.0
    for number in range(400):
        # Calls end in another order than they begin in, and some things happen at once.
        at += choose.choice((0.0, 1.0, 5.0, 300.0))
        session, handle = choose.choice(("s1", "s2")), choose.choice(("", "h"))
        found = 0
        if number % 3 == 0:
            matches = tuple(Match(tool, rank, 1.0) for rank, tool in enumerate(choose.sample(tools, 3), 1))
            names = () if choose.random() < 0.8 else ("a",)
            search = Discovery(session, at, f"task {number}", names, None, "high", matches, 9, 1.0, handle=handle)
            found = store.discoveries.add(search)
        outcome: Outcome = choose.choice(("ok", "ok", "tool_error", "refused"))
        began = at + choose.choice((0.0, 1.0, 20.0))
        done = Call(
            session, began, choose.choice(tools), "", "name", True, outcome, 1.0 + number, True, "", found, handle
        )
        store.calls.record([done])
    for since in (0.0, at / 2):
        pairs = [*find_retries(store, since), *find_outranked(store, since)]
        got = Counter((taken, needed, task) for (taken, needed), task in pairs)
        assert got == confused_slowly(store, since)
        assert sum(got.values()) > 30
    store.close()
