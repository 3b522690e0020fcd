"""Values that flow between calls are noticed; what a model could know by itself is not taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import live_config
from requirements import requirement

from foretool.server.protocol.jsonrpc import Raw
from foretool.server.recording.data_flow import RESULT_BYTES, WAITING, FlowWatch
from foretool.storage.records import ToolId

CHAT = ("session", "")
LOGIN, POST = ToolId("u__login"), ToolId("u__post")


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def text_of(value: Any) -> Raw:
    """A result as most servers send it: JSON as text."""
    return raw({"content": [{"type": "text", "text": json.dumps(value)}]})


def seen(*events: tuple[str, ToolId, Raw]) -> dict[tuple[str, str, str, str], int]:
    watch = FlowWatch(live_config())
    for kind, tool, content in events:
        given = (content, None) if kind == "call" else (None, content)
        watch.add(CHAT, tool, *given)
    while watch.look():
        pass
    return dict(watch.fetch())


@requirement("graph:flow")
@pytest.mark.parametrize("form", [raw, text_of])
def test_a_token_that_comes_back_as_an_argument_is_a_flow(form: Any) -> None:
    found = seen(
        ("call", LOGIN, raw({"user": "alex"})),
        ("result", LOGIN, form({"token": "a9s8d7", "user": "alex"})),
        ("call", POST, raw({"auth": {"bearer": "a9s8d7"}, "author": "alex"})),
    )
    # "alex" was said before it stood in a result.
    assert found == {(LOGIN, POST, "token", "auth"): 1}


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"id": "1"}, {"page": "1"}),  # too short to be the same by more than chance
        ({"id": "4711-long"}, {"id": "4711"}),  # a piece of a longer word
        ({"text": "one two three four"}, {"text": "one two three four"}),  # a sentence is the model's own
    ],
)
def test_what_is_the_same_by_chance_is_no_flow(given: Any, asked: Any) -> None:
    assert seen(("result", LOGIN, text_of(given)), ("call", POST, raw(asked))) == {}


def test_hostile_or_huge_content_is_left_out() -> None:
    assert seen(("result", LOGIN, Raw(b"{\xff")), ("call", POST, Raw(b"[1")), ("call", POST, raw([1, "abcd"]))) == {}
    huge = raw({"token": "a9s8d7", "rest": "x" * RESULT_BYTES})
    assert seen(("result", LOGIN, huge), ("call", POST, raw({"token": "a9s8d7"}))) == {}


def test_no_more_waits_than_can_be_read() -> None:
    watch = FlowWatch(live_config())
    for at in range(WAITING + 100):
        watch.add((f"session-{at}", ""), POST, raw({}), None)
    assert len(watch._waiting) == WAITING
    while watch.look():
        pass
    assert len(watch._talks) == 64


@requirement("learn:opt-out")
def test_what_people_do_who_opted_out_is_not_looked_at() -> None:
    watch = FlowWatch(live_config(profiles={"private": {"learn": False}}))
    for profile in ("private", ""):
        watch.add((profile, ""), LOGIN, None, raw({"token": f"a9s8d7-{profile}"}), profile)
        watch.add((profile, ""), POST, raw({"auth": f"a9s8d7-{profile}"}), raw({}), profile)
    while watch.look():
        pass
    assert watch.fetch() == {(LOGIN, POST, "token", "auth"): 1}
