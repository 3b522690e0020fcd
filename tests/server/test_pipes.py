"""What one turn of the loop says goes out together, at its end."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from foretool.server.pipes import MANY, PipeWriter, Turn

pytestmark = pytest.mark.anyio


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def pipe(transport: Transport, turn: Turn) -> PipeWriter:
    return PipeWriter(cast(Any, transport), turn)


def test_the_messages_of_a_turn_are_one_write_at_its_end() -> None:
    transport, turn = Transport(), Turn()
    writer = pipe(transport, turn)
    with turn:
        for data in (b"a", b"b", b"c"):
            writer.write(data)
        assert transport.written == []
    assert transport.written == [b"abc"]


def test_what_is_put_off_while_the_turn_ends_is_still_of_this_turn() -> None:
    transport, turn = Transport(), Turn()
    writer = pipe(transport, turn)
    with turn:
        turn.at_end(lambda: writer.write(b"late"))
    assert transport.written == [b"late"]


def test_a_turn_within_a_turn_ends_with_the_outer_one() -> None:
    transport, turn = Transport(), Turn()
    writer = pipe(transport, turn)
    with turn:
        with turn:
            writer.write(b"a")
        assert transport.written == []
        writer.write(b"b")
    assert transport.written == [b"ab"]


def test_many_messages_do_not_wait_for_the_end() -> None:
    transport, turn = Transport(), Turn()
    writer = pipe(transport, turn)
    with turn:
        for _ in range(MANY + 1):
            writer.write(b"x")
        assert transport.written == [b"x" * MANY]
    assert transport.written == [b"x" * MANY, b"x"]


def test_one_that_fails_keeps_no_other_from_being_said(caplog: pytest.LogCaptureFixture) -> None:
    transport, turn = Transport(), Turn()
    writer = pipe(transport, turn)

    def fail() -> None:
        raise ValueError("no")

    for _ in range(2):
        with turn:
            turn.at_end(fail)
            writer.write(b"a")
    assert transport.written == [b"a", b"a"]
    assert len(caplog.records) == 2


class Source:
    """An upstream's output, as the loop reads it."""

    def __init__(self) -> None:
        self.is_read = True
        self.closed = False

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return self.closed


def test_while_it_is_held_no_source_is_read_and_none_that_comes_meanwhile() -> None:
    turn, before, gone, late = Turn(), Source(), Source(), Source()
    for source in (before, gone):
        turn.add(cast(Any, source))
    turn.remove(cast(Any, gone))
    turn.hold(True)
    turn.add(cast(Any, late))
    assert [source.is_read for source in (before, gone, late)] == [False, True, False]
    late.closed = True
    turn.hold(False)
    assert [source.is_read for source in (before, late)] == [True, False]


async def test_outside_of_a_turn_it_is_the_loops_next_round() -> None:
    transport = Transport()
    writer = pipe(transport, Turn())
    writer.write(b"a")
    writer.write(b"b")
    assert transport.written == []
    await asyncio.sleep(0)
    assert transport.written == [b"ab"]


async def test_closing_writes_what_still_waits() -> None:
    transport = Transport()
    writer = pipe(transport, Turn())
    writer.write(b"a")
    writer.close()
    assert (transport.written, writer.is_closing()) == ([b"a"], True)
    await asyncio.sleep(0)
    assert transport.written == [b"a"]
