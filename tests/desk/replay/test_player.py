"""Tasks are played through the parts that serve clients, with the lists of their time."""

from pathlib import Path
from typing import Any

import pytest
from command_fakes import write_config
from msgspec.structs import replace
from recorded_tasks import HOUR, SERVERS, START, add_prompt, write_recorded
from stored_records import MISS

from foretool.desk.replay.effect import Replays
from foretool.desk.replay.player import PlayedTask
from foretool.server.config import loader
from foretool.storage.opening import open_store
from foretool.storage.records import SessionRecord

NOW = START + 100 * HOUR
ADD, MOON, MAIL = (
    ("add two numbers", ["calc__add"]),
    ("phase of the moon", ["sky__moon"]),
    ("send mail", ["mail__send"]),
)


def played(folder: Path, tasks: list[Any], prompt: str = "", **settings: Any) -> list[PlayedTask]:
    path = write_recorded(folder, tasks, **settings)
    if prompt:
        add_prompt(path, START - 1, prompt)
    config = loader.load(path)
    with open_store(config.storage) as store:
        return Replays(config, store, START - 10, NOW).now


def test_a_tool_that_was_never_used_is_searched_for_and_missed_once(tmp_path: Path) -> None:
    (task,) = played(tmp_path, [ADD])
    assert (task.calls, task.hidden, task.misses, task.discoveries) == (1, 1, 1, 1)
    assert task.missed == ("calc__add",)
    # Two turns read the list; the second one reads the answer as well.
    assert task.read > 2 * task.listed


def test_a_command_that_went_round_a_tool_is_spared_where_the_client_sees_the_tool(tmp_path: Path) -> None:
    config = loader.load(write_recorded(tmp_path, [ADD, MOON]))
    bypass = replace(MISS, tool="mail__send", noticed="shell", cause="bypass", discovery=0, exposure=0, call=0)
    with open_store(config.storage) as store:
        store.sessions.begin(SessionRecord("alone", "codex", "1", "legacy", "stdio", "", START + 50 * HOUR))
        for session, at in (("s1", START + HOUR + 5), ("alone", START + 51 * HOUR)):
            store.calls.record([], [replace(bypass, session=session, at=at)])
        replays = Replays(config, store, START - 10, NOW)
        assert [each.bypassed for each in replays.tasks] == [(), ("mail__send",), ("mail__send",)]
        assert [each.missed for each in replays.now] == [("calc__add",), ("sky__moon", "mail__send"), ("mail__send",)]
        then = replays.play(loader.load(write_config(tmp_path, SERVERS, list_tokens=420, pin=["mail__send"])))
        assert ["mail__send" in each.missed for each in then] == [False] * 3


def test_what_a_task_used_is_in_the_list_of_the_next_one(tmp_path: Path) -> None:
    first, second = played(tmp_path, [ADD, ADD])
    assert (first.hidden, second.hidden, second.discoveries) == (1, 0, 0)
    assert second.read == second.listed == first.listed, "each list costs what the next one takes"


def test_a_pin_is_listed_from_the_start(tmp_path: Path) -> None:
    (task,) = played(tmp_path, [ADD], pin=["calc__add"])
    assert (task.hidden, task.misses, task.discoveries) == (0, 0, 0)


def test_a_growing_list_gains_what_was_found_and_a_frozen_one_does_not(tmp_path: Path) -> None:
    task = ("add two numbers and take one number from another", ["calc__add", "calc__subtract"])
    frozen = played(tmp_path, [task])[0]
    (tmp_path / "growing").mkdir()
    growing = played(tmp_path / "growing", [task], policy="growing", list_tokens=2000)[0]
    assert (frozen.hidden, growing.hidden) == (2, 1)
    assert frozen.discoveries == growing.discoveries == 1


def test_a_prompt_that_a_hook_told_of_names_tools_before_the_first_call(tmp_path: Path) -> None:
    (task,) = played(tmp_path, [("", ["calc__add"])], prompt="add two numbers")
    assert (task.hidden, task.discoveries, task.misses) == (1, 0, 0)


def test_a_search_whose_words_are_not_known_uses_those_of_the_tool(tmp_path: Path) -> None:
    (task,) = played(tmp_path, [("", ["calc__add"])])
    assert (task.discoveries, task.guessed, task.misses) == (1, 1, 1)


@pytest.mark.parametrize(
    ("entry", "is_kept_away"), [({"disabled": True}, True), ({"deny": ["moon"]}, True), ({}, False)]
)
def test_a_tool_that_the_config_keeps_away_is_unreachable(
    tmp_path: Path, entry: dict[str, Any], is_kept_away: bool
) -> None:
    path = write_recorded(tmp_path, [MOON])
    config = loader.load(path)
    text = path.read_text().replace('"sky": {', '"sky": {' + "".join(f'"{k}": {_json(v)}, ' for k, v in entry.items()))
    with open_store(config.storage) as store:
        changed = loader.parse(text.encode(), path)
        (task,) = Replays(config, store, START - 10, NOW).play(changed)
    assert (task.unreachable, task.misses, task.discoveries) == (int(is_kept_away), 1, 1)


def _json(value: Any) -> str:
    return str(value).lower().replace("'", '"')


def test_playing_leaves_the_store_as_it_is(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, [ADD, MOON, MAIL])
    config = loader.load(path)
    with open_store(config.storage) as store:
        store.calls.usage()  # adding up new calls is the store's own
        before = (store.statistics(), store.serving.working_set("/frozen"), store.calls.usage())
        Replays(config, store, START - 10, NOW).play(config)
        assert (store.statistics(), store.serving.working_set("/frozen"), store.calls.usage()) == before
