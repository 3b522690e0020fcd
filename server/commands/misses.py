"""`foretool misses`: counts the tools that a client needed but could not see, and shows one such miss in full."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, cast, get_args

import click
from msgspec import Struct

from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load
from foretool.storage.opening import open_existing_store
from foretool.storage.records import (
    Call,
    Cause,
    Discovery,
    Exposure,
    Miss,
    MissCount,
    MissFilter,
    Noticed,
    SessionRecord,
)
from foretool.storage.stores import Store

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
NOTHING_FOUND: Final = "(no tool found)"
"""What stands for the tool where a search found none."""
MOST_NAMED: Final = 4
"""How many causes or tools of a group are named."""


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


class MissGroup(Struct, frozen=True):
    """The misses of one tool, or those of one cause."""

    name: str
    """The tool or the cause; "" for searches that found no tool."""
    count: int
    recovered: int
    """How many of them the client recovered from."""
    tools: dict[str, int]
    causes: dict[str, int]
    """Misses by tool and by cause, the most frequent first."""
    turns: int
    tokens: int
    """What they cost in all."""
    last_at: float
    last_id: int


class Ledger(Struct, frozen=True):
    """The misses that fit the options."""

    total: int
    causes: dict[str, int]
    """How many of all of them have each cause, the most frequent first."""
    groups: tuple[MissGroup, ...]
    """All of them, by tool or by cause, the most frequent first."""
    misses: tuple[Miss, ...]
    """The newest of them, at most `--limit`."""


@click.group("misses", invoke_without_command=True)
@click.option("--since", type=read_duration, metavar="TIME", help="Only misses of the last 7d, 12h, 30min, ...")
@click.option("--until", type=read_duration, metavar="TIME", help="Only misses before the last 7d, 12h, 30min, ...")
@click.option("--server", default="", metavar="NAME", help="Only tools of this server.")
@click.option("--tool", default="", metavar="PATTERN", help='Only tools with this part in the name, or like "git__*".')
@click.option("--cause", type=click.Choice(get_args(Cause)), help="Only misses with this cause.")
@click.option(
    "--client", default="", metavar="NAME", help="Only misses of this client; `foretool clients` has the names."
)
@click.option("--profile", metavar="NAME", help='Only misses in this profile; "" is the list without a profile.')
@click.option(
    "--recovered", type=click.Choice(("yes", "no")), help="Only misses after which the tool was found, or not."
)
@click.option("--by", type=click.Choice(("tool", "cause")), default="tool", show_default=True, help="Count by this.")
@click.option("--all", "lists_all", is_flag=True, help="List each miss instead of counting them.")
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="Show at most this many, the newest first."
)
@config_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, path: Path | None, as_json: bool, since: float | None, until: float | None, server: str,
    tool: str, cause: Cause | None, client: str, profile: str | None, recovered: str | None, by: str, lists_all: bool,
    limit: int,
) -> int:  # fmt: skip
    """Show the tools that a client needed but could not see, and why.

    A miss is one such time: the model asked for a tool that foretool had left out of the client's list. Misses are
    counted by tool.

    \b
    foretool misses --since 7d --server github
    foretool misses --by cause
    foretool misses --all --recovered no
    foretool misses show 12
    """
    if ctx.invoked_subcommand is not None:
        return 0
    now = time.time()
    wanted = MissFilter(
        now - since if since is not None else 0.0,
        now - until if until is not None else None,
        server, tool, cause, client, profile, None if recovered is None else recovered == "yes",
    )  # fmt: skip
    with open_existing_store(load(path).storage) as store:
        ledger = read_ledger(store, wanted, by, limit)
    narrowed = wanted != MissFilter()
    return output.show(ledger, as_json, lambda _: _print(ledger, by, lists_all=lists_all, narrowed=narrowed))


def read_ledger(store: Store, wanted: MissFilter, by: str, limit: int) -> Ledger:
    """Count the misses that fit, by `tool` or by `cause`, and return the newest of them, at most `limit`."""
    counts = store.calls.count_misses(wanted)
    parts: dict[str, list[MissCount]] = {}
    for each in counts:
        parts.setdefault(each.tool if by == "tool" else each.cause, []).append(each)
    groups = sorted(
        (_group(name, own) for name, own in parts.items()), key=lambda group: (-group.count, -group.last_at)
    )
    causes = _add_up((each.cause, each.count) for each in counts)
    return Ledger(sum(causes.values()), causes, tuple(groups), tuple(store.calls.find_misses(wanted, limit)))


def _group(name: str, counts: Sequence[MissCount]) -> MissGroup:
    latest = max(counts, key=lambda each: (each.last_at, each.last_id))
    return MissGroup(
        name=name,
        count=sum(each.count for each in counts),
        recovered=sum(each.recovered for each in counts),
        tools=_add_up((each.tool, each.count) for each in counts),
        causes=_add_up((each.cause, each.count) for each in counts),
        turns=sum(each.turns for each in counts),
        tokens=sum(each.tokens for each in counts),
        last_at=latest.last_at,
        last_id=latest.last_id,
    )


def _add_up(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for name, count in pairs:
        found[name] += count
    return dict(found.most_common())


def _print(ledger: Ledger, by: str, *, lists_all: bool, narrowed: bool) -> None:
    if not ledger.total:
        if narrowed:
            output.say("No miss fits these options. `foretool misses` without options counts all of them.")
        else:
            output.say("No misses: every tool that was called was in its client's list.")
        return
    _print_each(ledger.misses) if lists_all else _print_groups(ledger.groups, by)
    shown = f", the newest {len(ledger.misses)} shown" if lists_all and len(ledger.misses) < ledger.total else ""
    output.say(f"{output.plural(ledger.total, 'miss')}{shown}. What the causes mean:")
    for cause in ledger.causes:
        output.say(f"  {cause}: {CAUSES[cast(Cause, cause)]}")
    example = ledger.groups[0].last_id
    every = "" if lists_all else "`foretool misses --all` lists each miss; "
    output.say(f"{every}`foretool misses show {example}` explains number {example}.")


def _print_groups(groups: Sequence[MissGroup], by: str) -> None:
    other = "causes" if by == "tool" else "tools"
    rows = [
        (
            group.name or NOTHING_FOUND, f"{group.count:,}", _count_up(group.causes if by == "tool" else group.tools),
            f"{group.recovered:,}", f"{group.tokens:,}", group.last_id, output.ago(group.last_at),
        )
        for group in groups
    ]  # fmt: skip
    output.table((f"{by}…", "misses#", f"{other}…", "recovered#", "extra tokens#", "latest id#", "when"), rows)


def _count_up(counts: Mapping[str, int]) -> str:
    some = [f"{name or NOTHING_FOUND} {count:,}" for name, count in list(counts.items())[:MOST_NAMED]]
    return ", ".join([*some, f"{len(counts) - MOST_NAMED} more"] if len(counts) > MOST_NAMED else some)


def _print_each(misses: Sequence[Miss]) -> None:
    rows = [
        (
            miss.id, miss.tool or NOTHING_FOUND, output.when(miss.at), miss.noticed, miss.cause, _rank(miss),
            miss.query or "-", miss.recovered, _cost(miss),
        )
        for miss in misses
    ]  # fmt: skip
    output.table(("id#", "tool…", "when", "noticed", "cause", "rank#", "task…", "recovered", "extra cost…"), rows)


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
    output.say(f"{miss.id}  {miss.tool or NOTHING_FOUND}", "bold")
    for name, value in facts:
        output.say_fact(name, value, indent=2, column=19)
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
        output.table(("#", "tool…", "score#", "parts…"), rows)
