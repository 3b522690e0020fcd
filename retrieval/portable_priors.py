"""What one store has learned, in a form that another store can read: names and counts, no texts.

A file names tools by server and own name, with the names of their parameters. It says how often each was called, which
tool followed which, and how lists weigh size against need. `decode_priors` refuses everything else, so no text of a
file reaches a model or a terminal: a name in it only finds a tool that the reading store has itself.

What a file says counts as a bounded number of calls. So it decides while nothing was called yet, and fades as own calls
are added. This module imports nothing heavy, because a client waits for its list.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from foretool.storage.records import Tool, ToolId

_VERSION: Final = 1
LARGEST: Final = 2 * 2**20
"""Bytes of a file."""
MOST_TOOLS, MOST_FOLLOWED, MOST_PARAMETERS = 2_000, 20_000, 64
"""Tools of a file, pairs of tools, and parameters of a tool."""

WORTH: Final = 100
"""How many own calls all imported ones count as."""
MOST_OF_TOOL, MOST_OF_SERVER = 25, 50
"""How many of these one tool, and all tools of one server, may count as."""
_MOST_RANKED: Final = 100
"""The most used tools of a file take part; each counts as one call at least."""
_DOUBT: Final = 4
"""Tasks that went on in another way, which are added to those of a file: a pair that was seen once says little."""
SIZE_PENALTY: Final = 0.5
"""How much the size of a tool counts in a list until that was learned (`docs/benchmarks.md`)."""
SUREST: Final = 0.8
"""The most that a file may say of what comes next."""
MOST_NEXT: Final = 8
"""Tools that may follow one."""

Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:/@-]+\Z")]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Place = Annotated[int, Meta(ge=0, lt=MOST_TOOLS)]


class PriorTool(Struct, frozen=True, forbid_unknown_fields=True):
    """One tool, and how it was used."""

    server: Name
    name: Name
    """Its own name, as the server calls it."""
    parameters: Annotated[tuple[Name, ...], Meta(max_length=MOST_PARAMETERS)] = ()
    calls: Count = 0
    ended: Count = 0
    """How many tasks it ended."""


class Followed(Struct, frozen=True, forbid_unknown_fields=True):
    """How often one tool came right after another one."""

    before: Place
    """The place of the tool in `tools`, from 0."""
    after: Place
    times: Count


class ListFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """What was learned about lists (`server.lists.order.Prior`)."""

    size_penalty: Annotated[float, Meta(ge=0.0, le=1.0)] = SIZE_PENALTY
    fill: bool = True


class PortablePriors(Struct, frozen=True, forbid_unknown_fields=True):
    """What one store has learned, as a file holds it."""

    format: Literal["foretool-priors"]
    version: Literal[1]
    exported: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\d\Z")]
    """The day."""
    people: Annotated[int, Meta(ge=1, le=1_000_000)]
    """At least so many people stand behind each count."""
    tasks: Count
    """How many tasks were counted."""
    tools: Annotated[tuple[PriorTool, ...], Meta(max_length=MOST_TOOLS)]
    followed: Annotated[tuple[Followed, ...], Meta(max_length=MOST_FOLLOWED)] = ()
    lists: ListFigures | None = None
    """None if nothing was learned about lists."""


class _Head(Struct):
    format: Any = None
    version: Any = None


class NotPriors(Exception):
    """Some bytes are no priors; in words what was found, and the way out."""


class Expected(Struct, frozen=True):
    """What priors mean for the tools of one catalog."""

    calls: Mapping[ToolId, int]
    """How many own calls each tool counts as."""
    next: Mapping[ToolId, Mapping[ToolId, float]]
    """By tool, the probability of each one that may follow it, the likeliest first."""
    end: Mapping[ToolId, float]
    """By tool, the probability that it ends a task."""
    known: int
    """How many tools of the file the catalog has."""


NOTHING: Final = Expected({}, {}, {}, 0)


def decode_priors(data: bytes) -> PortablePriors:
    """Read and check the bytes of a file. Raises `NotPriors`."""
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise NotPriors("expected what `foretool learn --export` writes, found something else") from None
    if head.format != "foretool-priors":
        raise NotPriors('expected "format": "foretool-priors"; `foretool learn --export` writes such a file')
    if head.version != _VERSION or isinstance(head.version, bool):
        newer = isinstance(head.version, int) and head.version > _VERSION
        way_out = "update foretool" if newer else "export it again with `foretool learn --export`"
        raise NotPriors(f"this foretool reads version {_VERSION} alone, and the file has another one; {way_out}")
    try:
        found = msgspec.json.decode(data, type=PortablePriors)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise NotPriors(f"{_say(error)}; export it again with `foretool learn --export`") from None
    if any(max(pair.before, pair.after) >= len(found.tools) for pair in found.followed):
        raise NotPriors("followed: names a place behind the last tool; export it again with `foretool learn --export`")
    keys = {(tool.server, tool.name) for tool in found.tools}
    pairs = {(pair.before, pair.after) for pair in found.followed}
    if len(keys) < len(found.tools) or len(pairs) < len(found.followed):
        raise NotPriors("tools, followed: the same entry twice; export it again with `foretool learn --export`")
    return found


def _say(error: BaseException) -> str:
    """Turn msgspec's message around: first where, then what was expected. It shows no value of the file."""
    what, _, where = str(error).partition(" - at `$")
    place = where.strip("`.")
    what = "an unknown key" if what.startswith("Object contains unknown field") else what.replace("`", "")
    return f"{place}: {what}" if place else what


def encode_priors(priors: PortablePriors) -> bytes:
    """Return the bytes of a file, one tool or pair a line."""
    return msgspec.json.format(msgspec.json.encode(priors), indent=1) + b"\n"


def parameter_names(definition: bytes) -> tuple[str, ...]:
    """Return the names of a tool's parameters, sorted; () if its schema has none."""
    try:
        schema = msgspec.json.decode(definition).get("inputSchema", {})
        return tuple(sorted(schema.get("properties", {})))
    except (msgspec.MsgspecError, AttributeError, TypeError):
        return ()


def find_tools(
    priors: PortablePriors, tools: Iterable[Tool], names_of: Callable[[Tool], tuple[str, ...]]
) -> dict[int, Tool]:
    """Return by its place in the file each tool that the reading store has.

    A tool is the same by server and name, or, where a server has another name here, by name and parameters if only one
    tool is so named on both sides. One that has none of the named parameters is another tool.
    """
    wanted = {tool.name for tool in priors.tools}
    here = [tool for tool in tools if tool.name in wanted]
    by_server = {(tool.upstream, tool.name): tool for tool in here}
    found: dict[int, Tool] = {}
    for place, each in enumerate(priors.tools):
        tool = by_server.get((each.server, each.name))
        if tool is not None and _may_be(each, names_of(tool)):
            found[place] = tool
    taken = {tool.id for tool in found.values()}
    servers = {tool.upstream for tool in here}
    theirs: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    ours: dict[tuple[str, tuple[str, ...]], list[Tool]] = defaultdict(list)
    for place, each in enumerate(priors.tools):
        if place not in found and each.server not in servers and each.parameters:
            theirs[each.name, tuple(sorted(each.parameters))].append(place)
    for tool in here if theirs else ():
        if tool.id not in taken:
            ours[tool.name, names_of(tool)].append(tool)
    for key, places in theirs.items():
        if len(places) == 1 and len(same := ours.get(key, [])) == 1:
            found[places[0]] = same[0]
    return found


def _may_be(each: PriorTool, parameters: Collection[str]) -> bool:
    return not each.parameters or not parameters or not set(each.parameters).isdisjoint(parameters)


def expect(priors: PortablePriors, found: Mapping[int, Tool]) -> Expected:
    """Return what priors mean for the tools that were found of them (`find_tools`)."""
    following: dict[int, dict[ToolId, int]] = defaultdict(dict)
    totals: Counter[int] = Counter()
    for pair in priors.followed:
        totals[pair.before] += pair.times
        if pair.after in found and pair.before in found:
            following[pair.before][found[pair.after].id] = pair.times
    upcoming: dict[ToolId, Mapping[ToolId, float]] = {}
    end: dict[ToolId, float] = {}
    for place, tool in found.items():
        each = priors.tools[place]
        total = totals[place] + each.ended + _DOUBT
        end[tool.id] = min(each.ended / total, SUREST)
        best = sorted(following[place].items(), key=lambda item: (-item[1], item[0]))[:MOST_NEXT]
        upcoming[tool.id] = {after: min(times / total, SUREST) for after, times in best if times}
    return Expected(_weigh(priors.tools, found), upcoming, end, len(found))


def _weigh(tools: Sequence[PriorTool], found: Mapping[int, Tool]) -> dict[ToolId, int]:
    """Return how many own calls each tool counts as: its share of `WORTH`, within the bounds of a tool and a server."""
    total = sum(tool.calls for tool in tools) or 1
    used = sorted((place for place in found if tools[place].calls), key=lambda place: (-tools[place].calls, place))
    of_server: Counter[str] = Counter()
    weights: dict[ToolId, int] = {}
    for place in used[:_MOST_RANKED]:
        tool = found[place]
        share = min(max(round(WORTH * tools[place].calls / total), 1), MOST_OF_TOOL)
        share = min(share, MOST_OF_SERVER - of_server[tool.upstream])
        if share > 0:
            of_server[tool.upstream] += share
            weights[tool.id] = share
    return weights


def leave_room(
    ordered: Iterable[ToolId], own: Collection[ToolId], upstream_of: Callable[[ToolId], str],
    tokens: Callable[[ToolId], int], most: int,
) -> list[ToolId]:  # fmt: skip
    """Leave out the tools with which what was imported of one server would take more than `most` tokens of a list.
    Tools that were used here (`own`) stay."""
    spent: Counter[str] = Counter()
    kept: list[ToolId] = []
    for tool in ordered:
        if tool not in own:
            spent[upstream_of(tool)] += tokens(tool)
            if spent[upstream_of(tool)] > most:
                continue
        kept.append(tool)
    return kept
