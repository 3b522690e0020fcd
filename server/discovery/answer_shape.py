"""Which matches an answer of `discover_tools` shows, and how much of each at each level of confidence.

As many tools are shown as hold a needed one with the promised probability (`retrieval/confidence.py`): up to three
with their schemas, ready to call, some more in one line each, and the rest by their names alone. In doubt no schema is
shown but a map of the servers, so that the next question can be a better one. Where nothing fits, no tool is shown.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from foretool.retrieval.confidence import LEAST_SHOWN
from foretool.retrieval.ranking import Ranked, Ranking
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.names import CALL
from foretool.server.discovery.arguments import MATCHES, Arguments
from foretool.server.discovery.match_groups import Known, WordBits, WordsOf, fold_twins, group, thin, twin_servers
from foretool.server.discovery.server_map import Away, matter
from foretool.server.trust.policy import Reach
from foretool.storage.records import Level, Match, Tool, ToolId

READY: Final = 3
"""At most so many tools of one need are shown with their schemas."""
_MORE_READY: Final = 2
"""So many more for each further need."""
_LINED: Final = 6
"""At most so many tools of one need are described; a line costs three times as much as a name."""
_MORE_LINED: Final = 4
"""So many more for each further need."""
LEAST: Final = 5
"""At least so many tools are shown, unless the task names those that it wants."""
_MORE_SHOWN: Final = 2
"""So many more tools are shown for each further clause of a paragraph: the gate speaks of one needed tool."""
SHARE: Final = 4
"""Skills and instructions get at most 1 / `SHARE` of an answer's tokens together."""
_SPARE: Final = 8
"""So many matches more are looked through for tools that do the same, because these leave room in the answer."""
MOST_SAME: Final = 5
"""So many tools that do the same are named; the rest are counted."""


class Shape(Struct, frozen=True):
    ready: int
    """So many of the best are shown with what they do and their schemas."""
    lined: int
    """So many after them are shown in one line each: what a call needs, and what the tool does."""
    named: int
    """So many after those are shown by their names alone."""
    has_map: bool
    """Whether the servers are listed, each in one line."""

    @property
    def shown(self) -> int:
        return self.ready + self.lined + self.named


def enough(k: int, clauses: int) -> int:
    """Return how many tools to show. `k`: how many suffice for one need; `clauses`: how many clauses the task has, if
    it is a paragraph."""
    if clauses <= k < LEAST_SHOWN:
        return k  # the task names its tools, or no more are there; a name among many clauses is not all that they need
    return max(k, LEAST) + _MORE_SHOWN * max(clauses - 1, 0)


def shape(level: Level, matches: int, k: int, *, needs: int = 1, limit: int | None = None,
          widens: bool = False) -> Shape:  # fmt: skip
    """Return how `matches` matches are shown.

    `k`: how many tools suffice for the task. `needs`: its lines. `limit`: what the caller asked for. `widens`: the
    caller says that what it saw did not suffice. Whoever says either wants to see what there is, so nothing is held
    back from them at any level.
    """
    insists = limit is not None or widens
    if not matches or (level == "none" and not insists):
        return Shape(0, 0, 0, has_map=True)
    most = limit if limit is not None else matches if widens else k
    shown = min(most, matches)
    ready = READY + _MORE_READY * (needs - 1) if level in ("high", "medium") else 0
    ready = min(ready, shown)
    lined = shown if insists else min(_LINED + _MORE_LINED * (needs - 1), shown)
    return Shape(ready, lined - ready, shown - lined, has_map=level in ("low", "none"))


class Lacks(Struct, frozen=True):
    """What a search had to do without: servers, tools that are not indexed yet, encoders, or words that it can read."""

    servers: Sequence[Away] = ()
    """Those that are not there, or of which tools are missing."""
    told: Collection[str] = ()
    """The servers of them that the session was told of."""
    waiting: Sequence[Away] = ()
    """Those of which tools wait for the user, beside matches of medium confidence. What was served until its server
    changed it may be just what the task needs, so they are named; what was found is not doubted for them."""
    held: Mapping[str, str] = {}
    """The servers of tools that were asked for by name and wait for the user, by that name."""
    unsearched: int = 0
    """How many tools are not indexed yet."""
    meaning_in: float | None = None
    """In about how many seconds all tools are ranked by meaning; None if they are. Words rank some or all of them as
    long as that."""
    unread: bool = False
    """Whether the words of the task are mostly unknown ones, as in a language that is not read, and the session was not
    told so before."""


class Request(Struct, frozen=True):
    """The arguments of a search as its answer needs them."""

    level: Level
    """How sure the answer is."""
    asked: Sequence[Ranked]
    """Tools asked for by name that fit the task, if there is one."""
    apart: Sequence[Ranked]
    """The others asked for by name: they have a line behind the best matches."""
    unknown: Sequence[str]
    """Names that no tool has."""
    shared_names: Mapping[str, Sequence[ToolId]]
    """By name, the tools of several servers that share it."""
    needs: int
    """How many the task has."""
    k: int
    """How many tools suffice; 0 where that is not known."""
    is_lookup: bool
    """Tools were asked for by their names alone, so that nobody doubts what is meant."""
    is_paragraph: bool
    """The task is a paragraph of several clauses."""
    lacks_likely: bool
    """A server that is not there probably has the tool."""


def read_request(
    arguments: Arguments, ranking: Ranking, level: Level, catalog: Catalog, reach: Reach, lacks: Lacks, k: int
) -> Request:
    """Return what a search asks for: by name, by task, and how much of it. `level`: how sure its ranking is."""
    asked, unknown, shared_names = _asked(arguments, catalog, reach)
    asked, apart = _by_fit(asked, arguments, ranking, level)
    lacks_likely = bool(matter(lacks.servers, catalog, arguments.lines, is_sure=True))
    if asked and not (unknown or apart):
        level = "high"
    else:
        level = _doubt(level, has_some=bool(ranking.ranked or asked or lacks.meaning_in), lacks_likely=lacks_likely)
    clauses = len(_clauses(arguments))
    steps = 0 if clauses else _count_steps(arguments)
    return Request(
        level,
        asked,
        apart,
        unknown,
        shared_names,
        needs=max(len(arguments.lines), steps, 1),
        k=min(max(enough(k, clauses), LEAST * steps), _most_of(level, arguments)) if k else 0,
        is_lookup=not arguments.lines,
        is_paragraph=clauses > 0,
        lacks_likely=lacks_likely,
    )


class ChosenMatches(Struct, frozen=True):
    """The matches of an answer, and how they are shown."""

    known: Sequence[Known]
    """Those that are shown for themselves, best first."""
    like: Mapping[ToolId, ToolId]
    """By tool, one above it that it is like."""
    folded: Mapping[ToolId, Sequence[Known]]
    """By tool, those that are only named beside it, because they do the same."""
    twins: Sequence[str]
    """The servers of the first tool that others do the same as, and of those."""
    ready: int
    """So many of the first ones get a schema while the budget lasts."""
    lined: int
    """So many of the first ones, those included, have a line each."""
    has_map: bool
    """Whether the servers are listed."""

    def matches(self) -> tuple[Match, ...]:
        """Return what is recorded: the matches that are shown, then those that are only named beside one."""
        beside = (each for tool, _ in self.known for each in self.folded.get(tool.id, ()))
        told = enumerate((*self.known, *beside), 1)
        return tuple(Match(each.tool, rank, each.score, each.parts) for rank, (_, each) in told)


def choose(
    arguments: Arguments, ranking: Ranking, wanted: Request, catalog: Catalog, reach: Reach, words_of: WordsOf
) -> ChosenMatches:
    """Choose the matches that are shown, and how those after the tools that were asked for by name are shown."""
    asked, apart, k = wanted.asked, wanted.apart, wanted.k
    named = {each.tool for each in (*asked, *apart)}
    words = WordBits(words_of)
    # Who asks by name alone wants these tools and no others.
    others = [each for each in ranking.ranked if each.tool not in named] if arguments.lines or not asked else []
    known = [(tool, each) for each in (*asked, *others) if (tool := catalog.get(each.tool)) is not None]
    most = arguments.wanted if arguments.limit is not None else max(arguments.wanted, k)
    insists = arguments.limit is not None or arguments.widens
    known = thin(known, len(asked), max(most, len(asked)) + (0 if insists else _SPARE), words)
    pins = {tool.id for tool, _ in known if catalog.is_pinned(tool, reach.pins)}
    known, like = group(
        known,
        len(asked),
        catalog.namespaces.count_older,
        pins,
        lambda tool: reach.verdict(tool).bridge == CALL,
        words,
    )
    k = max(k, _count_named(known[len(asked) :])) if k else 0
    folded: dict[ToolId, list[Known]] = {}
    if not insists:  # who asks for more sees every tool in its place
        known, folded = fold_twins(known, like)
    found = shape(
        wanted.level, min(len(known), max(most, k, len(asked))) - len(asked), k, needs=wanted.needs,
        limit=arguments.limit, widens=arguments.widens,
    )  # fmt: skip
    known, cut = known[: len(asked) + found.shown], known[len(asked) + found.shown :]
    shown = {tool.id for tool, _ in known}
    for each in () if insists else reversed(cut):
        if (leader := like.get(each[0].id)) is not None:
            folded.setdefault(leader, []).insert(0, each)
    like = {one: other for one, other in like.items() if one in shown and other in shown}
    folded = {tool: each for tool, each in folded.items() if tool in shown}
    told = [tool for tool, _ in itertools.chain(known, *folded.values())]
    ready = len(asked) + found.ready
    # What only may fit is not worth a choice between servers.
    twins = next((servers for tool, _ in known[:ready] if (servers := twin_servers(tool, told, words))), [])
    behind = [(tool, each) for each in apart if (tool := catalog.get(each.tool)) is not None]
    known = [*known[:ready], *behind, *known[ready:]]
    return ChosenMatches(
        known, like, folded, twins, ready, ready + len(behind) + found.lined, found.has_map and not asked
    )


def _count_named(known: Sequence[Known]) -> int:
    """Return how many of the first tools the task names alike: none of them is left out for another one."""
    names = [ranked.parts.get("name", 0.0) for _, ranked in known[:MOST_SAME]]
    return sum(name == names[0] for name in names) if names and names[0] else 0


def _asked(
    arguments: Arguments, catalog: Catalog, reach: Reach
) -> tuple[list[Ranked], list[str], dict[str, list[ToolId]]]:
    """Return the tools that were asked for by name, the names that no tool has, and by name the tools that share it,
    that of a server which the task names first."""
    from foretool.retrieval.rankers.servers import NOT_NAMED  # word lists, which no list needs

    found: list[Ranked] = []
    unknown: list[str] = []
    shared: dict[str, list[ToolId]] = {}
    for name in arguments.names:
        tool = catalog.find(name)
        if tool is not None and reach.finds(tool):
            found.append(Ranked(tool.id, 1.0, {"name": 1.0}, ("name",)))
        elif same := tools_named(name, catalog, reach):
            meant = catalog.texts.names.find(arguments.task)
            same.sort(key=lambda tool: meant.get(tool.upstream, NOT_NAMED).strength, reverse=True)
            shared[name] = [each.id for each in same]
            found += [Ranked(each, 1.0, {"name": 1.0}, ("name",)) for each in shared[name]]
        else:
            unknown.append(name)
            near = close_names(name, catalog, reach)
            found += [Ranked(one, 0.5, {"name": 0.5}, (f"close to {name!r}",)) for one in near[:3]]
    best: dict[ToolId, Ranked] = {}
    for each in found:  # a tool may be asked for by its name and be close to a name that no tool has
        if each.tool not in best or each.score > best[each.tool].score:
            best[each.tool] = each
    return list(best.values()), unknown, shared


def _by_fit(
    asked: Sequence[Ranked], arguments: Arguments, ranking: Ranking, level: Level
) -> tuple[list[Ranked], list[Ranked]]:
    """Return the tools asked for by name that fit the task, and the others. Where there is no task, or no tool fits it,
    a name is all that is known of what is wanted."""
    if not arguments.lines or level == "none":
        return list(asked), []
    fitting = {each.tool for each in ranking.ranked[:MATCHES]}
    return [each for each in asked if each.tool in fitting], [each for each in asked if each.tool not in fitting]


def tools_named(name: str, catalog: Catalog, reach: Reach) -> list[Tool]:
    """Return the tools of a profile that share an own name, those of several servers."""
    found = [tool for tool in catalog.now.tools_called(name) if reach.finds(tool)]
    return found if len(found) > 1 else []


def close_names(name: str, catalog: Catalog, reach: Reach) -> list[ToolId]:
    """Return the tools of a profile whose names are close to an unknown name, the closest first. The name of a tool
    that is gone means no other tool."""
    near = catalog.meanings.near(name) if catalog.meanings.why_gone(name) is None else ()
    return [one for one in near if (tool := catalog.get(one)) is not None and reach.finds(tool)]


def _clauses(arguments: Arguments) -> list[str]:
    """Return the clauses of a task that is a paragraph; [] for any other."""
    from foretool.retrieval.clauses import clauses, in_english

    return clauses(in_english(arguments.lines[0])) if len(arguments.lines) == 1 else []


def _count_steps(arguments: Arguments) -> int:
    """Return how many steps a task of one line says; 0 for one alone."""
    from foretool.retrieval.clauses import in_english, steps

    return len(steps(in_english(arguments.lines[0]))) if len(arguments.lines) == 1 else 0


def _most_of(level: Level, arguments: Arguments) -> int:
    """Return how many tools to show at most: what matches a pasted block matches by chance, beside a wish too."""
    from foretool.retrieval.clauses import is_pasted

    if level == "high" or not is_pasted("\n".join(arguments.lines)):
        return sys.maxsize
    return LEAST if level == "low" else 2 * LEAST


def _doubt(level: Level, *, has_some: bool, lacks_likely: bool) -> Level:
    """Return the level of an answer. Without any tool it is none; where a server that probably has the tool is not
    there (`lacks_likely`), what others have is a neighbour of it."""
    if not has_some:
        return "none"
    return "low" if lacks_likely and level == "medium" else level
