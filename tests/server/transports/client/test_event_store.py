"""Streams to HTTP clients: what is sent, what is kept, what goes first when there is too much."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from foretool.server.transports.client.event_store import (
    KEPT,
    KEPT_READ,
    MOST_READERS,
    READ_BYTES,
    READ_S,
    READ_STREAM_BYTES,
    EventStore,
    Memory,
    Reader,
    Stream,
)

pytestmark = pytest.mark.anyio


def attached(stream: Stream, cuts: list[Stream] | None = None) -> Reader:
    return stream.attach(lambda: cuts.append(stream) if cuts is not None else None)


def numbers(data: bytes) -> list[int]:
    """The numbers that were sent as messages."""
    return [int(found) for found in re.findall(rb"^data: (\d+)", data, re.M)]


def test_an_event_is_one_line_of_data_with_an_id_where_it_can_be_resumed() -> None:
    stream = EventStore().open_stream()
    stream.send(b'{"a":\n1}')
    assert attached(stream).take() == b'id: 1.0\nevent: message\ndata: {"a": 1}\n\n'
    alone = Stream("")
    alone.send(b"{}")
    assert attached(alone).take() == b"event: message\ndata: {}\n\n"


def test_only_a_reply_that_is_all_there_is_can_be_taken_alone() -> None:
    for messages, expected in (([], b"9"), ([b"1"], None)):
        stream = Stream("")
        for message in messages:
            stream.send(message)
        stream.finish(b"9", None)
        assert stream.take_only() == expected
    unanswered = Stream("")
    unanswered.end()
    assert unanswered.take_only() is None


def test_nothing_follows_the_end() -> None:
    stream = Stream("")
    stream.finish(b"1", -32603)
    stream.send(b"2")
    stream.finish(b"3", None)
    reader = attached(stream)
    assert (numbers(reader.take()), reader.is_over, stream.code) == ([1], True, -32603)


def test_a_stream_goes_on_after_the_event_the_client_got_last() -> None:
    shelf = EventStore()
    stream = shelf.open_stream()
    for number in range(5):
        stream.send(str(number).encode())
    first = attached(stream)
    first.take()
    stream.detach(first)
    stream.finish(b"5", None)
    for event_id, expected in (("1.-1", [0, 1, 2, 3, 4, 5]), ("1.3", [4, 5]), ("1.5", [])):
        found = shelf.resume(event_id)
        assert found is stream
        reader = attached(stream)
        assert numbers(reader.take()) == expected
        stream.detach(reader)
    for unknown in ("1.6", "2.0", "1.--1", "1", "", "x.y", "1.-2", "1." + "9" * 50):
        assert shelf.resume(unknown) is None


def test_a_client_that_does_not_read_loses_the_response_and_keeps_the_newest() -> None:
    cuts: list[Stream] = []
    stream = Stream("1", EventStore(), limit=10)
    reader = attached(stream, cuts)
    for _ in range(4):
        stream.send(b"1234")
    assert (reader.is_over, cuts, stream.size) == (True, [stream], 8)
    stream.finish(b"x" * 50, None)
    assert stream.size == 50
    again = attached(stream)
    assert again.take().endswith(b"data: " + b"x" * 50 + b"\n\n")


def test_what_was_read_makes_room_without_harm() -> None:
    cuts: list[Stream] = []
    stream = Stream("1", EventStore(), limit=10)
    reader = attached(stream, cuts)
    for number in range(100):
        stream.send(b"%d" % (1000 + number))
        assert numbers(reader.take()) == [1000 + number]
    assert (cuts, stream.size) == ([], 8)


def test_a_modern_stream_forgets_what_is_sent_and_everything_when_overfull() -> None:
    cuts: list[Stream] = []
    stream = Stream("", limit=10)
    reader = attached(stream, cuts)
    stream.send(b"1234")
    reader.take()
    assert stream.size == 0
    for _ in range(3):
        stream.send(b"1234")
    assert (stream.is_overfull, stream.size, cuts, reader.is_over) == (True, 0, [stream], True)


def test_a_session_keeps_a_few_finished_streams() -> None:
    shelf = EventStore()
    for _ in range(KEPT_READ + 3):
        stream = shelf.open_stream()
        stream.finish(b"1", None)
        reader = attached(stream)
        reader.take()
        stream.detach(reader)
    kept = [number for number in range(1, KEPT_READ + 4) if shelf.resume(f"{number}.0") is not None]
    assert kept == list(range(4, KEPT_READ + 4))
    for _ in range(KEPT + 10):
        shelf.open_stream().finish(b"1", None)
    assert len(shelf._finished) == KEPT


def test_a_session_is_bounded_over_all_its_streams() -> None:
    shelf = EventStore(limit=1000)
    streams = [shelf.open_stream() for _ in range(5)]
    for number in range(200):
        for stream in streams:
            stream.send(b"%100d" % number)
    assert sum(stream.size for stream in streams) == shelf.size <= 1000
    for stream in streams:
        stream.finish(json.dumps("x" * 300).encode(), None)
    assert shelf.size <= 1000
    shelf.close()


async def test_the_newest_reader_gets_all_and_the_older_one_takes_over() -> None:
    stream = EventStore().standalone
    old, new = attached(stream), attached(stream)
    stream.send(b"1")
    assert (numbers(old.take()), numbers(new.take())) == ([], [1])
    waiting = asyncio.create_task(old.wait(5))
    await asyncio.sleep(0)
    stream.detach(new)
    assert await waiting is True
    stream.send(b"2")
    assert numbers(old.take()) == [2]
    assert await old.wait(0.001) is False


async def test_polling_ends_the_response_of_a_primed_client_only() -> None:
    for primes in (False, True):
        shelf = EventStore()
        shelf.primes = primes
        stream = shelf.open_stream()
        reader = attached(stream)
        stream.poll()
        assert (reader.is_over, stream.is_finished) == (primes, False)


def test_all_clients_together_are_bounded() -> None:
    asked: list[int] = []

    def relieve() -> None:
        asked.append(memory.size)
        while memory.is_full and shelf.drop_oldest():
            pass

    memory = Memory(relieve, limit=1000)
    shelf, lone = EventStore(memory=memory), Stream("", memory=memory)
    for _ in range(3):
        shelf.open_stream().finish(b"x" * 300, None)
    lone.send(b"y" * 300)
    assert asked == [1200]
    assert memory.size == shelf.size + lone.size == 900
    lone.release()
    shelf.close()
    assert memory.size == 0


def test_one_more_response_of_a_stream_ends_its_oldest() -> None:
    stream = EventStore().standalone
    readers = [stream.attach(lambda: None) for _ in range(MOST_READERS + 1)]
    assert [reader.is_over for reader in readers] == [True] + [False] * MOST_READERS


def send_whole(shelf: EventStore, size: int) -> Stream:
    """Finish a stream of so many bytes, and have its client read it."""
    stream = shelf.open_stream()
    stream.finish(b"x" * size, None)
    reader = attached(stream)
    reader.take()
    stream.detach(reader)
    return stream


def test_answers_that_were_read_are_bounded_over_all_clients_and_go_after_a_while() -> None:
    now = 0.0
    memory = Memory(clock=lambda: now)
    shelves = [EventStore(memory=memory) for _ in range(100)]
    for shelf in shelves:
        send_whole(shelf, READ_BYTES // 4)
        assert memory.size <= READ_BYTES
    assert memory.size == READ_BYTES
    assert [shelf.resume("1.-1") is not None for shelf in shelves] == [False] * 96 + [True] * 4
    for shelf in shelves[-4:]:
        send_whole(shelf, 10)
    now += READ_S
    memory.forget_read()
    # What the four have come back for is on its way again, and counts as not read.
    assert memory.size == READ_BYTES
    for shelf in shelves:
        shelf.close()
    assert memory.size == 0


def test_the_last_answer_that_was_read_is_kept_however_large() -> None:
    now = 0.0
    memory = Memory(clock=lambda: now)
    shelf = EventStore(memory=memory)
    send_whole(shelf, 2 * READ_BYTES)
    assert shelf.resume("1.-1") is not None
    stream = send_whole(shelf, 3 * READ_BYTES)
    assert stream.size == 3 * READ_BYTES
    now += READ_S
    memory.forget_read()
    assert shelf.resume("2.-1") is None


def test_an_open_stream_keeps_little_of_what_was_read() -> None:
    shelf = EventStore()
    stream = shelf.open_stream()
    reader = attached(stream)
    for number in range(20):
        stream.send(b"%d " % (1000 + number) + b" " * (READ_STREAM_BYTES // 4))
        assert numbers(reader.take()) == [1000 + number]
    assert READ_STREAM_BYTES // 2 < stream.size <= READ_STREAM_BYTES
    stream.send(b"2000" + b" " * (2 * READ_STREAM_BYTES))
    reader.take()
    assert stream.resume_after(19)
    assert numbers(reader.take()) == [2000]
