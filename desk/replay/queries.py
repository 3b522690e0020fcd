"""The queries that rankings are measured on: recorded tasks in their own words, or a file of queries.

A recorded task is asked in the words of its first search, else of its prompt, and needs the tools that it called. What
came after a task began may not rank it: with each query stands what was known by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from foretool.desk.replay.tasks import read_tasks
from foretool.server.catalog.names import names_for_demonstrations
from foretool.storage.episodes import MOST_CALLS
from foretool.storage.records import Tool, ToolId, Usage
from foretool.storage.stores import Store

_FORMAT: Final = (
    'expected an object with "query" (text), "calls" (list of tool names) and, if one of them is enough, "any": true'
)


class NeededTools(Struct, frozen=True):
    """A query and the tools that it needs."""

    text: str
    needs: tuple[frozenset[ToolId], ...]
    """One set for each need: the tools of which one meets it."""
    at: float
    """When it was asked; models that were promoted later may not rank it."""
    usage: Mapping[ToolId, Usage]
    """How often each tool had been used by then."""


class QuerySet(Struct, frozen=True):
    """Queries, and how many could not be one."""

    queries: tuple[NeededTools, ...]
    wordless: int = 0
    """Tasks whose words are not on record."""
    unknown: int = 0
    """Tasks without a tool that is known and may be found."""


def read_log(store: Store, tools: Sequence[Tool], since: float, now: float, most: int) -> QuerySet:
    """Return the latest `most` tasks since a time that called one of `tools`. Raises `StorageError`."""
    names = names_for_demonstrations(tools)
    usage: dict[ToolId, Usage] = {}
    found: list[NeededTools] = []
    wordless = unknown = 0
    for task in read_tasks(store, 0.0, now, most=MOST_CALLS):
        called = [names[each] for each in task.episode.calls if each in names]
        if (at := task.episode.at) >= since:
            text = task.searches[0] if task.searches else task.prompt
            if not text.strip():
                wordless += 1
            elif not called:
                unknown += 1
            else:
                needs = tuple(frozenset((each,)) for each in dict.fromkeys(called))
                found.append(NeededTools(text, needs, at, dict(usage)))
        for tool in called:
            before = usage.get(tool)
            usage[tool] = Usage(tool, (before.calls if before else 0) + 1, 0, at)
    return QuerySet(tuple(found[-most:]), wordless, unknown)


class _Row(Struct):
    query: str
    calls: list[str]
    any: bool = False


_row = msgspec.json.Decoder(_Row)


def read_file(path: Path, tools: Sequence[Tool], usage: Sequence[Usage], now: float) -> QuerySet:
    """Return the queries of a file with an object a line, as if they were asked now. Raises `ValueError` with the line
    that is wrong, and `OSError`."""
    names = names_for_demonstrations(tools)
    known = {each.tool: each for each in usage}
    found: list[NeededTools] = []
    wordless = unknown = 0
    # Not splitlines(): texts that people wrote may hold other line separators.
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = _row.decode(line)
        except msgspec.DecodeError as error:
            raise ValueError(f"{path}: line {number}: {error}; {_FORMAT}") from None
        called = [names[each] for each in row.calls if each in names]
        if not row.query.strip():
            wordless += 1
        elif not called or (len(called) < len(row.calls) and not row.any):
            unknown += 1
        else:
            needs = (frozenset(called),) if row.any else tuple(frozenset((each,)) for each in dict.fromkeys(called))
            found.append(NeededTools(row.query, needs, now, known))
    return QuerySet(tuple(found), wordless, unknown)
