"""What happened in a session, in order and in words: prompts, lists, searches, calls and misses; what a miss is.

The words of a miss (its cause, what revealed it, its rank and its cost) serve commands and the page too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from foretool.server.config.errors import name_some, plural
from foretool.server.lists.hidden import KEPT_BEFORE, KEPT_FOR_USE
from foretool.storage.records import (
    UNNAMED,
    UNSERVED,
    Call,
    Cause,
    Discovery,
    Exposure,
    Miss,
    MissCount,
    Noticed,
    SessionRecord,
)
from foretool.storage.store import Store

A_MISS: Final = (
    "A miss: a client needed a tool that its list neither defined nor named. It called a tool that it could not see,"
    " or it searched and then called none."
)
"""What is recorded as a miss, in the words of commands, page and README."""
CAUSES: Final[dict[Cause, str]] = {
    "rank": "neither its use, nor the profile's description, nor earlier tasks, nor the words of a search suggested it",
    "budget": "it was a candidate for the list, but others came before it (most tokens are for tools in use and names)",
    "stale": "the client's list is older than what brings the tool into it: its use, or a change of the servers",
    "gate": "the search found tools, but was too unsure to show one",
    "policy": "a list that may grow keeps tokens free for that, and they were missing",
    "offline": "its server did not work, or its tools were not known when the list was made",
    "preparing": "search by meaning was still being prepared, so words alone decided",
    "denied": "a rule of the config refuses it, the profile excludes its server, or it waits for `foretool review`",
    "gone": "its server is not in the config any more, or is disabled",
    "failing": "each of its latest calls failed, so no list takes it unless it is pinned",
    "app": "it has a page (MCP Apps), which the client shows only for tools of its list",
    "bypass": "a command of the client's shell did what it does, listed or not",
    "unused": "the search found tools, and the client called none of them",
    "unknown": "no server of this config has such a tool, a search found nothing, or what the client saw is unknown",
}
NOTICED: Final[dict[Noticed, str]] = {
    "call": "it was called by its name, although it was not in the list",
    "bridge": "it was called through call_tool or call_tool_write",
    "discovery": "discover_tools found it, and then it was called",
    "search": "discover_tools did not show it, or the client called nothing of what it showed",
    "nothing_found": "discover_tools found nothing",
    "unknown_name": "a name was called that no server of its profile has",
    "shell": "the client's hook told of a command of its shell that does the same",
}
RECOVERED: Final[dict[str, str]] = {
    "called": "called: the client called it all the same",
    "discovered": "discovered: a search found it, and the client called it",
    "suggested": "suggested: the client was told of names that are like it",
    "shell": "shell: a command did the work",
    "no": "no",
}


def say_why(miss: Miss) -> str:
    """Say why this tool was missed, more exactly than its cause does; "" if the cause says it all."""
    if miss.cause in ("denied", "gone"):
        return next((said for start, said in _DENIED if miss.change.startswith(start)), miss.change.partition(": ")[0])
    if miss.cause == "budget" and miss.change.endswith((KEPT_FOR_USE, KEPT_BEFORE)):
        return f"it would fit, but {KEPT_FOR_USE}"
    if miss.cause == "unused" and miss.change == UNSERVED:
        return "probably no server of yours has such a tool: the answer said so, and the client called nothing of it"
    if miss.cause == "unknown" and miss.change == UNNAMED:
        return "no server of this config has a tool of this name"
    if miss.noticed == "search":
        return _say_why_not_shown(miss)
    if miss.cause == "bypass" and miss.query:
        return f"`{miss.query}` in the client's shell does what it does"
    if miss.cause == "unknown" and miss.noticed == "unknown_name":
        return "no server of this config has a tool of this name"
    if miss.cause == "unknown" and miss.noticed == "nothing_found":
        return "the search found nothing that fits these words at all"
    if miss.cause == "unknown":
        return "it is not known which list the client had"
    return ""


def _say_why_not_shown(miss: Miss) -> str:
    """Say why a search did not show the tool that it was for."""
    if miss.cause not in ("rank", "unknown"):
        return ""
    if not miss.tool:
        return "the client called nothing of what it showed, and what it needed is not known"
    return "other tools fit the words of the search better" if miss.rank else "the words of the search hardly fit it"


_DENIED: Final = (
    ("remove ", "a rule of the config refuses it"),
    ("add ", "the profile does not have its server"),
    ("foretool review", "it waits for your approval"),
    ('set "confirm"', 'the setting "confirm" asks you first, and this client cannot ask'),
)
"""By the start of the change that would have let the call through, why it was refused."""


def name_miss(miss: Miss) -> str:
    """Return what was missed: a tool, a name, or what a search was for."""
    if miss.kind != "search":
        return miss.tool or EMPTY_NAME
    return f"a search that did not show {miss.tool}" if miss.tool else UNKNOWN_TOOL


def name_counted(count: MissCount) -> str:
    """Return the tool or the name that was missed so often; "" for searches after which no tool was called."""
    return count.tool or (EMPTY_NAME if count.kind == "name" else "")


def count_kinds(counts: Sequence[MissCount]) -> tuple[int, int, int]:
    """Return how many misses are needed hidden tools, searches without a call, and wrong names."""
    hidden, searches, names = (
        sum(each.count for each in counts if each.kind == kind) for kind in ("tool", "search", "name")
    )
    return hidden, searches, names


def say_counts(counts: Sequence[MissCount]) -> str:
    """Say how many misses are of tools, of searches and of wrong names."""
    return say_kinds(*count_kinds(counts))


def say_kinds(hidden: int, searches: int, names: int) -> str:
    """Say what the misses of each kind are."""
    parts = [f"{hidden:,} of tools"] if hidden else []
    after = "a search after which no tool was called" if searches == 1 else "searches after which no tool was called"
    parts += [f"{searches:,} of {after}"] if searches else []
    parts += [f"{names:,} of {'a name' if names == 1 else 'names'} that no server has"] if names else []
    return ", ".join(parts)


def say_rank(miss: Miss) -> str:
    """Write the rank of the missed tool: `2/42`, or `-` if it had none."""
    return f"{miss.rank}/{miss.of}" if miss.rank else f"-/{miss.of}" if miss.of else "-"


def say_cost(miss: Miss) -> str:
    """Write what a miss cost: `1 turn, 80 tokens`."""
    parts = [plural(miss.turns, "turn")] if miss.turns else []
    return ", ".join([*parts, plural(miss.tokens, "token")] if miss.tokens else parts) or "-"


def say_place(miss: Miss) -> str:
    """Write the rank of the missed tool in words."""
    if miss.rank:
        return f"number {miss.rank:,} of {plural(miss.of, 'ranked tool')}"
    return f"not one of {plural(miss.of, 'ranked tool')}" if miss.of else "not ranked"


_BEFORE_S: Final = 1800.0
_AFTER_S: Final = 600.0
"""How long before and after a miss the conversation is told."""
_STEPS_BEFORE: Final = 12
_STEPS_AFTER: Final = 3
"""How many of its steps are told at most."""
_MOST_OTHERS: Final = 400
"""Misses of the session that are read for calls of names that no server has, which are misses alone."""
_PROMPT_S: Final = 600.0
"""A prompt belongs to a miss that comes within this time."""
_MOST_PROMPTS: Final = 100
"""Prompts of all clients among which that of the miss is looked for."""
UNKNOWN_TOOL: Final = "a search after which no tool was called"
"""What stands for the tool that such a search was for."""
EMPTY_NAME: Final = 'the name ""'
"""What stands for the name of a call that gave none."""

MaySee = Callable[[Call], bool]
Kind = Literal["session", "prompt", "list", "named", "search", "miss", "call"]
_ORDER: Final[tuple[Kind, ...]] = ("session", "prompt", "list", "named", "search", "miss", "call")
"""At one instant what was shown comes before what was done."""
_MOST_NAMED: Final = 5
"""How many tools of one text a step names."""
_TOLD_BY: Final = {"hint": "behind a result", "prompt": "behind a prompt", "named": "in the list"}
"""By the reason on record, where a text named tools."""
_LISTS: Final = ("list", "growth", "epoch")


class Fact(Struct, frozen=True):
    """One line about a miss, with its heading."""

    name: str
    text: str


class StoryStep(Struct, frozen=True):
    """One event of a conversation, as the story of a miss tells it."""

    at: float
    kind: Kind
    what: str
    """What the client did or got; of a prompt, what the user asked."""
    tokens: int
    """Tokens that it put before the model; 0 if they are not known."""
    is_own: bool = False
    """Whether it is the miss that the story is of; a session may hold others."""


class MissStory(Struct, frozen=True):
    """One miss, with every record that it refers to, and the conversation around it."""

    miss: Miss
    session: SessionRecord | None
    exposure: Exposure | None
    """The list that the client had."""
    discovery: Discovery | None
    call: Call | None
    story: tuple[StoryStep, ...]
    """What happened before it and after it, in order."""

    def tell(self) -> tuple[Fact, ...]:
        """Say who missed what, and why."""
        miss, session = self.miss, self.session
        client = f"{session.client} {session.version}, {session.era}, {session.transport}" if session else "(unknown)"
        profile = session.profile if session else ""
        return (
            Fact("client", client),
            *([Fact("profile", profile)] if profile else []),
            *([Fact("task", miss.query)] if miss.query else []),
            Fact("noticed", NOTICED[miss.noticed]),
            Fact("cause", f"{miss.cause}: {say_why(miss) or CAUSES[miss.cause]}"),
            *([Fact("rank", say_place(miss))] if miss.tool else []),
        )

    def tell_end(self) -> tuple[Fact, ...]:
        """Say what came of it."""
        said = [Fact("recovered", RECOVERED[self.miss.recovered])]
        if self.miss.turns or self.miss.tokens:
            said.append(Fact("cost", say_cost(self.miss)))
        if self.call is not None:
            took = "" if self.call.outcome == "refused" else f" after {self.call.took_ms:.0f} ms"
            said.append(Fact("call", f"{self.call.outcome}{took}, by {self.call.via}"))
        return tuple(said)


def read_miss_story(store: Store, miss: Miss, may_see: MaySee = lambda _: True, *, prompts: bool = True) -> MissStory:
    """Return a miss with what stood around it. `may_see`, `prompts` as in `read_story`. Raises `StorageError`."""
    return MissStory(
        miss,
        store.sessions.get(miss.session),
        store.sessions.exposure(miss.exposure) if miss.exposure else None,
        store.discoveries.get(miss.discovery) if miss.discovery else None,
        store.calls.get(miss.call) if miss.call else None,
        read_story(store, miss, may_see, prompts=prompts),
    )


def read_story(
    store: Store, miss: Miss, may_see: MaySee = lambda _: True, *, prompts: bool = True
) -> tuple[StoryStep, ...]:
    """Return what happened in the session of a miss before and after it, in order. `may_see`: which calls are told of;
    `prompts`: also what the user asked; on record that belongs to no session, and so to no profile."""
    since, until = miss.at - _BEFORE_S, miss.at + _AFTER_S
    asked = store.tasks.prompts(miss.at - _PROMPT_S, _MOST_PROMPTS, miss.at) if prompts else []
    session = store.sessions.get(miss.session)
    client = session.client if session is not None else ""
    own = [each for each in asked if each.may_be_of(miss.session, client)]
    found = [StoryStep(each.at, "prompt", each.text, 0) for each in own[:1]]
    found += [tell_list(shown) for shown in store.sessions.exposures(miss.session) if shown.at <= until]
    searches = store.discoveries.of_session(miss.session, since, until)
    steps = {search.id: tell_search(search) for search in searches}
    found += steps.values()
    others = store.browsing.misses_of(miss.session, _MOST_OTHERS)
    found += [tell_miss(each) for each in others if each.kind == "name" and each.id != miss.id and each.at <= until]
    missed = replace(tell_miss(miss), is_own=True)
    # (time, order at one time, step)
    placed = [(step.at, _ORDER.index(step.kind), step) for step in (*found, missed)]
    revealed = store.calls.get(miss.call) if miss.call else None
    for call in filter(may_see, store.calls.of_session(miss.session, since, until)):
        is_later = revealed is None or call.id >= revealed.id
        placed.append((call.at, _ORDER.index("call" if is_later else "search"), tell_call(call)))
    ordered = sorted(placed, key=lambda each: each[:2])
    place = next(at for at, each in enumerate(ordered) if each[2] is missed)
    before, after = ordered[:place], ordered[place + 1 :]
    # The list that the client had is part of the story, however long ago it was sent.
    lists = [each for each in before if each[2].kind == "list"][-1:]
    charged = _find_charged(miss, searches)
    paid = [each for each in before[:-_STEPS_BEFORE] if any(each[2] is steps[id] for id in charged)]
    recent = [each for each in before[-_STEPS_BEFORE:] if each not in lists]
    told = sorted([*lists, *paid, *recent], key=lambda each: each[:2])
    return (*(step for _, _, step in told), missed, *(step for _, _, step in after[:_STEPS_AFTER]))


def _find_charged(miss: Miss, searches: Sequence[Discovery]) -> set[int]:
    """Return the searches whose cost a miss may bear: the one that it names, and as many of the latest ones before it
    as it bears turns."""
    earlier = sorted((each for each in searches if each.at <= miss.at), key=lambda each: each.at)
    named = {each.id for each in searches if each.id == miss.discovery}
    return named | {each.id for each in earlier[len(earlier) - min(miss.turns, len(earlier)) :]}


def sort_steps(steps: Iterable[StoryStep]) -> list[StoryStep]:
    return sorted(steps, key=lambda step: (step.at, _ORDER.index(step.kind)))


def tell_session(session: SessionRecord) -> StoryStep:
    said = " ".join(filter(None, (session.client or "a client without a name", session.version)))
    return StoryStep(session.started_at, "session", f"{said} connected (profile {session.profile or 'default'})", 0)


def tell_list(shown: Exposure) -> StoryStep:
    """Return the step in which a client got a list, or another text that named tools."""
    if shown.reason in _LISTS:
        count = plural(len(shown.tools), "tool")
        return StoryStep(shown.at, "list", f"got a list of {count} ({shown.policy})", shown.tokens)
    named = name_some(shown.tools, _MOST_NAMED)
    return StoryStep(shown.at, "named", f"was told the names of {named} ({_TOLD_BY[shown.reason]})", shown.tokens)


def tell_search(search: Discovery) -> StoryStep:
    asked = f'"{search.task}"' if search.task else ", ".join(search.names) or "a task that was not kept"
    found = ", ".join(match.tool for match in search.matches[:3]) or "no tool"
    more = f" and {len(search.matches) - 3} more" if len(search.matches) > 3 else ""
    what = f"searched for {asked}: found {found}{more} (confidence {search.level})"
    return StoryStep(search.at, "search", what, search.tokens)


def tell_call(call: Call) -> StoryStep:
    hidden = ", not defined in its list" if call.hidden else ""
    way = " through our bridge" if call.via == "bridge" else ""
    return StoryStep(call.at, "call", f"called {call.tool}{way}: {call.outcome}{hidden}", 0)


def tell_miss(miss: Miss) -> StoryStep:
    if miss.noticed == "shell":
        return StoryStep(miss.at, "miss", f"ran {miss.query or 'a command'} in its shell in place of {miss.tool}", 0)
    return StoryStep(
        miss.at,
        "miss",
        _tell_need(miss),
        miss.tokens,
    )


def _tell_need(miss: Miss) -> str:
    if miss.kind == "search" and miss.change == UNNAMED:
        return f"asked for {miss.tool} by name, which no server has"
    if miss.kind == "search" or (not miss.tool and miss.kind == "tool"):
        unseen = f", was not shown {miss.tool}" if miss.tool else ""
        return f"searched{unseen}, and called no tool"
    if miss.kind == "name":
        return f"called {name_miss(miss)}, which no server has"
    if miss.noticed in ("call", "bridge", "unknown_name") and miss.recovered == "no":
        return f"needed {miss.tool}, and could not call it"
    return f"needed {miss.tool}, which it did not see"
