"""`foretool misses`: lists the tools that a client needed but did not see, and shows one such miss in full."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, get_args

import click
from msgspec import Struct

from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Call, Cause, Discovery, Exposure, Miss, Noticed, SessionRecord

_UNITS: Final = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

CAUSES: Final[dict[Cause, str]] = {
    "rank": "neither its use, nor the profile's description, nor earlier tasks suggested it",
    "budget": "it was a candidate for the list, but better ones took the tokens",
    "stale": "the list was made before the tool was used and has not been refreshed since",
    "gate": "the search found tools, but was too unsure to show one",
    "policy": "a list that may grow keeps tokens free for that, and they were missing",
    "offline": "its server's tools were not known when the list was made",
    "denied": "a rule of the config refuses it, the profile excludes its server, or it waits for `foretool review`",
    "unknown": "no server of this config has such a tool, or it is unknown which list the client had",
}
NOTICED: Final[dict[Noticed, str]] = {
    "call": "it was called by its name, although it was not in the list",
    "bridge": "it was called through call_tool or call_tool_write",
    "discovery": "discover_tools found it, and then it was called",
    "nothing_found": "discover_tools found nothing",
    "unknown_name": "a name was called that no server has",
}


def read_duration(text: str) -> float:
    """Read a duration such as `7d`, `12h` or `30min`. Returns seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|m|h|d|w)", text.strip().lower())
    if match is None:
        raise click.BadParameter(f"expected a time like 7d, 12h or 30min, found {text!r}.")
    return float(match[1]) * _UNITS[match[2]]


class MissDetails(Struct, frozen=True):
    """One miss, with every record that it refers to."""

    miss: Miss
    cause_in_words: str
    session: SessionRecord | None
    exposure: Exposure | None
    """The list that the client had."""
    discovery: Discovery | None
    call: Call | None


@click.group("misses", invoke_without_command=True)
@click.option("--since", type=read_duration, metavar="TIME", help="Only misses of the last 7d, 12h, 30min, ...")
@click.option("--cause", type=click.Choice(get_args(Cause)), help="Only misses with this cause.")
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="Show at most this many, the newest first."
)
@config_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, path: Path | None, as_json: bool, since: float | None, cause: Cause | None, limit: int
) -> int:
    """Show the tools that a client needed but did not see, and why.

    \b
    foretool misses --since 7d --cause budget
    foretool misses show 12
    """
    if ctx.invoked_subcommand is not None:
        return 0
    after = time.time() - since if since is not None else 0.0
    with open_existing_store(load(path).storage) as store:
        found = store.calls.misses(after, -1 if cause else limit)
        causes = store.calls.count_causes(after)
    misses = [miss for miss in found if cause in (None, miss.cause)][:limit]
    narrowed = since is not None or cause is not None
    return output.show({"misses": misses, "causes": causes}, as_json, lambda _: _print(misses, causes, narrowed))


def _print(misses: Sequence[Miss], causes: Mapping[str, int], narrowed: bool) -> None:
    if not misses:
        wider = " Try a longer time or another cause." if narrowed else ""
        output.say(f"No misses: every tool that was called was in its client's list.{wider}")
        return
    rows = [
        (
            miss.id, output.when(miss.at), miss.tool or "-", miss.noticed, miss.cause, _rank(miss), miss.query or "-",
            miss.recovered, _cost(miss),
        )
        for miss in misses
    ]  # fmt: skip
    columns = ("id#", "when", "tool…", "noticed", "cause", "rank#", "task…", "recovered", "cost")
    output.table(columns, rows)
    counts = ", ".join(f"{count} {cause}" for cause, count in causes.items())
    total = sum(causes.values())
    shown = f" ({len(misses)} of them shown)" if len(misses) < total else ""
    output.say(f"{output.plural(total, 'miss')}{shown}: {counts}; `foretool misses show ID` shows one in full")


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
    """Show one miss in full: the task, the list, what was found, and what would have helped."""
    with open_existing_store(load(path).storage) as store:
        miss = store.calls.miss(id)
        if miss is None:
            return complain(f"misses show: there is no miss {id}; `foretool misses` lists all misses", WRONG)
        details = MissDetails(
            miss=miss,
            cause_in_words=CAUSES[miss.cause],
            session=store.sessions.get(miss.session),
            exposure=store.sessions.exposure(miss.exposure) if miss.exposure else None,
            discovery=store.discoveries.get(miss.discovery) if miss.discovery else None,
            call=store.calls.get(miss.call) if miss.call else None,
        )
    return output.show(details, as_json, _print_details)


def _print_details(details: MissDetails) -> None:
    miss, session = details.miss, details.session
    client = f"{session.client} {session.version}, {session.era}, {session.transport}" if session else "(unknown)"
    facts = [
        ("tool", miss.tool or "(none found)"),
        ("when", output.when(miss.at)),
        ("client", client),
        ("profile", (session.profile if session else "") or "(none)"),
        ("task", miss.query or "(unknown)"),
        ("called before", ", ".join(miss.history) or "(nothing)"),
        ("noticed", NOTICED[miss.noticed]),
        ("cause", f"{miss.cause}: {details.cause_in_words}"),
        ("rank", f"{_rank(miss)} {output.score_parts(miss.parts)}".strip()),
        ("would have helped", miss.change or "(unknown)"),
        ("recovered", miss.recovered),
        ("cost", _cost(miss)),
    ]
    if details.call is not None:
        took = "" if details.call.outcome == "refused" else f" after {details.call.took_ms:.0f} ms"
        facts.append(("call", f"{details.call.outcome}{took}, by {details.call.via}"))
    output.say(f"miss {miss.id}", "bold")
    for name, value in facts:
        output.say(f"  {name:<18} {value}")
    _print_exposure(details.exposure)
    _print_discovery(details.discovery, miss.tool)


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
    rows = [
        (match.rank, f"{match.tool} (this one)" if match.tool == missed else match.tool, f"{match.score:.2f}",
         output.score_parts(match.parts))
        for match in discovery.matches
    ]  # fmt: skip
    if rows:
        output.table(("#", "tool…", "score#", "parts"), rows)
