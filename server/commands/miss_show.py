"""`foretool misses show`: one miss in full, with the conversation around it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import click
from msgspec import Struct

from foretool.server.commands import output
from foretool.server.commands.causes import CAUSES, NOTHING_FOUND, NOTICED, RECOVERED, say_cost, say_rank
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load
from foretool.storage.records import Call, Discovery, Exposure, Match, Miss, SessionRecord
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


class MissDetails(Struct, frozen=True):
    """One miss, with every record that it refers to, and the conversation around it."""

    miss: Miss
    cause_in_words: str
    session: SessionRecord | None
    exposure: Exposure | None
    """The list that the client had."""
    discovery: Discovery | None
    call: Call | None
    story: tuple[Step, ...]
    """What happened before it and after it, in order."""
    listed_now: bool | None
    """Whether a list that is made now has the tool; null if the tool is not known any more."""


@click.command("show")
@click.argument("id", type=int)
@config_option
@json_option
def show(path: Path | None, as_json: bool, id: int) -> int:
    """Show one miss in full: the conversation, the list, why the tool was not in it, and what would have shown it."""
    from foretool.server import offline  # 0.3 s of imports that `foretool misses` does without

    config = load(path)
    with offline.read(config) as app:
        store = app.store
        miss = store.calls.miss(id)
        if miss is None:
            return complain(f"misses show: there is no miss {id}; `foretool misses --all` lists all misses", WRONG)
        session = store.sessions.get(miss.session)
        profile = config.profiles.get(session.profile if session else "", config.profiles[""])
        is_known = app.catalog.find(miss.tool) is not None if miss.tool else False
        details = MissDetails(
            miss=miss,
            cause_in_words=CAUSES[miss.cause],
            session=session,
            exposure=store.sessions.exposure(miss.exposure) if miss.exposure else None,
            discovery=store.discoveries.get(miss.discovery) if miss.discovery else None,
            call=store.calls.get(miss.call) if miss.call else None,
            story=read_story(store, miss),
            listed_now=miss.tool in offline.view(app, profile).shown if is_known else None,
        )
    return output.show(details, as_json, _print)


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


def _print(details: MissDetails) -> None:
    miss, session = details.miss, details.session
    client = f"{session.client} {session.version}, {session.era}, {session.transport}" if session else "(unknown)"
    facts = [
        ("when", output.when(miss.at)),
        ("client", client),
        ("profile", (session.profile if session else "") or "(none)"),
        ("task", miss.query or "(unknown)"),
        ("called before", ", ".join(miss.history) or "(nothing)"),
        ("noticed", NOTICED[miss.noticed]),
        ("cause", f"{miss.cause}: {details.cause_in_words}"),
        ("rank", f"{say_rank(miss)} {output.score_parts(miss.parts)}".strip()),
        ("would have helped", miss.change or "(unknown)"),
        ("recovered", RECOVERED[miss.recovered]),
        ("cost", say_cost(miss)),
    ]
    if details.call is not None:
        took = "" if details.call.outcome == "refused" else f" after {details.call.took_ms:.0f} ms"
        facts.append(("call", f"{details.call.outcome}{took}, by {details.call.via}"))
    if details.listed_now is not None:
        facts.append(("listed now", "yes" if details.listed_now else "no"))
    output.say(f"{miss.id}  {miss.tool or NOTHING_FOUND}", "bold")
    for name, value in facts:
        output.say_fact(name, value, indent=2, column=19)
    _print_story(details)
    _print_exposure(details.exposure)
    _print_discovery(details.discovery, miss.tool)


def _print_story(details: MissDetails) -> None:
    output.say("\nWhat happened:", "bold")
    start = details.miss.at
    for step in details.story:
        tokens = f" [{step.tokens:,} tokens]" if step.tokens else ""
        away = step.at - start
        when = "now" if step.kind == "miss" else f"{output.span(abs(away))} {'before' if away <= 0 else 'after'}"
        text = f'the user asked: "{step.what}"' if step.kind == "prompt" else f"the client {step.what}"
        output.say_fact(when, f"{text}{tokens}", "yellow" if step.kind == "miss" else "", indent=2, column=14)


def _print_exposure(exposure: Exposure | None) -> None:
    if exposure is None:
        output.say("\nThe client had not asked for a list.")
        return
    output.say(
        f"\nIts list: {output.plural(len(exposure.tools), 'tool')}, {exposure.tokens:,} tokens, {exposure.policy},"
        f" epoch {exposure.epoch}, sent {output.when(exposure.at)} ({exposure.reason})"
    )
    output.say(f"  {', '.join(exposure.tools)}")


def _print_discovery(discovery: Discovery | None, missed: str) -> None:
    if discovery is None:
        return
    output.say(
        f"\nIts discovery: confidence {discovery.level}, {output.plural(len(discovery.matches), 'match')},"
        f" {discovery.tokens:,} tokens, {discovery.took_ms:.1f} ms"
    )
    if discovery.matches:
        rows = [_match_cells(match, missed) for match in discovery.matches]
        output.table(("#", "tool…", "score#", "parts…"), rows)


def _match_cells(match: Match, missed: str) -> tuple[object, ...]:
    name = f"{match.tool} (this one)" if match.tool == missed else match.tool
    return match.rank, name, f"{match.score:.2f}", output.score_parts(match.parts)
