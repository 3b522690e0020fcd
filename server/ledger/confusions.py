"""Pairs of tools that are taken for each other, and what would tell them apart.

Two things on record say so. A client called one tool, which failed, and then another one for the same task, which
succeeded. Or a search ranked one tool above the one that the client then called with success. The words of those
searches, given to the right tool as part of its description, are tried as a replay.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from foretool.server.app import App
from foretool.server.catalog.catalog import Catalog
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config
from foretool.server.ledger.fixes import FOR, Fix, MeasuredFix, describe_for, open_own
from foretool.server.replay.changes import ConfigChange, change_config
from foretool.server.replay.effect import Replays, compare
from foretool.server.setup.documents import DocumentError
from foretool.server.trust.text import one_line
from foretool.storage.records import Event, Tool, ToolId
from foretool.storage.stores import Store

Pair = tuple[ToolId, ToolId]
"""The tool that was taken for the other one, and the other one."""

RIGHT_AFTER_S: Final = 600.0
"""A success later than this after a failed call is of another need."""
MOST_CALLS: Final = 200_000
"""How many calls are read, the latest ones."""
MOST: Final = 20
"""How many pairs are named."""
LEAST: Final = 2
"""A pair that was confused less often is chance."""
MOST_SEARCHES: Final = 20_000
"""How many searches are read, the latest ones."""
SHOWN_WORDS: Final = 60
"""Characters of a task in the words of a change."""
TASKS: Final = 3
"""How many tasks of a pair are kept, the latest ones."""


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
    fix: MeasuredFix | None
    """What would tell them apart, and what it does to recorded tasks; None if nothing is known to suggest."""

    @property
    def count(self) -> int:
        return self.called + self.ranked


def find_confusions(store: Store, catalog: Catalog, since: float) -> list[Confusion]:
    """Return the pairs since a time, the most frequent first, without suggestions; only of tools that are there. Raises
    `StorageError`."""
    called, ranked = Counter[Pair](), Counter[Pair]()
    tasks: dict[Pair, list[str]] = defaultdict(list)
    for pair, task in _called_before(store, since):
        called[pair] += 1
        tasks[pair] += [task] if task else []
    for pair, task in _ranked_above(store, since):
        ranked[pair] += 1
        tasks[pair].append(task)
    found = [
        Confusion(*pair, called[pair], ranked[pair], tuple(dict.fromkeys(reversed(tasks[pair])))[:TASKS], None)
        for pair in {*called, *ranked}
        if called[pair] + ranked[pair] >= LEAST and all(catalog.get(each) is not None for each in pair)
    ]
    return sorted(found, key=lambda each: (-each.count, each.taken, each.needed))[:MOST]


def _called_before(store: Store, since: float) -> Iterator[tuple[Pair, str]]:
    """Yield the tool that was called in vain and the one that succeeded right after it, with the words of the last
    search; "" if there was none."""
    events = [each for each in (*store.calls.events(MOST_CALLS), *store.discoveries.events()) if each.at >= since]
    failed: dict[tuple[str, str], Event] = {}
    words: dict[tuple[str, str], str] = {}
    for event in sorted(events, key=lambda each: (each.at, each.kind == "call")):
        chat = (event.session, event.handle)
        if event.kind != "call":
            words[chat] = event.text
            failed.pop(chat, None)  # another search may be for another need
            continue
        before = failed.pop(chat, None)
        if not event.ok:
            failed[chat] = event
        elif before is not None and before.text != event.text and event.at - before.at <= RIGHT_AFTER_S:
            yield (ToolId(before.text), ToolId(event.text)), words.get(chat, "")


def _ranked_above(store: Store, since: float) -> Iterator[tuple[Pair, str]]:
    """Yield the tool that stood first and the one that was called, of each search that led to a call, with its
    words."""
    answers = {each.id: each for each in store.discoveries.answered(MOST_SEARCHES) if each.at >= since}
    if not answers:
        return
    for id, tool in store.discoveries.first_calls(min(answers), since).items():
        answer = answers.get(id)
        best = answer.matches[0].tool if answer is not None else tool
        if answer is not None and best != tool and any(match.tool == tool for match in answer.matches):
            yield (best, tool), answer.task


def suggest(app: App, found: Sequence[Confusion], replays: Replays | None) -> list[Confusion]:
    """Return the pairs with what would tell them apart, tried on the tasks of `replays` if there are any."""
    return [_with_fix(app, each, replays) for each in found]


def _with_fix(app: App, confusion: Confusion, replays: Replays | None) -> Confusion:
    tool = app.catalog.get(ToolId(confusion.needed))
    fix = _make_fix(tool, confusion.tasks) if tool is not None else None
    if fix is None:
        return confusion
    return Confusion(
        confusion.taken, confusion.needed, confusion.called, confusion.ranked, confusion.tasks,
        _measure(app.config, fix, confusion.needed, replays),
    )  # fmt: skip


def _make_fix(tool: Tool, tasks: Sequence[str]) -> Fix | None:
    """Return the description that has the words of a task that meant this tool."""
    for task in tasks:
        if (text := describe_for(tool, task)) is not None:
            change = ConfigChange(("servers", tool.upstream, "tools", tool.name, "description"), text)
            words = one_line(task, SHOWN_WORDS)
            return Fix("description", f'add to the description of {tool.id}: "{FOR} {words}"', (change,))
    return None


def _measure(config: Config, fix: Fix, tool: str, replays: Replays | None) -> MeasuredFix:
    if replays is None or not replays.tasks:
        return MeasuredFix(fix, None, 0)
    try:
        changed = change_config(config, open_own(config), fix.changes)
    except (ConfigError, DocumentError):
        return MeasuredFix(fix, None, 0)
    then = replays.play(changed)
    before, after = (sum(each.missed.count(ToolId(tool)) for each in played) for played in (replays.now, then))
    return MeasuredFix(fix, compare(replays.now, then), before - after)
