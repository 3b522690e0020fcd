"""What one turn of the loop says goes out together, at its end; what comes is read into one buffer."""

from __future__ import annotations

import asyncio
import os
from typing import Any, cast

import pytest

from foretool.server.transports.pipes import BUFFER, MANY, PipeReader, PipeWriter, Turn

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
        self.is_read = not self.closed


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


async def test_closing_writes_what_still_waits() -> None:
    transport = Transport()
    writer = pipe(transport, Turn())
    writer.write(b"a")
    writer.close()
    assert (transport.written, writer.is_closing()) == ([b"a"], True)
    await asyncio.sleep(0)
    assert transport.written == [b"a"]


class Read:
    """The reading end of a pipe, with what was read of it."""

    def __init__(self) -> None:
        end, self.end = os.pipe()
        self.got: list[bytes] = []
        self.lost = asyncio.Event()
        self.news = asyncio.Event()
        self.reader = PipeReader(os.fdopen(end, "rb", buffering=0), self.feed, self.lost.set)

    def feed(self, data: bytes) -> None:
        self.got.append(data)
        self.news.set()

    async def after(self, data: bytes) -> list[bytes]:
        self.news.clear()
        os.write(self.end, data)
        async with asyncio.timeout(5):
            await self.news.wait()
        return self.got


async def test_what_is_read_is_as_long_as_what_came_and_stays_when_more_comes() -> None:
    read = Read()
    assert await read.after(b"one") == [b"one"]
    assert await read.after(b"x" * 5000) == [b"one", b"x" * 5000]
    assert bytes(BUFFER[:3]) == b"xxx"
    os.close(read.end)
    async with asyncio.timeout(5):
        await read.lost.wait()
    assert read.reader.is_closed
    read.reader.close()
    read.reader.resume_reading()


async def test_what_is_paused_is_read_when_it_goes_on_and_what_is_closed_is_not() -> None:
    read = Read()
    read.reader.resume_reading()
    read.reader.pause_reading()
    read.reader.pause_reading()
    os.write(read.end, b"later")
    await asyncio.sleep(0.01)
    assert read.got == []
    read.reader.resume_reading()
    async with asyncio.timeout(5):
        await read.news.wait()
    assert read.got == [b"later"]
    os.write(read.end, b"too late")
    read.reader.close()
    async with asyncio.timeout(5):
        await read.lost.wait()
    assert read.got == [b"later"]
    os.close(read.end)
