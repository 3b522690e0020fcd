"""The recorded traffic is cut into one episode per task, without failed and repeated calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from msgspec.structs import replace
from requirements import requirement

from foretool.storage.episodes import (
    GAP_S,
    LONGEST,
    are_alike,
    cut_conversation,
    read_episodes,
    read_latest_episodes,
)
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, Episode, Event, Outcome, Prompt, SessionRecord, ToolId
from foretool.storage.store import Store


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(":memory:") as store:
        yield store


def call(session: str, at: float, tool: str, outcome: Outcome = "ok", handle: str = "") -> Call:
    return Call(session, at, ToolId(tool), "u", "name", False, outcome, 1.0, True, "", handle=handle)


def asked(session: str, at: float, task: str, handle: str = "") -> Discovery:
    return Discovery(session, at, task, (), None, "high", (), 10, 1.0, handle=handle)


def prompt(store: Store, at: float, text: str, session: str = "chat") -> None:
    store.tasks.add_prompt(Prompt(at, text, session))


def told(found: list[Episode]) -> list[tuple[tuple[str, ...], tuple[str, ...], bool]]:
    return [(each.calls, each.tasks, each.ended) for each in found]


@requirement("learn:episodes")
def test_a_session_is_one_task_until_a_long_gap(store: Store) -> None:
    store.calls.record([call("s", 1.0, "a"), call("s", 2.0, "b"), call("s", 2.0 + GAP_S + 1, "c"), call("t", 1.5, "d")])
    found = read_episodes(store, now=2.0 + GAP_S + 2)
    assert told(found) == [(("a", "b"), (), True), (("d",), (), True), (("c",), (), False)]
    assert [each.key for each in found] == ["s:1", "t:1", "s:2"]
    assert [each.at for each in found] == [1.0, 1.5, 2.0 + GAP_S + 1]


@requirement("learn:episodes")
def test_another_task_starts_another_episode_after_a_call(store: Store) -> None:
    for at, task in ((1.0, "weather in Oslo"), (2.0, "the weather of Oslo today"), (5.0, "send a mail to Ada")):
        store.discoveries.add(asked("s", at, task))
    store.calls.record([call("s", 3.0, "weather"), call("s", 4.0, "alerts"), call("s", 6.0, "mail")])
    store.sessions.begin(SessionRecord("s", "c", "1", "legacy", "stdio", "", 0.0))
    store.sessions.end("s", 7.0)
    assert told(read_episodes(store, now=8.0)) == [
        (("weather", "alerts"), ("weather in Oslo", "the weather of Oslo today"), True),
        (("mail",), ("send a mail to Ada",), True),
    ]


@requirement("learn:episodes")
def test_failed_calls_are_left_out_and_repeated_calls_are_one_step(store: Store) -> None:
    outcomes: list[tuple[str, Outcome]] = [
        ("a", "tool_error"), ("a", "ok"), ("a", "ok"), ("b", "lost"), ("c", "error"), ("a", "ok"), ("d", "cancelled"),
        ("e", "ok"), ("a", "ok"),
    ]  # fmt: skip
    store.calls.record([call("s", float(at), tool, outcome) for at, (tool, outcome) in enumerate(outcomes)])
    store.calls.record([call("t", 3.0, "x", "lost")])
    assert [each.calls for each in read_episodes(store, now=10.0)] == [("a", "e", "a")]


@requirement("learn:episodes")
def test_an_episode_has_the_arguments_of_its_steps_and_the_tools_that_failed(store: Store) -> None:
    calls = [
        ("a", "tool_error", '{"x":"string"}'), ("a", "ok", '{"x":"number"}'), ("a", "ok", '{"x":"array"}'),
        ("b", "lost", "{}"), ("c", "ok", "{}"), ("d", "error", ""),
    ]  # fmt: skip
    store.calls.record(
        [
            Call("s", float(at), ToolId(tool), "u", "name", False, cast(Outcome, outcome), 1.0, True, arguments)
            for at, (tool, outcome, arguments) in enumerate(calls)
        ]
    )
    (found,) = read_episodes(store, now=10.0)
    assert (found.calls, found.arguments, found.failed) == (("a", "c"), ('{"x":"number"}', "{}"), ("b", "d"))


@requirement("learn:episodes")
def test_a_prompt_belongs_to_the_conversation_with_the_next_event(store: Store) -> None:
    prompt(store, 1.0, "book a flight")
    store.discoveries.add(asked("s", 2.0, "flights from Oslo"))
    store.calls.record([call("s", 3.0, "search")])
    store.discoveries.add(asked("s", 4.0, "pay with a card"))
    store.calls.record([call("s", 5.0, "pay")])
    prompt(store, 10.0, "thanks, what a nice day")
    prompt(store, 20.0, "cancel it")
    store.calls.record([call("s", 21.0, "cancel")])
    assert told(read_episodes(store, now=10_000.0)) == [
        (("search", "pay"), ("book a flight", "flights from Oslo", "pay with a card"), True),
        ((), ("thanks, what a nice day",), True),
        (("cancel",), ("cancel it",), True),
    ]


@requirement("learn:episodes")
def test_chats_that_take_turns_in_one_session_are_separate_conversations(store: Store) -> None:
    store.discoveries.add(asked("s", 1.0, "weather", "one"))
    store.discoveries.add(asked("s", 2.0, "mail", "two"))
    store.calls.record(
        [call("s", 3.0, "rain", handle="one"), call("s", 4.0, "send", handle="two"), call("s", 5.0, "listed")]
    )
    store.calls.record([call("s", 6.0, "snow", handle="one")])
    assert sorted(told(read_episodes(store, now=10_000.0))) == [
        (("listed",), (), True), (("rain", "snow"), ("weather",), True), (("send",), ("mail",), True),
    ]  # fmt: skip


@requirement("learn:episodes")
def test_consecutive_chats_share_their_session_with_calls_without_a_handle(store: Store) -> None:
    store.discoveries.add(asked("s", 1.0, "weather", "one"))
    store.calls.record(
        [call("s", 2.0, "rain", handle="one"), call("s", 3.0, "listed"), call("s", 5.0, "more", handle="two")]
    )
    assert [each.calls for each in read_episodes(store, now=10_000.0)] == [("rain", "listed"), ("more",)]


def test_a_very_long_episode_is_shortened_and_has_no_known_end() -> None:
    events = [Event(float(at), "call", f"t{at}") for at in range(LONGEST + 5)]
    (found,) = cut_conversation("s", events, is_over=True)
    assert (len(found.calls), found.ended) == (LONGEST, False)


def test_texts_are_alike_if_they_share_half_of_the_shorter_one() -> None:
    assert are_alike("weather in Oslo", "what is the weather in Bergen")
    assert not are_alike("weather in Oslo", "send a mail")
    assert not are_alike("!!!", "...")


def test_the_latest_episodes_are_those_of_the_whole_log(store: Store) -> None:
    every = 2 * GAP_S
    for number in range(300):
        at = number * every
        store.discoveries.add(asked("chat", at, f"task {number}"))
        store.calls.record([call("chat", at + 1 + each, f"t{each}") for each in range(number % 4)])
    now = 1000 * every
    whole = [each for each in read_episodes(store, now) if each.calls]
    for most in (1, 5, 50, 1000):
        for since in (0.0, 100 * every, 299 * every, 500 * every):
            wanted = [each for each in whole if each.at >= since][-most:]
            found = read_latest_episodes(store, now, since, most)
            assert [replace(each, key="") for each in found] == [replace(each, key="") for each in wanted]
            assert len({each.key for each in found}) == len(found)
    assert len(whole) == 225
