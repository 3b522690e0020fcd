"""Filling a list is replayed on later conversations, and ends where it does not pay."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

import msgspec
from learning_setting import ADD, MOON, RAIN, SUB, SUM, Setting
from msgspec.structs import replace
from requirements import requirement

from foretool.learning.list_fill import HIDDEN_CALL, ListFill, ListSize, judge_gains
from foretool.server.lists.order import Prior
from foretool.storage.records import Episode, ToolId


def episode(key: str, *calls: ToolId) -> Episode:
    return Episode(calls, key=key)


SIZE = ListSize(lambda tool: 100, 700, 400)
FILL = ListFill(SIZE, (ADD, SUB, RAIN))


def test_a_conversation_gains_a_hidden_call_for_each_tool_and_pays_the_tokens_once() -> None:
    later = [episode("a:0", SUB, SUB), episode("a:1", SUB, RAIN), episode("b:0", MOON), episode("c:0")]
    # The budget holds three tools, `sum` among them; `add` and `sub` are added.
    assert FILL.gains([SUM], later) == [HIDDEN_CALL - 200, -200]
    assert FILL.gains([SUM, ADD, SUB], later) == []
    imported = [replace(each, source="import", key="file:1") for each in later]
    assert FILL.gains([SUM], imported) == [HIDDEN_CALL - 200, HIDDEN_CALL - 200, -200]


def test_only_an_interval_beside_0_changes_what_is_done() -> None:
    assert judge_gains([], False) == (False, [])
    assert judge_gains([-5.0] * 20, True) == (False, [-5.0, -5.0, -5.0])
    assert judge_gains([5.0] * 20, False)[0] is True
    assert judge_gains([-5.0, 6.0] * 10, True)[0] is True and judge_gains([-5.0, 6.0] * 10, False)[0] is False


@requirement("list:fill")
def test_lists_are_no_longer_filled_where_a_replay_says_that_it_does_not_pay(setting: Setting) -> None:
    setting.demonstrate(SUM, times=60)
    result = setting.result("prior")
    assert (result.outcome, result.report["fill"]) == ("promoted", False)
    assert result.report["fill_gain"][2] < 0.0
    learned = msgspec.json.decode(setting.artifacts.load_intact("prior")[0][1], type=Prior)
    assert learned.fill is False


def test_lists_stay_filled_where_new_tools_are_called_often(setting: Setting) -> None:
    for number in range(60):
        setting.demonstrate(SUM if number < 36 else (ADD, SUB, MOON, RAIN)[number % 4], first=number)
    report = setting.result("prior").report
    assert report["fill"] is True
    assert report["fill_gain"] == [] or report["fill_gain"][2] > 0.0
