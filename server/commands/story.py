"""What happened around a miss, in order: prompts, lists, searches, calls and the miss itself."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from foretool.server.commands import output
from foretool.server.commands.causes import NOTHING_FOUND
from foretool.storage.records import Call, Discovery, Exposure, Miss
from foretool.storage.stores import Store

BEFORE_S: Final = 1800.0
AFTER_S: Final = 600.0
"""How long before and after a miss the conversation is told."""
STEPS_BEFORE: Final = 12
STEPS_AFTER: Final = 3
"""How many of its steps are told at most."""
PROMPT_S: Final = 600.0
"""A prompt belongs to a miss that comes within this time."""
_LISTS: Final = ("list", "growth", "epoch")


class Step(Struct, frozen=True):
    """One thing that happened in the conversation of a miss."""

    at: float
    kind: Literal["prompt", "list", "named", "search", "call", "miss"]
    what: str
    tokens: int
    """Tokens that it put before the model; 0 if they are not known."""


def read_story(store: Store, miss: Miss) -> tuple[Step, ...]:
    """Return what happened in the session of a miss before and after it, in order."""
    since, until = miss.at - BEFORE_S, miss.at + AFTER_S
    prompts = [each for each in store.tasks.prompts(miss.at - PROMPT_S, -1) if each.at <= miss.at]
    # (time, order at one time, step)
    found: list[tuple[float, int, Step]] = [(each.at, 0, Step(each.at, "prompt", each.text, 0)) for each in prompts[:1]]
    for shown in store.sessions.exposures(miss.session):
        if shown.at <= until:
            found.append((shown.at, 1, _tell_list(shown)))
    for search in store.discoveries.of_session(miss.session, since, until):
        found.append((search.at, 2, _tell_search(search)))
    revealed = store.calls.get(miss.call) if miss.call else None
    for call in store.calls.of_session(miss.session, since, until):
        found.append((call.at, 4 if revealed is None or call.id >= revealed.id else 2, _tell_call(call)))
    needed = miss.tool or NOTHING_FOUND
    own = (miss.at, 3, Step(miss.at, "miss", f"needed {needed}, which the client could not see", miss.tokens))
    ordered = sorted([*found, own], key=lambda each: each[:2])
    place = ordered.index(own)
    before, after = ordered[:place], ordered[place + 1 :]
    # The list that the client had is part of the story, however long ago it was sent.
    lists = [each for each in before if each[2].kind == "list"][-1:]
    recent = [each for each in before[-STEPS_BEFORE:] if each not in lists]
    told = sorted([*lists, *recent], key=lambda each: each[:2])
    return tuple(each for _, _, each in [*told, own, *after[:STEPS_AFTER]])


def _tell_list(shown: Exposure) -> Step:
    count = output.plural(len(shown.tools), "tool")
    if shown.reason in _LISTS:
        return Step(shown.at, "list", f"got a list of {count} ({shown.policy})", shown.tokens)
    return Step(shown.at, "named", f"was told of {', '.join(shown.tools)} ({shown.reason})", shown.tokens)


def _tell_search(search: Discovery) -> Step:
    asked = f'"{search.task}"' if search.task else ", ".join(search.names)
    found = ", ".join(match.tool for match in search.matches[:3]) or "no tool"
    more = f" and {len(search.matches) - 3} more" if len(search.matches) > 3 else ""
    what = f"searched for {asked}: found {found}{more} (confidence {search.level})"
    return Step(search.at, "search", what, search.tokens)


def _tell_call(call: Call) -> Step:
    hidden = ", not in its list" if call.hidden else ""
    way = " through our bridge" if call.via == "bridge" else ""
    return Step(call.at, "call", f"called {call.tool}{way}: {call.outcome}{hidden}", 0)
