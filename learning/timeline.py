"""Reads what learning learns from: tools with texts that can be trusted, and episodes in the order of time.

It decides which episodes train a method, and which later ones judge it.

Demonstrations, episodes that a user has written down, come from files with one JSON object per line. Misses are read
too: the words of a search, the tool that it was for, and what stood above it.

An episode joins all words of a task with all of its calls. A miss says which words were for which tool. Only misses of
searches are read, of those that showed the tool and of those that did not: others have no words that belong to them.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from foretool.server.config.files import read_rows
from foretool.storage.records import Artifact, Episode, MissedNeed, MissFilter, Tool, ToolId, Usage
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.retrieval.rankers.learned import LearnedModel


_MOST: Final = 2_000
"""How many misses are read, the latest ones."""
_SHOWN: Final = 5
"""How many tools that stood above the needed one are kept."""


def read_missed(
    store: Store,
    tools: Mapping[ToolId, object],
    people: Mapping[str, tuple[str, bool]] | None = None,
) -> list[MissedNeed]:
    """Return the needs that misses revealed, the oldest first; without tools that are gone, and without the sessions of
    `people` that may not be learned from."""
    latest = store.calls.find_misses(MissFilter(), _MOST)
    misses = [each for each in latest if each.query and each.discovery and each.tool in tools]
    answers = {each.id: each for each in store.discoveries.answered(_MOST)} if misses else {}
    found = []
    for each in reversed(misses):
        if people is not None and not people.get(each.session, ("", True))[1]:
            continue
        answer = answers.get(each.discovery)
        # A search that did not show the tool had all that it showed above it.
        least = each.rank or inf
        above = [match.tool for match in answer.matches if match.rank < least] if answer else []
        shown = tuple(tool for tool in above if tool in tools and tool != each.tool)[:_SHOWN]
        found.append(MissedNeed(each.at, each.query, ToolId(each.tool), shown))
    return found


_FORMAT: Final = (
    'expected an object with "query" (text), "calls" (list of tool names) and, if wanted, "args" (an object of'
    ' arguments for each call) and "edges" (pairs of places in "calls", counted from 0)'
)


class Imported(Struct, frozen=True):
    """The demonstrations of one file, and what was left out of it."""

    episodes: tuple[Episode, ...]
    rows: int
    unknown: tuple[str, ...]
    """Tools that the catalog does not have, each once; the rows that name them were left out."""


class _Row(Struct):
    calls: list[str]
    query: str = ""
    args: list[dict[str, Any]] | None = None
    edges: list[tuple[int, int]] | None = None
    id: Any = None
    needs_tool: Any = True


_row = msgspec.json.Decoder(_Row)


def read_demonstrations(path: Path, names: Mapping[str, ToolId]) -> Imported:
    """Read lines of JSON with `query`, `calls` (tools in order) and optionally `edges`, `id`, `needs_tool`.

    `names` has every name by which a demonstration may call a tool. Raises `ValueError` with the line or
    the file.
    """
    found: list[Episode] = []
    unknown: dict[str, None] = {}
    rows = 0
    for place, row in read_rows(path, _row.decode, _FORMAT):
        rows += 1
        _check_row(place, row)
        calls = row.calls if row.needs_tool else []
        if missing := [call for call in calls if call not in names]:
            unknown.update(dict.fromkeys(missing))
            continue
        found.append(
            Episode(
                calls=tuple(names[call] for call in calls),
                tasks=(row.query,) if row.query else (),
                edges=tuple(row.edges) if row.edges is not None else None,
                source="import",
                key=f"{path.name}:{place.rpartition(' ')[2] if row.id is None else row.id}",
                arguments=tuple(msgspec.json.encode(each).decode() for each in row.args or ()) if calls else (),
            )
        )
    return Imported(tuple(found), rows, tuple(unknown))


def _check_row(place: str, row: _Row) -> None:
    if row.args is not None and len(row.args) != len(row.calls):
        raise ValueError(f'{place}: "args" has {len(row.args)} objects, "calls" has {len(row.calls)} tools; {_FORMAT}')
    for end in (end for edge in row.edges or () for end in edge):
        if not 0 <= end < len(row.calls):
            raise ValueError(f'{place}: "edges" has the place {end}, "calls" has {len(row.calls)} tools; {_FORMAT}')


LEAST_REPLAYED: Final = 10
"""Fewer tasks say nothing about a model."""
_MOST_REPLAYED: Final = 300
"""Only the latest tasks are replayed; more would only take longer."""
_MOST_STEPS: Final = 500
"""Calls of the replayed tasks, as long as there are `_LEAST_OF_PART` tasks."""
_LONGEST_REPLAYED: Final = 20
"""Calls of one task that are replayed, as in `learning.training.replay`, which needs numpy to import."""
_MUCH_KNOWN: Final = 200
"""After so many tasks the replayed ones are one part: a second training tells little more and costs as much again."""
_SHARE_REPLAYED: Final = 0.4
"""Share of all tasks that is replayed when a method is trained for the first time."""
_PARTS: Final = 2
"""The replayed tasks are split into so many parts; each is judged with a model trained on everything before it."""
_LEAST_OF_PART: Final = 40
"""Tasks of a part; fewer are replayed in one part, which saves a training."""


class Timeline:
    """The imported demonstrations, then the episodes of the log, each oldest first, without calls of removed tools.

    A place is an index into `episodes`. A model that was trained up to a place has seen the episodes before it.
    """

    def __init__(
        self,
        demonstrations: Sequence[Episode],
        logged: Sequence[Episode],
        tools: Mapping[ToolId, object],
        imports: int | None = None,
    ) -> None:
        """`imports`: how many demonstrations the store has, if these are only some of them."""
        self.imported = len(demonstrations)
        self.imports = self.imported if imports is None else imports
        self.episodes = drop_calls([*demonstrations, *logged], tools)

    def __len__(self) -> int:
        return len(self.episodes)

    def usage_before(self, place: int) -> dict[ToolId, Usage]:
        """Return the usage of tools as the episodes before a place would have left it."""
        counts = Counter(tool for each in self.episodes[:place] for tool in each.calls)
        return {tool: Usage(tool, count, 0, 0.0) for tool, count in counts.items()}

    def missed_before(self, place: int, missed: Sequence[MissedNeed]) -> list[MissedNeed]:
        """Return the needs that were known before the episode at a place began."""
        begins = self.episodes[place].at if place < len(self) else math.inf
        return [each for each in missed if each.at < begins]

    def earlier(self, others: Sequence[Episode], place: int) -> list[Episode]:
        """Return those of other episodes that ended before the episode at a place began. Demonstrations have no time:
        they come before what is in the log, and none of them before another one."""
        if place >= len(self):
            return list(others)
        begins = self.episodes[place].at if place >= self.imported else 0.0
        return [each for each in others if each.at < begins]

    def place_after(self, model: Artifact | None) -> int:
        """Return the place from which the episodes are new to a model; with no model, the first that is to be
        replayed."""
        if model is None:
            share = max(int(_SHARE_REPLAYED * len(self)), LEAST_REPLAYED)
            return max(len(self) - share, 0)
        until = model.report.get("until", 0.0)
        # The latest demonstrations are the last ones, also where some of them are left out.
        new = max(self.imports - model.report.get("imports", model.report.get("imported", 0)), 0)
        imports = max(self.imported - new, 0)
        seen = [
            place
            for place, each in enumerate(self.episodes)
            if (place < imports if each.source == "import" else each.at <= until)
        ]
        return seen[-1] + 1 if seen else 0

    def parts_to_replay(self, model: Artifact | None) -> list[tuple[int, int]]:
        """Return the parts to replay before this model is replaced, each from one place to another; [] if too few
        episodes are new to it."""
        first, last = self.place_after(model), len(self)
        if last - first < LEAST_REPLAYED:
            return []
        count = _PARTS if last - first >= _PARTS * _LEAST_OF_PART else 1
        if model is not None:
            # A new model has to have seen something that the old one has not.
            first = min(first + (last - first) // (count + 1), last - LEAST_REPLAYED)
        first = max(first, last - _MOST_REPLAYED, self._place_of_steps(last))
        if first >= _MUCH_KNOWN:
            count = 1
        bounds = [first + (last - first) * number // count for number in range(count + 1)]
        return list(itertools.pairwise(bounds))

    def _place_of_steps(self, last: int) -> int:
        """Return the place from which the episodes have `_MOST_STEPS` steps, but no more than `_LEAST_OF_PART` episodes
        before the last one."""
        steps, place = 0, last
        while place and (steps < _MOST_STEPS or last - place < _LEAST_OF_PART):
            place -= 1
            steps += min(len(self.episodes[place].calls), _LONGEST_REPLAYED)
        return place

    def describe_too_few(self, kind: str, model: Artifact | None) -> str:
        """Say why `parts_to_replay` is empty."""
        since = f"since {kind} {model.number}" if model else "on record"
        new = len(self) - self.place_after(model)
        return f"tasks {since}: {new} of the {LEAST_REPLAYED} that it takes to tell whether it is better"

    def stamp(self) -> dict[str, Any]:
        """Say in a model's report which episodes it has seen."""
        return {
            "episodes": len(self),
            "imported": self.imported,
            "imports": self.imports,
            "until": max((each.at for each in self.episodes), default=0.0),
        }


class KnownModels:
    """The models in use and those of this run, by kind, each with the place in the timeline up to which it was trained.
    So a replay can rank each episode with models that have not seen it."""

    def __init__(self) -> None:
        self._versions: dict[str, list[tuple[int, LearnedModel]]] = {}

    def __len__(self) -> int:
        return len(self._versions)

    def add(self, kind: str, place: int, model: LearnedModel) -> None:
        """Add a later version of a model, trained on the episodes before `place`."""
        self._versions.setdefault(kind, []).append((place, model))

    def before(self, place: int) -> dict[str, LearnedModel]:
        """Return the latest version of each model that was trained on no episode from this place on."""
        return {kind: held[-1] for kind, each in self._versions.items() if (held := [m for p, m in each if p <= place])}

    def places(self) -> list[int]:
        """Return the places up to which some model has seen episodes, in rising order."""
        return sorted({place for held in self._versions.values() for place, _ in held})


def trusted_tools(
    store: Store, tools: Sequence[Tool], override: Callable[[Tool], Tool] = lambda tool: tool
) -> list[Tool]:
    """Return the tools with the text that each had at first, because a text that changed later may be an attack and
    must not enter training. `override` puts the user's own words in place of the server's; these may always enter."""
    changed = store.catalog.changed_tools()
    found = []
    for tool in tools:
        if (tool.upstream, tool.name) in changed:
            first = store.catalog.versions(tool.upstream, tool.name)[0]
            tool = replace(tool, definition=first.definition, schema_hash=first.schema_hash, tokens=first.tokens)
            tool = override(tool)
        found.append(tool)
    return found


def rename_calls(episodes: Iterable[Episode], find: Callable[[str], Tool | None]) -> list[Episode]:
    """Return the episodes with the present names of their tools: the user may have given a tool another name since."""

    def rename(calls: tuple[ToolId, ...]) -> tuple[ToolId, ...]:
        return tuple(tool.id if (tool := find(each)) is not None else each for each in calls)

    return [replace(each, calls=rename(each.calls), failed=rename(each.failed)) for each in episodes]


def drop_calls(episodes: Iterable[Episode], kept: Mapping[ToolId, object]) -> list[Episode]:
    """Return the episodes without the calls of tools that are not `kept`, and without episodes that lose all calls.

    Edges between the remaining calls stay, with the new places of these calls.
    """
    found: list[Episode] = []
    for each in episodes:
        places = [place for place, call in enumerate(each.calls) if call in kept]
        if len(places) == len(each.calls):
            found.append(each)
        elif places:
            new = {place: number for number, place in enumerate(places)}
            edges = each.edges
            if edges is not None:
                edges = tuple((new[a], new[b]) for a, b in edges if a in new and b in new)
            found.append(
                replace(
                    each,
                    calls=tuple(each.calls[place] for place in places),
                    edges=edges,
                    arguments=tuple(each.arguments[place] for place in places) if each.arguments else (),
                )
            )
    return found
