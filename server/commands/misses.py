"""`foretool misses`: the ledger of needed tools that a client did not see, and one of them in full."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

import click

from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Cause, Discovery, Exposure, Miss, Noticed, SessionRecord
from foretool.storage.stores import Store

_UNITS: Final = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

CAUSES: Final[dict[Cause, str]] = {
    "rank": "it was not among the tools that usage, the profile's words and earlier tasks suggest",
    "budget": "it was a candidate for the list, but the tokens were spent on better ones",
    "gate": "the ranking found it and was too unsure to show it",
    "policy": "the policy does not let the list gain it",
    "offline": "its server's tools were not known when the list was made",
    "denied": "the client's profile leaves its server out",
    "name_limit": "its name did not fit",
    "unknown": "no server of this config has such a tool, or nothing is known of the list the client had",
}
NOTICED: Final[dict[Noticed, str]] = {
    "call": "called by its name, though it was not in the list",
    "bridge": "called through call_tool",
    "discovery": "found by discover_tools, then called",
    "nothing_found": "discover_tools found nothing",
    "unknown_name": "a name was called that no server has",
}


class Ago(click.ParamType[float]):
    """A stretch of time before now, as seconds: `7d`, `12h`, `30min`."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|m|h|d|w)", str(value).strip().lower())
        if match is None:
            self.fail(f"expected a time like 7d, 12h or 30min, found {value!r}.", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True, slots=True)
class Ledger:
    """Misses, the newest first, and how many of each cause there are in the time asked for."""

    misses: tuple[Miss, ...]
    causes: dict[str, int]


@dataclass(frozen=True, slots=True)
class Told:
    """One miss with everything it points at."""

    miss: Miss
    cause_in_words: str
    session: SessionRecord | None
    exposure: Exposure | None
    """What the client had been shown."""
    discovery: Discovery | None
    call: Call | None


@click.group("misses", invoke_without_command=True)
@click.option("--since", type=Ago(), metavar="TIME", help="Only of the last 7d, 12h, 30min.")
@click.option("--cause", type=click.Choice(get_args(Cause)), help="Only those of one cause.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Only the newest.")
@config_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, path: Path | None, as_json: bool, since: float | None, cause: Cause | None, limit: int
) -> int:
    """Show which needed tools a client did not see, and why.

    \b
    foretool misses --since 7d --cause budget
    foretool misses show 12
    """
    if ctx.invoked_subcommand is not None:
        return 0
    storage = load(path).storage
    after = time.time() - since if since is not None else 0.0
    ledger = Ledger((), {})
    if storage.exists():
        with open_store(storage) as store:
            ledger = gather(store, after, cause, limit)
    if as_json:
        output.emit(ledger)
    else:
        _print(ledger, narrowed=since is not None or cause is not None)
    return 0


def gather(store: Store, after: float, cause: Cause | None, limit: int) -> Ledger:
    found = store.calls.misses(after, -1 if cause else limit)
    kept = [miss for miss in found if cause in (None, miss.cause)]
    return Ledger(tuple(kept[:limit]), store.calls.count_causes(after))


def _print(ledger: Ledger, *, narrowed: bool) -> None:
    if not ledger.misses:
        wider = " Ask for a longer time, or another cause." if narrowed else ""
        output.say(f"No miss on record: every tool that was called was in its client's list.{wider}")
        return
    rows = [
        (
            miss.id, output.when(miss.at), miss.tool or "-", miss.noticed, miss.cause, _rank(miss), miss.query or "-",
            miss.recovered, _cost(miss),
        )
        for miss in ledger.misses
    ]  # fmt: skip
    columns = ("id#", "when", "tool…", "noticed", "cause", "rank#", "task…", "recovered", "cost")
    output.table("", columns, rows)
    counts = ", ".join(f"{count} {cause}" for cause, count in ledger.causes.items())
    total = sum(ledger.causes.values())
    shown = f" ({len(ledger.misses)} of them shown)" if len(ledger.misses) < total else ""
    output.say(f"{output.plural(total, 'miss')}{shown}: {counts}; `foretool misses show ID` tells all of one")


def _rank(miss: Miss) -> str:
    return f"{miss.rank}/{miss.of}" if miss.rank else f"-/{miss.of}" if miss.of else "-"


def _cost(miss: Miss) -> str:
    parts = [output.plural(miss.turns, "turn")] if miss.turns else []
    return ", ".join([*parts, output.plural(miss.tokens, "token")] if miss.tokens else parts) or "-"


@command.command("show")
@click.argument("id", type=int)
@config_option
@json_option
def show(path: Path | None, as_json: bool, id: int) -> int:
    """Show everything about one miss: what was asked, what was shown, what was found, what would have helped."""
    storage = load(path).storage
    told = None
    if storage.exists():
        with open_store(storage) as store:
            told = tell(store, id)
    if told is None:
        return complain(f"misses show: there is no miss {id}; `foretool misses` lists those on record", WRONG)
    if as_json:
        output.emit(told)
    else:
        _print_told(told)
    return 0


def tell(store: Store, id: int) -> Told | None:
    miss = store.calls.miss(id)
    if miss is None:
        return None
    return Told(
        miss=miss,
        cause_in_words=CAUSES[miss.cause],
        session=store.sessions.get(miss.session),
        exposure=store.sessions.exposure(miss.exposure) if miss.exposure else None,
        discovery=store.discoveries.get(miss.discovery) if miss.discovery else None,
        call=store.calls.get(miss.call) if miss.call else None,
    )


def _print_told(told: Told) -> None:
    miss, session = told.miss, told.session
    client = f"{session.client} {session.version}, {session.era}, {session.transport}" if session else "(not on record)"
    facts = [
        ("tool", miss.tool or "(none was found)"),
        ("when", output.when(miss.at)),
        ("client", client),
        ("profile", (session.profile if session else "") or "(everyone's)"),
        ("task", miss.query or "(not known)"),
        ("called before", ", ".join(miss.history) or "(nothing)"),
        ("noticed", NOTICED[miss.noticed]),
        ("cause", f"{miss.cause}: {told.cause_in_words}"),
        ("rank", f"{_rank(miss)}{_parts(miss.parts)}"),
        ("would have helped", miss.change or "(not known)"),
        ("recovered", miss.recovered),
        ("cost", _cost(miss)),
    ]
    if told.call is not None:
        facts.append(("call", f"{told.call.outcome} after {told.call.took_ms:.0f} ms, by {told.call.via}"))
    output.say(f"miss {miss.id}", "bold")
    for name, value in facts:
        output.say(f"  {name:<18} {value}")
    _print_exposure(told.exposure)
    _print_discovery(told.discovery, miss.tool)


def _parts(parts: dict[str, float]) -> str:
    return f" ({', '.join(f'{name} {part:+.2f}' for name, part in parts.items())})" if parts else ""


def _print_exposure(exposure: Exposure | None) -> None:
    if exposure is None:
        output.say("\nThe client had asked for no list.")
        return
    output.say(
        f"\nIts list: {output.plural(len(exposure.tools), 'tool')}, {exposure.tokens:,} tokens, {exposure.policy},"
        f" epoch {exposure.epoch}, given {output.when(exposure.at)} ({exposure.reason})"
    )
    output.say(f"  {', '.join(exposure.tools)}")


def _print_discovery(discovery: Discovery | None, missed: str) -> None:
    if discovery is None:
        return
    output.say(
        f"\nIts discovery: confidence {discovery.level}, {output.plural(len(discovery.matches), 'match')},"
        f" {discovery.tokens:,} tokens, {discovery.took_ms:.1f} ms"
    )
    rows = [
        (match.rank, f"{match.tool} (this one)" if match.tool == missed else match.tool, f"{match.score:.2f}",
         " ".join(f"{name} {part:+.2f}" for name, part in match.parts.items()))
        for match in discovery.matches
    ]  # fmt: skip
    if rows:
        output.table("", ("#", "tool…", "score#", "parts"), rows)
