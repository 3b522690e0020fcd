"""Notifications of one connection: all of a quiet server, some of one that floods, and it is said."""

from __future__ import annotations

import asyncio

import pytest

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Message
from foretool.server.upstreams.notice_limit import CHANGES, LOGS, PROGRESS, NoticeLimit


def log(number: int) -> Message:
    return Message(method="notifications/message", params=jsonrpc.raw({"level": "error", "data": number}))


def updated(uri: str) -> Message:
    return Message(method="notifications/resources/updated", params=jsonrpc.raw({"uri": uri}))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_log_entries_over_the_limit_are_left_out_and_the_next_one_says_how_many() -> None:
    clock, passed = Clock(), list[Message]()
    limit = NoticeLimit(clock)
    for number in range(2000):
        limit.pass_log(log(number), passed.append)
    assert len(passed) == LOGS[0]
    clock.now += 1
    limit.pass_log(log(2000), passed.append)
    said = jsonrpc.decode_value(passed[-2].params or b"{}")
    assert said["data"].startswith(f"{2000 - LOGS[0]:.0f} log entries")
    assert passed[-1].params == log(2000).params


def test_progress_over_the_limit_is_left_out() -> None:
    clock = Clock()
    limit, passed = NoticeLimit(clock), list[Message]()
    progress = Message(method="notifications/progress")
    for _ in range(2000):
        limit.pass_notice(progress, passed.append)
    assert len(passed) == PROGRESS[0]
    clock.now += 0.5
    for _ in range(2000):
        limit.pass_notice(progress, passed.append)
    assert len(passed) == PROGRESS[0] + PROGRESS[1] / 2


@pytest.mark.anyio
async def test_changes_over_the_limit_are_put_off_and_told_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretool.server.upstreams.notice_limit.PUT_OFF_S", 0.0)
    passed: list[Message] = []
    limit = NoticeLimit(Clock())
    for number in range(1000):
        limit.pass_change(updated(f"file:///{number % 2}"), passed.append)
    assert len(passed) == CHANGES[0]
    async with asyncio.timeout(5):
        while len(passed) < CHANGES[0] + 2:
            await asyncio.sleep(0)
    assert {bytes(each.params or b"") for each in passed[-2:]} == {
        bytes(updated(f"file:///{n}").params) for n in (0, 1)
    }  # type: ignore[arg-type]
    limit.pass_change(updated("file:///late"), passed.append)
    limit.close()
    await asyncio.sleep(0)
    assert len(passed) == CHANGES[0] + 2
