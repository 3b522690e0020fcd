"""A frozen list names tools where a replay says that this saves discovery turns, and only there."""

from __future__ import annotations

import msgspec
import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learning_setting import ADD, MOON, RAIN, SUB, SUM, Setting
from requirements import requirement

from foretool.learning.list_names import NAME_SHARES, NAMED_CALL, turn_costs
from foretool.server.catalog.models import LearnedLists, NamedShare
from foretool.storage.records import ToolId


def narrow(setting: Setting) -> None:
    """Leave room for about one definition: all five take 40 tokens each."""
    text = setting.config.path.read_text()
    own = 780 - setting.budget()
    setting.config.path.write_text(text.replace('"list_tokens": 780', f'"list_tokens": {own + 90}'))
    from foretool.server.config import loader

    setting.config = loader.load(setting.config.path)


@requirement("learn:names")
def test_names_are_served_once_later_tasks_would_have_taken_fewer_discoveries(setting: Setting) -> None:
    narrow(setting)
    for number in range(60):
        setting.demonstrate((ADD, SUB, SUM, MOON, RAIN)[number % 5], first=number)
    result = setting.result("names")
    assert result.outcome == "promoted", result.reason
    data = setting.artifacts.load_intact("names")[0][1]
    share = msgspec.json.decode(data, type=NamedShare).share
    assert share in NAME_SHARES[1:] and share == LearnedLists(setting.store).named_share()
    assert result.report["new"]["turns"] < result.report["old"]["turns"]
    # Nothing new has happened since.
    assert setting.result("names").outcome == "skipped"


@requirement("learn:names")
def test_names_are_not_served_where_definitions_suffice(setting: Setting) -> None:
    setting.demonstrate(ADD, times=60)
    result = setting.result("names")
    assert result.outcome == "kept"
    assert LearnedLists(setting.store).named_share() == 0.0


def test_a_share_that_cannot_be_read_is_none(setting: Setting) -> None:
    for data in (b"{", b'{"share": "much"}'):
        setting.artifacts.add("names", data, {}, promote=True)
        assert LearnedLists(setting.store).named_share() == 0.0
    setting.artifacts.add("names", b'{"share": 7.0}', {}, promote=True)
    assert LearnedLists(setting.store).named_share() == 1.0


def test_a_discovery_costs_a_turn_and_a_named_call_a_part_of_one() -> None:
    a, b, c = map(ToolId, "abc")
    costs = turn_costs([a], [b], [(a, a), (a, b, b), (b, c), ()])
    assert costs == [0.0, NAMED_CALL, 1.0 + NAMED_CALL]
