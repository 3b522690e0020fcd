"""What rankings are measured on: recorded tasks with what was known when they began, or the lines of a file."""

import time
from pathlib import Path

import pytest
from recorded_tasks import HOUR, START, add_prompt, write_recorded

from foretool.desk.replay.queries import QuerySet, read_log, read_queries
from foretool.server import offline
from foretool.server.config import loader
from foretool.server.config.loader import Config
from foretool.storage.records import ToolId

TASKS = [("zebra one", ["calc__add"]), ("zebra two", ["calc__add"]), ("zebra three", ["sky__moon", "sky__moon"])]


def read(config: Config, most: int = 100) -> QuerySet:
    with offline.open_offline(config) as app:
        return read_log(app.store, app.catalog.tools(), 0.0, time.time(), most)


def test_a_task_knows_the_usage_of_earlier_tasks_alone(tmp_path: Path) -> None:
    first, second, third = read(loader.load(write_recorded(tmp_path, TASKS))).queries
    assert first.usage == {}
    assert {tool: each.calls for tool, each in second.usage.items()} == {"calc__add": 1}
    assert {tool: each.calls for tool, each in third.usage.items()} == {"calc__add": 2}
    assert third.needs == ({"sky__moon"},) and third.text == "zebra three"
    assert [each.at for each in (first, second)] == pytest.approx([START, START + HOUR], abs=60)


def test_the_latest_tasks_are_taken_and_the_earlier_ones_still_count_as_usage(tmp_path: Path) -> None:
    (last,) = read(loader.load(write_recorded(tmp_path, TASKS)), most=1).queries
    assert last.text == "zebra three" and last.usage[ToolId("calc__add")].calls == 2


def test_the_words_of_a_prompt_stand_for_a_task_without_a_search(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, [("", ["sky__moon"])])
    add_prompt(path, START + 0.5, "what does the moon look like")
    assert [each.text for each in read(loader.load(path)).queries] == ["what does the moon look like"]


def test_a_file_is_asked_now_by_what_is_known_now(tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text(
        '{"query": "x", "calls": ["sky__moon", "moon", "add"]}\n\n{"query": "", "calls": ["sky__moon"]}\n'
        '{"query": "y", "calls": ["moon", "gone", "sky/forecast"], "any": true}\n'
        '{"query": "z", "calls": ["moon", "gone"]}\n'
    )
    with offline.open_offline(loader.load(write_recorded(tmp_path, TASKS))) as app:
        found = read_queries(file, app.catalog.tools(), app.store.calls.usage(), 7.0)
    both, either = found.queries
    assert both.needs == ({"sky__moon"}, {"calc__add"}) and either.needs == ({"sky__moon", "sky__forecast"},)
    assert both.at == 7.0 and both.usage[ToolId("calc__add")].calls == 2
    assert (found.wordless, found.unknown) == (1, 1)
