"""Cuts the recorded traffic into episodes: the calls of one task in order, with the task in words if it is known.

A conversation is a session, or the part of a session that belongs to one handle if several chats took turns in it. A
conversation is cut after `GAP_S` without an event, at a prompt that a hook recorded, and at a discovery with another
task, if something was called since the last one. Failed calls are left out, because the task did not need them.
Repeated calls of one tool in a row count as one step.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice, pairwise
from math import inf
from typing import Final

from foretool.storage.records import Episode, Event, Prompt, ToolId
from foretool.storage.store import Store

GAP_S: Final = 1800.0
"""After this long without an event, the next event belongs to another task."""
PROMPT_S: Final = 300.0
"""A prompt belongs to the conversation with the next event, if that comes within this time."""
_ALIKE: Final = 0.5
"""Two texts describe the same task if they share at least this part of the shorter text's words."""
MOST_CALLS: Final = 200_000
"""How many calls are read, the latest ones."""
LONGEST: Final = 64
"""Calls kept of one episode, from its start; a longer episode is a program rather than a task."""

_CALLS_EACH: Final = 20
"""Calls that are read at first for each episode that is wanted."""
_LOOKED_AT: Final = 2000
"""Events after which `each_episode` looks for conversations that are over."""
_MOST_HELD: Final = 20_000
"""Events of one session that are held; a session that never pauses is cut there."""
_WORD = re.compile(r"\w+")


def read_episodes(store: Store, now: float, most_calls: int = MOST_CALLS) -> list[Episode]:
    """Return the episodes of the latest `most_calls` calls, the oldest first, without older prompts and searches. `now`
    decides which conversations may still continue."""
    calls = store.calls.events(most_calls)
    since = min((each.at for each in calls), default=0.0) - PROMPT_S if len(calls) >= most_calls else 0.0
    return _episodes(store, now, calls, since, inf, most_calls)


def read_latest_episodes(store: Store, now: float, since: float, most: int) -> list[Episode]:
    """Return the latest `most` episodes with calls that began since a time, the oldest first, as `read_episodes` finds
    them, but the numbers in their keys count from the first call that was read. Reads few calls more than it takes."""
    reads = min(most * _CALLS_EACH, MOST_CALLS)
    while True:
        calls = store.calls.events(reads)
        is_all = len(calls) < reads
        oldest = min((each.at for each in calls), default=0.0)
        found = _episodes(store, now, calls, 0.0 if is_all else oldest - PROMPT_S, inf, reads)
        wanted = [each for each in found if each.calls and each.at >= since]
        # Episodes are cut in another way where their conversation is not read from its beginning. So the ones that are
        # wanted have to lie well behind the first call that was read.
        is_enough = oldest + GAP_S < since or (len(wanted) >= 2 * most and wanted[-most].at > oldest + GAP_S)
        if is_all or reads >= MOST_CALLS or is_enough:
            return wanted[-most:]
        reads = min(reads * 5, MOST_CALLS)


def read_episodes_between(store: Store, now: float, first: int, last: int) -> list[Episode]:
    """Return the episodes of the calls from one id to another; the first and the last of them may be cut."""
    calls = store.calls.events_between(first, last)
    if not calls:
        return []
    since, until = min(each.at for each in calls) - PROMPT_S, max(each.at for each in calls)
    return _episodes(store, now, calls, since, until, len(calls))


def _episodes(store: Store, now: float, calls: Sequence[Event], since: float, until: float, most: int) -> list[Episode]:
    prompts = [each for each in reversed(store.tasks.prompts(since, most, until)) if each.text]
    events = [*calls, *store.discoveries.events(since, until, most)]
    return cut_log(events, prompts, store.sessions.ended({each.session for each in events}), now)


def each_episode(store: Store, since: float, until: float, now: float) -> Iterator[Episode]:
    """Yield the episodes with calls that began from a time on and before another, about in the order of their ends.

    Holds only the events of conversations that may still go on, so a log of millions of calls fits. Times of records
    may lie up to `GAP_S` out of order.
    """
    pending: dict[str, list[Event]] = {}
    streams = (store.exporting.call_events(since, until), store.exporting.task_events(since, until))
    for number, event in enumerate(heapq.merge(*streams, key=lambda each: each.at), 1):
        pending.setdefault(event.session, []).append(event)
        if number % _LOOKED_AT == 0:
            quiet = [key for key, own in pending.items() if own[-1].at < event.at - 2 * GAP_S or len(own) > _MOST_HELD]
            yield from _cut_some(store, pending, quiet, now)
    yield from _cut_some(store, pending, list(pending), now)


def _cut_some(store: Store, pending: dict[str, list[Event]], sessions: Sequence[str], now: float) -> list[Episode]:
    """Return the episodes of some sessions, and take these out of `pending`."""
    moments = [event.at for key in sessions for event in pending[key]]
    if not moments:
        return []
    known = [event for own in pending.values() for event in own]
    prompts = store.exporting.prompts(min(moments) - PROMPT_S, max(moments))
    ended = {key for key in sessions if now - pending[key][-1].at > GAP_S}
    wanted = set(sessions)
    for key in sessions:
        del pending[key]
    return [
        each
        for each in cut_log(known, prompts, ended, now)
        if each.calls and each.key.partition("/")[0].partition(":")[0] in wanted
    ]


def cut_log(events: list[Event], prompts: Sequence[Prompt], ended: Collection[str], now: float) -> list[Episode]:
    """Return the episodes in these events, the oldest first. Prompts come in order; `ended`: sessions that are over."""
    conversations = _conversations(events, prompts)
    found = _unanswered(prompts, conversations)
    for key, own in conversations.items():
        is_over = key.partition("/")[0] in ended or now - own[-1].at > GAP_S
        found += cut_conversation(key, own, is_over)
    return sorted(found, key=lambda each: each.at)


def _conversations(events: list[Event], prompts: Sequence[Prompt]) -> dict[str, list[Event]]:
    """Return the events of each conversation, in order."""
    # A task comes before a call of the same instant.
    events.sort(key=lambda each: (each.at, each.kind == "call"))
    sessions: dict[str, list[Event]] = {}
    for event in events:
        sessions.setdefault(event.session, []).append(event)
    found = {name: chat for key, session in sessions.items() for name, chat in _chats(key, session).items()}
    moments = sorted((event.at, name) for name, chat in found.items() for event in chat)
    for name, event in _addressed(prompts, moments):
        found[name].append(event)
        found[name].sort(key=lambda each: each.at)
    return found


def _chats(key: str, events: list[Event]) -> dict[str, list[Event]]:
    """Return the session as one conversation, or split by handle if several chats took turns in it.

    In a split session, events without a handle make a conversation of their own.
    """
    spans: dict[str, tuple[float, float]] = {}
    for event in events:
        if event.handle:
            spans[event.handle] = (spans.get(event.handle, (event.at,))[0], event.at)
    ordered = sorted(spans.values())
    if all(one[1] <= other[0] for one, other in pairwise(ordered)):
        return {key: events}
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(f"{key}/{event.handle}" if event.handle else key, []).append(event)
    return found


def _addressed(prompts: Iterable[Prompt], events: Sequence[tuple[float, str]]) -> Iterator[tuple[str, Event]]:
    """Yield each prompt with the conversation that does something next, if that is soon; one whose session is known
    with a conversation of that session."""
    place = 0
    for prompt in prompts:
        while place < len(events) and events[place][0] < prompt.at:
            place += 1
        for at, name in islice(events, place, None):
            if at - prompt.at > PROMPT_S:
                break
            if not prompt.owner or name.partition("/")[0] == prompt.owner:
                yield name, Event(prompt.at, "prompt", prompt.text)
                break


def _unanswered(prompts: Iterable[Prompt], conversations: Mapping[str, Sequence[Event]]) -> list[Episode]:
    """Return the prompts that needed no tool: nothing happened here before the next prompt of their conversation."""
    acted = sorted(event.at for events in conversations.values() for event in events if event.kind != "prompt")
    found: list[Episode] = []
    last: dict[str, Prompt] = {}
    for prompt in prompts:
        before = last.get(prompt.session)
        if before is not None and not _any_between(acted, before.at, prompt.at):
            key = f"prompt:{prompt.session}:{before.at:.3f}"
            found.append(Episode((), (before.text,), at=before.at, key=key))
        last[prompt.session] = prompt
    return found


def _any_between(moments: Sequence[float], first: float, last: float) -> bool:
    place = bisect_left(moments, first)
    return place < len(moments) and moments[place] <= last


def cut_conversation(key: str, events: Sequence[Event], is_over: bool) -> list[Episode]:
    """Return the episodes of one conversation; the last one has ended only if the conversation `is_over`."""
    parts = [part for part in _parts(events) if any(event.kind == "call" for event in part)]
    steps_of_parts = ((number, part, _steps(part)) for number, part in enumerate(parts, 1))
    return [
        Episode(
            calls=tuple(ToolId(event.text) for event in steps[:LONGEST]),
            tasks=tuple(dict.fromkeys(event.text for event in part if event.kind != "call")),
            ended=(is_over or number < len(parts)) and len(steps) <= LONGEST,
            at=part[0].at,
            key=f"{key}:{number}",
            arguments=_arguments(steps[:LONGEST]),
            failed=_failed(part),
        )
        for number, part, steps in steps_of_parts
        if steps
    ]


def _parts(events: Sequence[Event]) -> Iterator[list[Event]]:
    part: list[Event] = []
    for event in events:
        if part and _begins_task(part, event):
            yield part
            part = []
        part.append(event)
    if part:
        yield part


def _begins_task(part: Sequence[Event], event: Event) -> bool:
    if event.kind == "prompt" or event.at - part[-1].at > GAP_S:
        return True
    if event.handle and any(each.handle not in ("", event.handle) for each in part):
        return True
    if event.kind == "call" or not any(each.kind == "call" for each in part):
        return False
    # Known prompts mark where tasks begin; a discovery after one asks for a part of its task.
    said = [each for each in part if each.kind != "call"]
    return bool(said) and not any(each.kind == "prompt" or are_alike(each.text, event.text) for each in said)


def are_alike(one: str, other: str) -> bool:
    """Return whether two texts describe the same task."""
    words = [set(_WORD.findall(text.lower())) for text in (one, other)]
    least = min(len(each) for each in words)
    return one == other or (least > 0 and len(words[0] & words[1]) >= _ALIKE * least)


def _steps(part: Sequence[Event]) -> list[Event]:
    """Return the calls that succeeded, in order; of several calls of one tool in a row the first."""
    succeeded = (each for each in part if each.kind == "call" and each.ok)
    return [next(calls) for _, calls in groupby(succeeded, key=lambda each: each.text)]


def _arguments(steps: Sequence[Event]) -> tuple[str, ...]:
    """Return the arguments of each call; () if no call has any."""
    found = tuple(event.arguments for event in steps)
    return found if any(each not in ("", "{}") for each in found) else ()


def _failed(part: Sequence[Event]) -> tuple[ToolId, ...]:
    """Return the tools whose calls all failed, in the order of their first call."""
    calls = [each for each in part if each.kind == "call"]
    worked = {each.text for each in calls if each.ok}
    return tuple(dict.fromkeys(ToolId(each.text) for each in calls if each.text not in worked))
