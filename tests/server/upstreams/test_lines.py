"""The requests that wait for a connection of one era, and what is known of eras after a refused handshake."""

from __future__ import annotations

import pytest

from foretool.server.protocol import jsonrpc
from foretool.server.upstreams.connection import Lost, Reply, Request
from foretool.server.upstreams.lines import Line, note_refusal
from foretool.storage.records import Era

Known = dict[Era, bool]


def asking(replies: list[Reply], timeout: float = 0.0) -> Request:
    return Request("tools/call", {}, replies.append, timeout=timeout)


def test_a_request_that_waits_can_be_cancelled_and_is_not_answered() -> None:
    line, replies = Line("legacy"), list[Reply]()
    request = asking(replies)
    line.put(request)
    assert line.is_waited_for
    line.cancel(request, "not wanted")
    line.fail_waiting("stopped")
    assert (line.is_waited_for, replies) == (False, [])


def test_only_a_request_whose_deadline_has_passed_is_given_up() -> None:
    line, replies = Line("legacy"), list[Reply]()
    for timeout in (0.0, 1.0, 1000.0):
        line.put(asking(replies, timeout))
    deadline = max(request.deadline for request in line._waiting)
    line.expire(deadline - 900)
    assert replies == [Lost("no answer within 1 s", sent=False)]


def test_a_request_that_comes_back_keeps_its_deadline() -> None:
    request = asking([], 1000.0)
    request.deadline = 5.0
    Line("legacy").put(request)
    assert request.deadline == 5.0


@pytest.mark.parametrize(("known", "code", "may_speak_legacy", "after"), [
    ({}, -32000, True, {"modern": False}),
    ({"modern": True}, -32000, False, {"modern": True}),
    ({"modern": True}, jsonrpc.METHOD_NOT_FOUND, True, {"modern": False}),
    ({"legacy": False}, jsonrpc.METHOD_NOT_FOUND, False, {}),
    ({"modern": True, "legacy": False}, jsonrpc.UNSUPPORTED_VERSION, True, {"modern": False}),
])  # fmt: skip
def test_a_refused_modern_handshake(known: Known, code: int, may_speak_legacy: bool, after: Known) -> None:
    assert note_refusal(known, "modern", code) is may_speak_legacy
    assert known == after
