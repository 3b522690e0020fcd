"""`foretool misses`: counts the tools that a client needed but could not see, shows one such miss, and mends it."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, cast, get_args

import click
from msgspec import Struct

from foretool.server import packs
from foretool.server.commands import edits, output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option, lacks_server, refuse_together
from foretool.server.config.errors import guess
from foretool.server.config.loader import Config, load
from foretool.server.ledger.story import (
    A_MISS,
    CAUSES,
    UNKNOWN_TOOL,
    count_kinds,
    name_counted,
    name_miss,
    say_cost,
    say_kinds,
    say_rank,
)  # fmt: skip
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Cause, Miss, MissCount, MissFilter
from foretool.storage.store import Store

_UNITS: Final = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

_MOST_TASK: Final = 120
"""Characters of a task that a row shows; `foretool misses NUMBER` shows all of it."""
_MOST_NAMED: Final = 4
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
    """The tool or the cause; "" for searches after which no tool was called."""
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


class FittingMisses(Struct, frozen=True):
    """The misses that fit the options of `foretool misses`: counts, groups, and the newest ones."""

    total: int
    hidden: int
    """How many of them were hidden tools that were needed."""
    searches: int
    """How many were searches after which no tool was called."""
    causes: dict[str, int]
    """How many of all of them have each cause, the most frequent first."""
    groups: tuple[MissGroup, ...]
    """All of them, by tool or by cause, the most frequent first."""
    misses: tuple[Miss, ...]
    """The newest of them, at most `--limit`."""


_KINDS: Final = (
    "pin", "budget", "policy", "alias", "description", "enable", "rule", "profile", "approve", "learn", "doctor"
)  # fmt: skip
"""Changes that may show a missed tool; `alias` and `description` also tell two confused tools apart."""


class RepairOptions(Struct, frozen=True):
    """What the options say about making a change."""

    number: int | None
    """Of the miss, or of the pair of confused tools."""
    wanted: bool
    """Whether a change is to be made."""
    kind: str | None
    """Which one; None for the best, or to ask."""
    agreed: bool
    dry_run: bool
    replays: bool


def _read_number(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> int | None:
    """Read the number of a miss. Raises `BadParameter`."""
    if not words:
        return None
    if len(words) > 1 or not words[0].isdecimal():
        raise click.BadParameter(f"expected one number of a miss, found {' '.join(words)!r}.")
    return int(words[0])


@click.command("misses")
@click.argument("number", nargs=-1, callback=_read_number, metavar="[NUMBER]")
@click.option("--fix", "wants_fix", is_flag=True, help="Make a change that would have shown the tool of miss NUMBER.")
@click.option(
    "--change",
    "kind",
    type=click.Choice(_KINDS),
    metavar="KIND",
    help=f"Make this change instead of asking which: {', '.join(_KINDS)}.",
)
@click.option("--yes", "-y", "agreed", is_flag=True, help="Ask nothing: make the change named, or the best one.")
@click.option("--no-replay", is_flag=True, help="Do not play recorded tasks to see what each change would have done.")
@click.option("--confused", is_flag=True, help="Show pairs of tools that are taken for each other instead.")
@click.option("--since", type=read_duration, metavar="TIME", help="Only misses of the last 7d, 12h, 30min, ...")
@click.option("--until", type=read_duration, metavar="TIME", help="Only misses before the last 7d, 12h, 30min, ...")
@click.option("--server", default="", metavar="NAME", help="Only tools of this server.")
@click.option("--tool", default="", metavar="PATTERN", help='Only tools with this part in the name, or like "git__*".')
@click.option(
    "--cause", type=click.Choice(get_args(Cause)), metavar="CAUSE",
    help=f"Only misses with this cause: {', '.join(get_args(Cause))}.",
)  # fmt: skip
@click.option("--client", default="", metavar="NAME", help="Only misses of this client; status --clients names them.")
@click.option("--profile", metavar="NAME", help='Only misses in this profile; "" is the list without a profile.')
@click.option(
    "--recovered", type=click.Choice(("yes", "no")), help="Only misses after which the tool was found, or not."
)
@click.option("--by", type=click.Choice(("tool", "cause")), default="tool", show_default=True, help="Count by this.")
@click.option("--all", "lists_all", is_flag=True, help="List each miss instead of counting them.")
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="Show at most this many, the newest first."
)
@edits.dry_run_option
@edits.undo_option
@config_option
@json_option
def command(
    path: Path | None, as_json: bool, number: int | None, wants_fix: bool, kind: str | None, agreed: bool,
    no_replay: bool, confused: bool, since: float | None, until: float | None, server: str, tool: str,
    cause: Cause | None, client: str, profile: str | None, recovered: str | None, by: str, lists_all: bool, limit: int,
    dry_run: bool, wanted_undo: bool,
) -> int:  # fmt: skip
    """Show the tools that a client needed but could not see, and why.

    A miss: a client needed a tool that its list neither defined nor named. It called a tool that it could not see, or
    it searched and then called none. Calls of foretool call do not count. Misses are counted by tool, and apart
    from them searches after which no tool was called.

    With NUMBER, one is shown in full: the conversation, the list, why the tool was not in it, and the changes that
    would have shown it. Each change is tried on the latest tasks on record, as foretool replay does, and the one with
    the fewest misses comes first. --fix asks which one to make; one that does harm is made only by its name, and one
    that spares nothing is not suggested.

    --confused shows pairs of tools: one was called in vain right before the other succeeded for the same task, or a
    search ranked it above the one that was then called. NUMBER is then one of these pairs.

    \b
    foretool misses --since 7d --server github
    foretool misses --all --recovered no
    foretool misses 12
    foretool misses 12 --fix --change pin --yes
    foretool misses --confused 1 --fix --dry-run
    """
    repair = RepairOptions(number, wants_fix, kind, agreed, dry_run, not no_replay)
    refuse_together(fix=wants_fix, undo=wanted_undo)
    if wanted_undo:
        return edits.undo_latest(path, as_json, "misses", dry_run=dry_run)
    if wants_fix and number is None:
        raise click.UsageError("--fix needs the number of a miss; `foretool misses --all` lists them")
    if confused:
        return int(packs.require(packs.SHOW_CONFUSED, "misses --confused")(path, since, repair, as_json=as_json))
    if number is not None:
        return _show_one(path, number, repair, as_json=as_json)
    now = time.time()
    wanted = MissFilter(
        now - since if since is not None else 0.0,
        now - until if until is not None else None,
        server, tool, cause, client, profile, None if recovered is None else recovered == "yes",
    )  # fmt: skip
    config = load(path)
    with open_existing_store(config.storage) as store:
        ledger = read_ledger(store, wanted, by, limit)
        unknown = _find_unknown(config, store, wanted) if not ledger.total else ""
    narrowed = wanted != MissFilter()
    output.show(ledger, as_json, lambda _: _print(ledger, by, lists_all=lists_all, narrowed=narrowed))
    return complain(f"misses: {unknown}", WRONG) if unknown else 0


def _find_unknown(config: Config, store: Store, wanted: MissFilter) -> str:
    """Return which name of a server, a client or a tool nothing is known of, "" if there is none: a typo looks like a
    good week. Raises `ConfigError` for an unknown profile."""
    if wanted.server and wanted.server not in store.catalog.names() and wanted.server not in config.prefixes:
        return lacks_server(config, wanted.server)
    clients = {each.client for each in store.clients.all()}
    if wanted.client and wanted.client not in clients:
        meant = guess(wanted.client, clients) or f"; those on record: {', '.join(sorted(clients)) or 'none'}"
        return f"no client is called {wanted.client!r}{meant}"
    if wanted.profile is not None:
        config.require_profile(wanted.profile)
    if wanted.tool and not store.calls.count_misses(MissFilter(tool=wanted.tool)):
        return _lacks_tool(store.catalog.exposed_names(), wanted.tool)
    return ""


def _lacks_tool(names: Collection[str], pattern: str) -> str:
    """Say that a pattern fits no tool, and which may be meant; "" if it fits one."""
    has_marks = any(mark in pattern for mark in "*?[")
    if any(fnmatchcase(name, pattern) if has_marks else pattern.lower() in name.lower() for name in names):
        return ""
    return f"no tool fits {pattern!r}{guess(pattern, names) or '; foretool tools shows all'}"


def _show_one(path: Path | None, number: int, repair: RepairOptions, *, as_json: bool) -> int:
    """Show one miss, or make a change that would have shown its tool. Returns the exit status."""
    from foretool.server.commands import one_miss  # 0.3 s of imports that counting misses does without

    if not repair.wanted:
        return one_miss.show_miss(path, number, replays=repair.replays, as_json=as_json)
    if as_json:
        raise click.UsageError("--json and --fix of a miss do not go together")
    return one_miss.fix_miss(
        path, number, repair.kind, agreed=repair.agreed, dry_run=repair.dry_run, replays=repair.replays
    )


def read_ledger(store: Store, wanted: MissFilter, by: str, limit: int) -> FittingMisses:
    """Count the misses that fit, by `tool` or by `cause`, and return the newest of them, at most `limit`."""
    counts = store.calls.count_misses(wanted)
    parts: dict[str, list[MissCount]] = {}
    for each in counts:
        parts.setdefault(name_counted(each) if by == "tool" else each.cause, []).append(each)
    # Hidden tools come before searches after which no tool was called.
    groups = sorted(
        (_group(name, own) for name, own in parts.items()),
        key=lambda group: (not group.name, -group.count, -group.last_at),
    )
    causes = _add_up((each.cause, each.count) for each in counts)
    hidden, searches, _ = count_kinds(counts)
    latest = tuple(store.calls.find_misses(wanted, limit))
    return FittingMisses(sum(causes.values()), hidden, searches, causes, tuple(groups), latest)


def _group(name: str, counts: Sequence[MissCount]) -> MissGroup:
    latest = max(counts, key=lambda each: (each.last_at, each.last_id))
    return MissGroup(
        name=name,
        count=sum(each.count for each in counts),
        recovered=sum(each.recovered for each in counts),
        tools=_add_up((name_counted(each), each.count) for each in counts),
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


def _print(ledger: FittingMisses, by: str, *, lists_all: bool, narrowed: bool) -> None:
    if not ledger.total:
        if narrowed:
            output.say("No miss fits these options. `foretool misses` without options counts all of them.")
        else:
            output.say(f"No misses so far. {A_MISS}")
        return
    _print_each(ledger.misses) if lists_all else _print_groups(ledger.groups, by)
    shown = f", the newest {len(ledger.misses)} shown" if lists_all and len(ledger.misses) < ledger.total else ""
    kinds = say_kinds(ledger.hidden, ledger.searches, ledger.total - ledger.hidden - ledger.searches)
    output.say(f"{output.plural(ledger.total, 'miss')}{shown}: {kinds}. What the causes mean:")
    for cause in ledger.causes:
        output.say(f"  {cause}: {CAUSES[cast(Cause, cause)]}")
    example = ledger.misses[0].id if lists_all else ledger.groups[0].last_id
    every = "" if lists_all else "`foretool misses --all` lists each miss; "
    output.say(f"{every}`foretool misses {example}` explains number {example}.")


def _print_groups(groups: Sequence[MissGroup], by: str) -> None:
    other = "causes" if by == "tool" else "tools"
    rows = [
        (
            group.name or UNKNOWN_TOOL, f"{group.count:,}", _count_up(group.causes if by == "tool" else group.tools),
            f"{group.recovered:,}", f"{group.tokens:,}", group.last_id, output.ago(group.last_at),
        )
        for group in groups
    ]  # fmt: skip
    output.table((f"{by}…", "misses#", f"{other}…", "recovered#", "extra tokens#", "id#", "latest"), rows)


def _count_up(counts: Mapping[str, int]) -> str:
    some = [f"{name or UNKNOWN_TOOL} {count:,}" for name, count in list(counts.items())[:_MOST_NAMED]]
    return ", ".join([*some, f"{len(counts) - _MOST_NAMED} more"] if len(counts) > _MOST_NAMED else some)


def _print_each(misses: Sequence[Miss]) -> None:
    """Print tools and names first, and then the searches after which no tool was called, which may be many."""
    searches = [miss for miss in misses if miss.kind == "search"]
    named = [miss for miss in misses if miss.kind != "search"]
    _print_rows(named)
    if searches:
        if named:
            output.say("Searches after which no tool was called:", "bold")
        _print_rows(searches)


def _print_rows(misses: Sequence[Miss]) -> None:
    rows = [
        (
            miss.id, name_miss(miss), output.when(miss.at), miss.noticed, miss.cause, say_rank(miss),
            output.shorten(miss.query, _MOST_TASK) or "-", miss.recovered, say_cost(miss),
        )
        for miss in misses
    ]  # fmt: skip
    if rows:
        output.table(("id#", "tool…", "when", "noticed", "cause", "rank#", "task…", "recovered", "extra cost…"), rows)
