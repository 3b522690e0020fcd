"""The recorded traffic as episodes: one task's calls in order, with its words where somebody said them.

A conversation is a session, or what one handle stands for where several chats of one session took turns. It is cut
where nothing happened for `GAP_S`, at a prompt that a hook recorded, and at a discovery whose task is another one than
before, once something was called for that. What went wrong is left out: calls that failed were not what the task took,
and one tool called several times in a row is one step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from foretool.storage.records import Episode, Event, Prompt, ToolId
from foretool.storage.stores import Store

GAP_S: Final = 1800.0
"""Without a call or a question for this long, what follows is another task."""
PROMPT_S: Final = 300.0
"""A prompt belongs to the conversation that does something next, if that is within this time."""
ALIKE: Final = 0.5
"""Two tasks that share this much of the shorter one's words are one, put in other words."""
MOST_CALLS: Final = 200_000
"""The latest calls on record that are read."""
LONGEST: Final = 64
"""Calls of one episode; a longer one is a program, not a task, and its first calls are kept."""

_WORD = re.compile(r"\w+")


def episodes(store: Store, since: float = 0.0, *, now: float) -> list[Episode]:
    """Return the episodes in the log, the oldest first; `now` tells which conversations may still go on."""
    prompts = [each for each in reversed(store.tasks.prompts(since)) if each.text]
    conversations = _conversations(store, since, prompts)
    found = _unanswered(prompts, conversations)
    ended = store.sessions.ended()
    for key, events in conversations.items():
        is_over = key.partition("/")[0] in ended or now - events[-1].at > GAP_S
        found += cut(key, events, is_over)
    return sorted(found, key=lambda each: each.at)


def _conversations(store: Store, since: float, prompts: Sequence[Prompt]) -> dict[str, list[Event]]:
    """Return the events of each conversation, in order."""
    events = [*store.calls.events(since, MOST_CALLS), *store.discoveries.events(since)]
    # What was asked comes before what was called in the same instant.
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
    """The session as one, unless chats took turns in it: then each of them, and what none of them owned up to."""
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
    """Yield each prompt with the conversation that does something next, if that is soon."""
    place = 0
    for prompt in prompts:
        while place < len(events) and events[place][0] < prompt.at:
            place += 1
        if place < len(events) and events[place][0] - prompt.at <= PROMPT_S:
            yield events[place][1], Event(prompt.at, "prompt", prompt.text)


def _unanswered(prompts: Iterable[Prompt], conversations: Mapping[str, Sequence[Event]]) -> list[Episode]:
    """Return the prompts that needed no tool: nothing happened here before the next prompt of their conversation."""
    acted = sorted(event.at for events in conversations.values() for event in events if event.kind != "prompt")
    found: list[Episode] = []
    last: dict[str, Prompt] = {}
    for prompt in prompts:
        before = last.get(prompt.session)
        if before is not None and not any(before.at <= moment <= prompt.at for moment in acted):
            key = f"prompt:{prompt.session}:{before.at:.3f}"
            found.append(Episode((), (before.text,), at=before.at, key=key))
        last[prompt.session] = prompt
    return found


def cut(key: str, events: Sequence[Event], is_over: bool) -> list[Episode]:
    """The episodes of one conversation; only the last one may go on unseen, unless the conversation `is_over`."""
    parts = [part for part in _parts(events) if any(event.kind == "call" for event in part)]
    told = ((number, part, _steps(part)) for number, part in enumerate(parts, 1))
    return [
        Episode(
            calls=steps[:LONGEST],
            tasks=tuple(dict.fromkeys(event.text for event in part if event.kind != "call")),
            ended=(is_over or number < len(parts)) and len(steps) <= LONGEST,
            at=part[0].at,
            key=f"{key}:{number}",
        )
        for number, part, steps in told
        if steps
    ]


def _parts(events: Sequence[Event]) -> Iterator[list[Event]]:
    part: list[Event] = []
    for event in events:
        if part and _begins_anew(part, event):
            yield part
            part = []
        part.append(event)
    if part:
        yield part


def _begins_anew(part: Sequence[Event], event: Event) -> bool:
    if event.at - part[-1].at > GAP_S:
        return True
    if event.kind == "prompt":
        return True
    if event.handle and any(each.handle not in ("", event.handle) for each in part):
        return True
    if event.kind == "call" or not any(each.kind == "call" for each in part):
        return False
    # Where prompts are known they say where a task begins; a discovery then asks for a part of it.
    said = [each for each in part if each.kind != "call"]
    return bool(said) and not any(each.kind == "prompt" or are_alike(each.text, event.text) for each in said)


def are_alike(one: str, other: str) -> bool:
    """Whether two texts are about one task."""
    words = [set(_WORD.findall(text.lower())) for text in (one, other)]
    least = min(len(each) for each in words)
    return one == other or (least > 0 and len(words[0] & words[1]) >= ALIKE * least)


def _steps(part: Sequence[Event]) -> tuple[ToolId, ...]:
    """The tools whose calls succeeded, in order, each once in a row."""
    steps: list[ToolId] = []
    for event in part:
        if event.kind == "call" and event.ok and (not steps or steps[-1] != event.text):
            steps.append(ToolId(event.text))
    return tuple(steps)


# Demonstrations


class Imported(Struct, frozen=True):
    """What a file of demonstrations held."""

    episodes: tuple[Episode, ...]
    rows: int
    unknown: tuple[str, ...]
    """Tools that it names and the catalog does not have, each once; their rows were left out."""


def read_demonstrations(path: Path, names: Mapping[str, ToolId]) -> Imported:
    """Lines of JSON with `query`, `calls` (tools in order) and optionally `edges`, `id`, `needs_tool`.

    `names`: every name by which a tool may be called here. Raises `ValueError` with the line, and `OSError`.
    """
    found: list[Episode] = []
    unknown: dict[str, None] = {}
    rows = 0
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        rows += 1
        row = _row(path, number, line)
        calls = row["calls"] if row.get("needs_tool", True) else []
        if missing := [call for call in calls if call not in names]:
            unknown.update(dict.fromkeys(missing))
            continue
        edges = row.get("edges")
        found.append(
            Episode(
                calls=tuple(names[call] for call in calls),
                tasks=(row["query"],) if row["query"] else (),
                edges=tuple((edge[0], edge[1]) for edge in edges) if edges is not None else None,
                source="import",
                key=f"{path.name}:{row.get('id', number)}",
            )
        )
    return Imported(tuple(found), rows, tuple(unknown))


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{path}: line {number}: no JSON ({error}); one object a line is expected") from None
    if not isinstance(row, dict) or not isinstance(row.get("query", ""), str):
        raise ValueError(f'{path}: line {number}: expected an object with "query" (text) and "calls" (list of names)')
    calls = row.get("calls")
    if not isinstance(calls, list) or not all(isinstance(call, str) for call in calls):
        raise ValueError(f'{path}: line {number}: "calls" must be a list of tool names')
    edges = row.get("edges")
    if edges is not None and not _are_edges(edges, len(calls)):
        raise ValueError(f'{path}: line {number}: "edges" must be pairs of places in "calls", counted from 0')
    return {**row, "query": row.get("query", "")}


def _are_edges(edges: Any, size: int) -> bool:
    def is_place(value: Any) -> bool:
        return isinstance(value, int) and 0 <= value < size

    return isinstance(edges, list) and all(
        isinstance(edge, list) and len(edge) == 2 and all(map(is_place, edge)) for edge in edges
    )


def without(episodes: Iterable[Episode], kept: Mapping[ToolId, object]) -> list[Episode]:
    """The episodes without calls of tools that are not `kept`; those of which nothing is left go.

    With a call the places of the others move, so of edges only those between calls that stay are kept.
    """
    found: list[Episode] = []
    for each in episodes:
        places = [place for place, call in enumerate(each.calls) if call in kept]
        if len(places) == len(each.calls):
            found.append(each)
        elif places:
            new = {place: number for number, place in enumerate(places)}
            edges = each.edges
            if edges is not None:
                edges = tuple((new[a], new[b]) for a, b in edges if a in new and b in new)
            found.append(
                Episode(
                    calls=tuple(each.calls[place] for place in places),
                    tasks=each.tasks, edges=edges, ended=each.ended, source=each.source, at=each.at, key=each.key,
                )
            )  # fmt: skip
    return found
