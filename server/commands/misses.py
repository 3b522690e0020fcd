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
from foretool.server.commands.miss_fix import fix
from foretool.server.commands.miss_show import show
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load
from foretool.server.ledger.miss_words import CAUSES, say_cost, say_rank
from foretool.server.ledger.story import UNKNOWN_TOOL
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Cause, Miss, MissCount, MissFilter
from foretool.storage.stores import Store

_UNITS: Final = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

MOST_NAMED: Final = 4
"""How many causes or tools of a group are named."""


def read_duration(text: str) -> float:
    """Read a duration such as `7d`, `12h` or `30min`. Returns seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|m|h|d|w)", text.strip().lower())
    if match is None:
        raise click.BadParameter(f"expected a time like 7d, 12h or 30min, found {text!r}.")
    return float(match[1]) * _UNITS[match[2]]


class MissGroup(Struct, frozen=True):
    """The misses of one tool, or those of one cause."""

    name: str
    """The tool or the cause; "" for searches in vain of which it is not known what they were for."""
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
    example = ledger.misses[0].id if lists_all else ledger.groups[0].last_id
    every = "" if lists_all else "`foretool misses --all` lists each miss; "
    output.say(f"{every}`foretool misses show {example}` explains number {example}.")


def _print_groups(groups: Sequence[MissGroup], by: str) -> None:
    other = "causes" if by == "tool" else "tools"
    rows = [
        (
            group.name or UNKNOWN_TOOL, f"{group.count:,}", _count_up(group.causes if by == "tool" else group.tools),
            f"{group.recovered:,}", f"{group.tokens:,}", group.last_id, output.ago(group.last_at),
        )
        for group in groups
    ]  # fmt: skip
    output.table((f"{by}…", "misses#", f"{other}…", "recovered#", "extra tokens#", "latest id#", "when"), rows)


def _count_up(counts: Mapping[str, int]) -> str:
    some = [f"{name or UNKNOWN_TOOL} {count:,}" for name, count in list(counts.items())[:MOST_NAMED]]
    return ", ".join([*some, f"{len(counts) - MOST_NAMED} more"] if len(counts) > MOST_NAMED else some)


def _print_each(misses: Sequence[Miss]) -> None:
    rows = [
        (
            miss.id, miss.tool or UNKNOWN_TOOL, output.when(miss.at), miss.noticed, miss.cause, say_rank(miss),
            miss.query or "-", miss.recovered, say_cost(miss),
        )
        for miss in misses
    ]  # fmt: skip
    output.table(("id#", "tool…", "when", "noticed", "cause", "rank#", "task…", "recovered", "extra cost…"), rows)


command.add_command(show)
command.add_command(fix)
