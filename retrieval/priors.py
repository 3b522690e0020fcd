"""Says which tools are probably needed while nothing has been learned: the prior of an empty log.

Names, parameters and texts of tools carry a little of it: some deeds are asked for more than others, and a tool with
required parameters more than one without. The weights stand in `priors.json`. `python -m bench.retrieval.priors --fit`
fits them on train sets of tasks; no name or text of these is in the file, only weights of the features below.

What a server writes about its own tools moves a score by a bounded amount, and `spread` keeps one server from taking a
list alone. This module imports nothing heavy, because a client waits for its list.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice, zip_longest
from math import exp, log1p
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from foretool.retrieval.document import Fields
from foretool.retrieval.words import in_words, stem
from foretool.storage.records import ToolId

FILE = Path(__file__).with_name("priors.json")

_DEEDS = {
    "find": "search find lookup query",
    "get": "get fetch read retrieve show view describe",
    "list": "list browse",
    "add": "create add make new insert register",
    "delete": "delete remove drop clear cancel reset purge wipe destroy kill",
    "edit": "update edit modify change set rename",
    "send": "send post publish share message",
    "run": "run execute start call invoke perform",
    "compute": "calculate compute convert count analyze estimate",
    "check": "check verify validate test",
    "open": "open login connect authenticate",
}
DEEDS = {stem(word): deed for deed, words in _DEEDS.items() for word in words.split()}
"""By the stem of a verb, the kind of deed that it names."""
_RANK = {deed: place for place, deed in enumerate(_DEEDS)}

_TRIED = "test testing demo example sample echo everything hello mock dummy playground"
_TEST_NAMES = frozenset(_TRIED.split())
"""Words of the names that people give to servers that are there to be tried."""
_OF_TESTS = re.compile(
    rb"\b(?:echoes|echo back|demonstrat\w+|dummy|lorem ipsum|hello world|for testing|(?:test|example|sample) tool)\b",
    re.IGNORECASE,
)
"""What their tools say of themselves."""
_TEST_SHARE = 0.2
"""A server is there to be tried if at least this share of its tools says so."""
_MOST_REQUIRED = 8
"""More required parameters count as so many."""
_MOST_OF_ONE = 0.5
"""The share of a budget that one server gets before the tools of others have been offered the rest."""

Tokens = Callable[[ToolId], int]
T = TypeVar("T")


class Needs(NamedTuple):
    """What `Priors.order` knows of some tools before it is given a budget."""

    shares: dict[ToolId, float]
    """Each tool's expected share of the calls (`Priors.needs`)."""
    late: frozenset[ToolId]
    """The tools that come last: those that delete something, those of servers that are there to be tried, and second
    copies of a tool."""
    unnamed: frozenset[ToolId]
    """Those of them that are not named at all: all but those of servers that are there to be tried."""


class Weight(NamedTuple):
    """How much one tool is needed, judged by its definition alone."""

    score: float
    """The log of how much, up to a constant that all tools share."""
    deletes: bool
    is_test: bool = False
    """Whether it says that it is there to be tried."""


class Priors(Struct, frozen=True):
    """The content of `priors.json`: how much a tool is needed, judged by its definition before anything was learned."""

    fitted_on: str
    first: dict[str, float]
    """By feature, what it adds to the log-odds that a tool is needed."""
    size_penalty: float
    """How much the size of a tool counts against it in a list: at 0 not at all, at 1 as need per token."""

    def score(self, tool: Fields) -> float:
        """Return the log of how much a tool is needed, up to a constant that all tools share."""
        return sum(self.first.get(name, 0.0) * value for name, value in features(tool))

    def judge(self, tool: Fields, definition: bytes = b"") -> Weight:
        """Return how much a tool is needed, judged by its definition alone."""
        return Weight(self.score(tool), deed(tool) == "delete", _OF_TESTS.search(definition) is not None)

    def needs(self, tools: Sequence[Fields], weights: Sequence[Weight] | None = None) -> dict[ToolId, float]:
        """Return each tool's expected share of the calls. The shares add up to 1, and those of one server to its share
        of the tools, whatever it writes about them. `weights` is what `judge` returned for these tools."""
        found: dict[ToolId, float] = {}
        servers: dict[str, list[tuple[ToolId, float]]] = defaultdict(list)
        for tool, weight in zip(tools, weights or map(self.judge, tools), strict=True):
            servers[tool.upstream].append((tool.id, exp(weight.score)))
        for each in servers.values():
            share = len(each) / len(tools) / sum(need for _, need in each)
            found |= {tool: need * share for tool, need in each}
        return found

    def weigh(
        self, tools: Sequence[Fields], weights: Sequence[Weight] | None = None, copies: Collection[ToolId] = ()
    ) -> Needs:
        """Return what `order` needs to know of some tools; judging 500 takes 10 ms. `copies`: the tools that are the
        same as another one."""
        weights = weights or [self.judge(tool) for tool in tools]
        tried = _find_tried(tools, weights)
        deletes = (tool.id for tool, weight in zip(tools, weights, strict=True) if weight.deletes)
        unnamed = frozenset((*deletes, *copies))
        late = unnamed.union(tool.id for tool in tools if tool.upstream in tried)
        return Needs(self.needs(tools, weights), late, unnamed)

    def order(self, tools: Sequence[Fields], tokens: Tokens, budget: int, needs: Needs | None = None) -> list[ToolId]:
        """Sort tools as they compete for `budget` tokens of a list: one of each server first, equal tools by name.
        `needs` is what `weigh` returned for these tools."""
        # A model that has not been asked for it had better not see how to delete things.
        shares, late, _ = needs or self.weigh(tools)
        value = {tool: need / max(tokens(tool), 1) ** self.size_penalty for tool, need in shares.items()}
        upstreams = {tool.id: tool.upstream for tool in tools}
        most = int(_MOST_OF_ONE * budget)
        ranked = sorted(value, key=lambda tool: (tool in late, -value[tool], tool))
        leading = lead((tool for tool in ranked if tool not in late), upstreams, tokens, budget)
        return spread([*leading, *(tool for tool in ranked if tool not in leading)], upstreams, tokens, most)

    def order_names(self, tools: Sequence[Fields], needs: Needs | None = None) -> list[ToolId]:
        """Sort tools as they are named in a list, where all take about the same: one of each server after the other, so
        that each server has some that work together. Tools that delete and second copies are left out."""
        shares, late, unnamed = needs or self.weigh(tools)
        servers: dict[tuple[bool, str], list[ToolId]] = defaultdict(list)
        for tool in sorted(tools, key=lambda tool: (-shares[tool.id], tool.id)):
            if tool.id not in unnamed:
                servers[tool.id in late, tool.upstream].append(tool.id)
        turns = [[group for key, group in servers.items() if key[0] is is_late] for is_late in (False, True)]
        return [tool for groups in turns for tool in take_turns(groups, len(tools))]


def _find_tried(tools: Sequence[Fields], weights: Sequence[Weight]) -> set[str]:
    """Return the servers that are there to be tried, by their name or by what their tools say."""
    count = Counter(tool.upstream for tool in tools)
    tests = Counter(tool.upstream for tool, weight in zip(tools, weights, strict=True) if weight.is_test)
    return {
        name
        for name, number in count.items()
        if tests[name] >= _TEST_SHARE * number or not _TEST_NAMES.isdisjoint(in_words(name).split())
    }


def features(tool: Fields) -> Iterator[tuple[str, float]]:
    """Yield the features of a tool by name; each is 0 to about 2."""
    yield f"deed:{deed(tool)}", 1.0
    required = sum(tool.takes.values())
    yield "required", log1p(min(required, _MOST_REQUIRED))
    yield "none required", float(not required)
    yield "no parameters", float(not tool.takes)


def deed(tool: Fields) -> str:
    """Return the kind of deed that the first word of a tool's name says, such as "delete"; "none" if none."""
    if known := DEEDS.get(stem(tool.verb)):
        return known
    return min((DEEDS[noun] for noun in tool.nouns if noun in DEEDS), key=_RANK.__getitem__, default="none")


def lead(ranked: Iterable[ToolId], upstreams: Mapping[ToolId, str], tokens: Tokens, budget: int) -> dict[ToolId, None]:
    """Return the first tool of each server that fits its even share of a budget: a model that sees one tool of a server
    knows what the server is about."""
    share = budget / max(len(set(upstreams.values())), 1)
    found: dict[str, ToolId] = {}
    for tool in ranked:
        if tokens(tool) <= share:
            found.setdefault(upstreams[tool], tool)
    return dict.fromkeys(found.values())


def spread(ranked: Iterable[ToolId], upstreams: Mapping[ToolId, str], tokens: Tokens, most: int) -> list[ToolId]:
    """Move the tools with which a server would exceed `most` tokens behind all others, both in their order."""
    spent: Counter[str] = Counter()
    kept: list[ToolId] = []
    late: list[ToolId] = []
    for tool in ranked:
        spent[upstreams[tool]] += tokens(tool)
        (kept if spent[upstreams[tool]] <= most else late).append(tool)
    return kept + late


@cache
def shipped() -> Priors:
    return msgspec.json.decode(FILE.read_bytes(), type=Priors)


def take_turns(groups: Iterable[Iterable[T]], most: int) -> list[T]:
    """Return at most `most` members, one of each group after the other."""
    rounds = zip_longest(*groups, fillvalue=None)
    return list(islice((each for turn in rounds for each in turn if each is not None), most))
