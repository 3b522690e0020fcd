"""Most of a list is for names of tools, until a replay says that another share saves discovery turns."""

from __future__ import annotations

import msgspec
import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learning_setting import ADD, MOON, RAIN, SUB, SUM, Setting
from requirements import requirement

from foretool.learning.list_names import NAME_SHARES, NAMED_CALL, turn_costs
from foretool.server.catalog.models import FIRST_NAMED, LearnedLists, NamedShare
from foretool.storage.records import ToolId


def narrow(setting: Setting, left: int) -> None:
    """Leave so many tokens for tools: all five take 40 as definitions, and some ten as names."""
    text = setting.config.path.read_text()
    own = 780 - setting.budget()
    setting.config.path.write_text(text.replace('"list_tokens": 780', f'"list_tokens": {own + left}'))
    from foretool.server.config import loader

    setting.config = loader.load(setting.config.path)


@requirement("learn:names")
def test_most_of_a_list_is_for_names_before_anything_was_learned_and_after_too_few_tasks(setting: Setting) -> None:
    narrow(setting, 70)
    assert LearnedLists(setting.store).named_share() == FIRST_NAMED
    setting.demonstrate(ADD, times=12)
    assert setting.result("names").outcome == "skipped"
    assert LearnedLists(setting.store).named_share() == FIRST_NAMED


@requirement("learn:names")
def test_the_share_of_names_stays_where_another_one_is_not_better_outside_the_error(setting: Setting) -> None:
    setting.demonstrate(ADD, times=60)
    result = setting.result("names")
    assert result.outcome == "kept" and result.report["difference"] == [0.0, 0.0, 0.0]
    assert "0.00 -> 0.00 discovery turns a task (+0.00 to +0.00) with 85% -> 25% of a list" in result.reason
    assert LearnedLists(setting.store).named_share() == FIRST_NAMED


@requirement("learn:names")
def test_the_share_of_names_moves_where_a_replay_shows_that_another_one_saves_turns(setting: Setting) -> None:
    # A quarter of the list for names defines one of the five and names two; most of it for names shows them all.
    narrow(setting, 55)
    setting.artifacts.add("names", b'{"share": 0.25}', {}, promote=True)
    for number in range(60):
        setting.demonstrate((ADD, SUB, SUM, MOON, RAIN)[number % 5], first=number)
    result = setting.result("names")
    assert result.outcome == "promoted", result.reason
    assert result.report["difference"][0] > 0.0
    data = setting.artifacts.load_intact("names")[0][1]
    share = msgspec.json.decode(data, type=NamedShare).share
    assert share in NAME_SHARES and share > 0.25 and share == LearnedLists(setting.store).named_share()
    assert result.report["new"]["turns"] < result.report["old"]["turns"]
    # Nothing new has happened since.
    assert setting.result("names").outcome == "skipped"


def test_a_share_that_cannot_be_read_is_the_first_one(setting: Setting) -> None:
    for data in (b"{", b'{"share": "much"}'):
        setting.artifacts.add("names", data, {}, promote=True)
        assert LearnedLists(setting.store).named_share() == FIRST_NAMED
    setting.artifacts.add("names", b'{"share": 7.0}', {}, promote=True)
    assert LearnedLists(setting.store).named_share() == 1.0


def test_a_discovery_costs_a_turn_and_a_named_call_a_part_of_one() -> None:
    a, b, c = map(ToolId, "abc")
    costs = turn_costs([a], [b], [(a, a), (a, b, b), (b, c), ()])
    assert costs == [0.0, NAMED_CALL, 1.0 + NAMED_CALL]
