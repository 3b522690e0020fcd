"""Bytes to server-sent events."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretool.server.transports.upstream.sse_parser import Event, EventParser, TooLarge

STREAM = (
    b"\xef\xbb\xbf: hello\r\nid: 1\r\nretry: 250\r\ndata:\r\n\r\n"
    b'event: message\rdata: {"a":\rdata:1}\r\r'
    b"data: two\nid: 7\nunknown: x\ndata\n\n"
    b"event: endpoint\ndata: /x\n\nid: 8\n\ndata: cut off"
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_do_not_depend_on_how_the_bytes_are_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    events = EventParser(1000)
    found = [event for a, b in pairwise(places) for event in events.feed(STREAM[a:b])]
    assert found == [Event("message", b'{"a":\n1}'), Event("message", b"two\n"), Event("endpoint", b"/x")]
    assert (events.last_id, events.retry_ms, events.seen) == ("8", 250, 5)


def test_an_event_over_the_limit_is_refused_before_it_is_whole() -> None:
    events = EventParser(100)
    assert list(events.feed(b"data: " + b"x" * 90 + b"\n\n")) == [Event("message", b"x" * 90)]
    with pytest.raises(TooLarge):
        list(events.feed(b"data: 1\n" * 20))
    with pytest.raises(TooLarge):
        list(EventParser(100).feed(b"data: " + b"x" * 100))


def test_comments_without_end_are_no_event() -> None:
    events = EventParser(100)
    for _ in range(1000):
        assert list(events.feed(b": ping\n")) == []


def test_a_new_connection_drops_what_was_cut_off() -> None:
    events = EventParser(100)
    assert list(events.feed(b"id: 3\n\ndata: hal")) == []
    events.restart()
    assert list(events.feed(b"data: whole\n\n")) == [Event("message", b"whole")]
    assert events.last_id == "3"
