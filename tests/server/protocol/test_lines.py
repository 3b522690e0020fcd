"""Streams of bytes cut into lines, and the lines that are too long."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretool.server.protocol.lines import LARGE, LineSplitter, TooLong


@given(st.lists(st.binary(max_size=30)), st.integers(1, 10))
def test_lines_come_out_alike_however_the_bytes_are_cut(parts: list[bytes], size: int) -> None:
    data = b"\n".join(parts) + b"\n"
    whole, cut = LineSplitter(1000), LineSplitter(1000)
    expected = list(whole.feed(data))
    pieces = [line for start in range(0, len(data), size) for line in cut.feed(data[start : start + size])]
    assert pieces == expected


def feed(lines: LineSplitter, data: bytes, size: int) -> list[bytes]:
    """Feed pieces of this size; the lines that came out."""
    return [bytes(line) for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]


def test_a_line_over_the_limit_is_dropped_and_the_next_one_read() -> None:
    lines = LineSplitter(10)
    assert feed(lines, b"x" * 24 + b"\nok\n", 8) == [b"ok"]
    assert [(each.id, each.is_over) for each in lines.take_too_long()] == [(None, False), (None, True)]
    assert lines.take_too_long() == []


def test_a_line_that_comes_whole_is_dropped_too_if_it_is_over_the_limit() -> None:
    lines = LineSplitter(10)
    assert list(lines.feed(b"x" * 10 + b"\n")) == [b"x" * 10]
    assert list(lines.feed(b"x" * 11 + b"\n")) == []
    assert [each.is_over for each in lines.take_too_long()] == [False, True]
    assert list(lines.feed(b"\n")) == list(lines.feed(b"")) == []
    assert list(lines.feed(b"o")) == []
    assert list(lines.feed(b"k \n")) == [b"ok"]


def test_a_large_line_comes_out_whole_and_without_white_space_around_it() -> None:
    lines = LineSplitter(10 * LARGE)
    large = json.dumps({"text": "x" * (3 * LARGE)}).encode()
    assert feed(lines, b"  " + large + b"\r\n{}\n" + large + b"\n", 100_000) == [large, b"{}", large]


@pytest.mark.parametrize(
    ("head", "tail", "known"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":"', b'"}', [(b"7", False)]),
        (b'{"result":"', b'","jsonrpc":"2.0","id":7}', [(None, False), (b"7", True)]),
        (b'{"result":"', b'","jsonrpc":"2.0","ID":7}', [(None, False), (None, True)]),
    ],
)
@pytest.mark.parametrize("size", [100, 2000, 5 * LARGE])
def test_the_id_of_a_line_that_is_too_long_is_told_as_soon_as_it_is_known(
    head: bytes, tail: bytes, known: list[tuple[bytes | None, bool]], size: int
) -> None:
    lines = LineSplitter(LARGE + 1000)
    told: list[TooLong] = []
    data = head + b"y" * (3 * LARGE) + tail
    for at in range(0, len(data), size):
        assert feed(lines, data[at : at + size], size) == []
        told += lines.take_too_long()
    assert [(each.id, each.is_over) for each in told] == known[:1]
    assert told[0].start.startswith(head)
    assert feed(lines, b"\nnext\n", 3) == [b"next"]
    assert [(each.id, each.is_over) for each in lines.take_too_long()] == known[1:]
