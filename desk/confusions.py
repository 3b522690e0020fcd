"""Pairs of tools that are taken for each other, and what would tell them apart.

Two things on record say so. A client called one tool, which failed, and then another one for the same task, which
succeeded. Or a search ranked one tool above the one that the client then called with success. The words of those
searches, given to the right tool as part of its description, and one of them as part of its name, are tried as replays.

`foretool misses --confused` shows the pairs (`show_confusions`).
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.desk.replay.effect import Replays, compare_tasks
from foretool.server import offline
from foretool.server.app import App
from foretool.server.catalog.catalog import Catalog
from foretool.server.commands import edits, output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.misses import RepairOptions
from foretool.server.commands.one_miss import say_effect
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config, load
from foretool.server.ledger.fixes import (
    FOR,
    SHOWN_WORDS,
    Fix,
    MeasuredFix,
    alias,
    cut_words,
    describe_for,
    name_for,
    open_own,
)
from foretool.server.setup.documents import DocumentError
from foretool.server.setup.own_servers import ConfigChange, change_config
from foretool.storage.records import Event, Tool, ToolId
from foretool.storage.store import Store

Pair = tuple[ToolId, ToolId]
"""The tool that was taken for the other one, and the other one."""

_RIGHT_AFTER_S: Final = 600.0
"""A success later than this after a failed call is of another need."""
_MOST_CALLS: Final = 50_000
"""How many calls are read, the latest ones, and the searches between them."""
_MOST: Final = 20
"""How many pairs are named."""
_LEAST: Final = 2
"""A pair that was confused less often is chance."""
_MOST_SEARCHES: Final = 5_000
"""How many searches are read with their answers, the latest ones."""
_TASKS: Final = 3
"""How many tasks of a pair are kept, the latest ones."""
_LATELY_S: Final = 30 * 86_400
"""How far back pairs are looked for, unless a time is named."""
_PLAYED: Final = 100
"""How many of the latest tasks each suggestion is tried on."""
_TRIED: Final = 5
"""How many suggestions are tried, those of the most frequent pairs."""


class Confusion(Struct, frozen=True):
    """Two tools of which one was taken for the other."""

    taken: str
    """The tool that was called in vain, or stood above the right one."""
    needed: str
    """The tool that succeeded."""
    called: int
    """How often the wrong one was called before the right one."""
    ranked: int
    """How often a search ranked the wrong one above the right one."""
    tasks: tuple[str, ...]
    """Words of the latest tasks, as far as they are on record."""
    fixes: tuple[MeasuredFix, ...]
    """What would tell them apart, and what it does to recorded tasks, the better one first; empty if nothing is known
    to suggest."""

    @property
    def count(self) -> int:
        return self.called + self.ranked


def find_confusions(store: Store, catalog: Catalog, since: float) -> list[Confusion]:
    """Return the pairs since a time, the most frequent first, without suggestions; only of tools that are there. Raises
    `StorageError`."""
    called, ranked = Counter[Pair](), Counter[Pair]()
    tasks: dict[Pair, list[str]] = defaultdict(list)

    def name(pair: Pair) -> Pair:
        return catalog.meanings.name_now(pair[0]), catalog.meanings.name_now(pair[1])

    for pair, task in find_retries(store, since):
        called[name(pair)] += 1
        tasks[name(pair)] += [task] if task else []
    for pair, task in find_outranked(store, since):
        ranked[name(pair)] += 1
        tasks[name(pair)].append(task)
    found = [
        Confusion(*pair, called[pair], ranked[pair], tuple(dict.fromkeys(reversed(tasks[pair])))[:_TASKS], ())
        for pair in {*called, *ranked}
        if called[pair] + ranked[pair] >= _LEAST and all(catalog.get(each) is not None for each in pair)
    ]
    return sorted(found, key=lambda each: (-each.count, each.taken, each.needed))[:_MOST]


def find_retries(store: Store, since: float) -> Iterator[tuple[Pair, str]]:
    """Yield the tool that was called in vain and the one that succeeded right after it, with the words of the last
    search; "" if there was none."""
    retries, oldest = store.calls.retries(_MOST_CALLS, since, _RIGHT_AFTER_S)
    if not retries:
        return
    chats = {(each.session, each.handle) for each in retries}
    searches: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for search in store.discoveries.events(oldest - _RIGHT_AFTER_S):
        if (chat := (search.session, search.handle)) in chats:
            searches[chat].append(search)
    for each in retries:
        own = searches[each.session, each.handle]
        before = bisect_right(own, each.failed_at, key=_time)
        # Another search between the two calls may be for another need.
        if bisect_right(own, each.at, key=_time) == before:
            yield (each.failed, each.tool), own[before - 1].text if before else ""


_time: Final = attrgetter("at")


def find_outranked(store: Store, since: float) -> Iterator[tuple[Pair, str]]:
    """Yield pairs of tools from searches that led to a call of another tool than the first one: the first tool and the
    called one, with the words of the search."""
    answers = {each.id: each for each in store.discoveries.answers(_MOST_SEARCHES, since)}
    if not answers:
        return
    # A search is on record before a call that it leads to.
    oldest = min(each.at for each in answers.values())
    for id, tool in store.discoveries.first_calls(min(answers), max(since, oldest)).items():
        answer = answers.get(id)
        if answer is not None and answer.tools[0] != tool and tool in answer.tools:
            yield (answer.tools[0], tool), answer.task


def suggest_changes(app: App, found: Sequence[Confusion], replays: Replays | None) -> list[Confusion]:
    """Return the pairs with what would tell them apart, tried on the tasks of `replays` if there are any."""
    return [replace(each, fixes=_find_fixes(app, each, replays)) for each in found]


def _find_fixes(app: App, confusion: Confusion, replays: Replays | None) -> tuple[MeasuredFix, ...]:
    tool, taken = (app.catalog.get(ToolId(each)) for each in (confusion.needed, confusion.taken))
    if tool is None or taken is None:
        return ()
    made = (_describe(tool, confusion.tasks), _rename(app.catalog, tool, taken, confusion.tasks))
    fixes = [_measure(app.config, fix, confusion.needed, replays) for fix in made if fix is not None]
    return tuple(sorted(fixes, key=_cost))


def _cost(fix: MeasuredFix) -> tuple[float, ...]:
    """Return what tasks take with a change; of two that take the same, the one that was tried first stays first."""
    return () if fix.effect is None else (fix.effect.then.misses, fix.effect.then.discoveries, fix.effect.then.tokens)


def _describe(tool: Tool, tasks: Sequence[str]) -> Fix | None:
    """Return the description that has the words of a task that meant this tool."""
    for task in tasks:
        if (text := describe_for(tool, task)) is not None:
            change = ConfigChange(("servers", tool.upstream, "tools", tool.name, "description"), text)
            words = cut_words(task, SHOWN_WORDS)
            return Fix("description", f'add to the description of {tool.id}: "{FOR} {words}"', (change,))
    return None


def _rename(catalog: Catalog, tool: Tool, taken: Tool, tasks: Sequence[str]) -> Fix | None:
    """Return the name that tells a tool from the one that was taken for it."""
    name = name_for(catalog, tool, tasks, taken)
    return alias(catalog, tool, name) if name is not None else None


def _measure(config: Config, fix: Fix, tool: str, replays: Replays | None) -> MeasuredFix:
    if replays is None or not replays.tasks:
        return MeasuredFix(fix, None, 0)
    try:
        changed = change_config(config, open_own(config), fix.changes)
    except (ConfigError, DocumentError):
        return MeasuredFix(fix, None, 0)
    then = replays.play(changed)
    before, after = (sum(each.missed.count(ToolId(tool)) for each in played) for played in (replays.now, then))
    return MeasuredFix(fix, compare_tasks(replays.now, then), before - after)


def show_confusions(path: Path | None, since: float | None, repair: RepairOptions, *, as_json: bool) -> int:
    """Show the pairs, or make the change that tells one of them apart. `since`: of the last so many seconds. Returns
    the exit status."""
    config, now = load(path), time.time()
    start = now - (_LATELY_S if since is None else since)
    with offline.open_offline(config) as app:
        found = find_confusions(app.store, app.catalog, start)
        replays = Replays(config, app.store, start, now, _PLAYED) if repair.replays and found else None
        with output.waiting("playing recorded tasks with each change"):
            tried = suggest_changes(app, found[:_TRIED], replays)
        found = [*tried, *suggest_changes(app, found[_TRIED:], None)]
    number = repair.number
    if number is None:
        return output.show(found, as_json, _print)
    if not 1 <= number <= len(found):
        return complain(f"misses --confused: there is no pair {number}; there are {len(found)}", WRONG)
    if not repair.wanted:
        return output.show([found[number - 1]], as_json, _print)
    return _fix(path, found[number - 1], number, repair, as_json=as_json)


def _fix(path: Path | None, pair: Confusion, number: int, repair: RepairOptions, *, as_json: bool) -> int:
    fix = next((each for each in pair.fixes if repair.kind in (None, each.fix.kind)), None)
    if fix is None:
        why = "no words of such a task are on record, so there is nothing to suggest"
        if pair.fixes:
            why = f"there is no {repair.kind} to suggest for pair {number}, but another change"
        return complain(f"misses --confused: {why}", WRONG)
    own = edits.open_file(path)
    with edits.errors_of(own.path):
        for change in fix.fix.changes:
            change.make(own)
    return edits.finish_edit(own, fix.fix.what, "misses", dry_run=repair.dry_run, as_json=as_json)


def _print(found: Sequence[Confusion]) -> None:
    if not found:
        output.say("No two tools were taken for each other more than once in this time.")
        return
    for number, each in enumerate(found, 1):
        output.say(f"{number}  {each.taken} was taken for {each.needed}", "bold")
        counts = [
            f"called in vain before it {_times(each.called)}" if each.called else "",
            f"ranked above it {_times(each.ranked)}" if each.ranked else "",
        ]
        output.say(f"   {', '.join(filter(None, counts))}")
        for task in each.tasks[:1]:
            output.say(f'   task: "{task}"', "dim")
        for place, fix in enumerate(each.fixes):
            output.say(f"   {'or ' if place else ''}{fix.fix.what}")
            if fix.effect is not None:
                output.say(f"     {say_effect(fix)}")
    output.say("To make a change: foretool misses --confused NUMBER --fix")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
