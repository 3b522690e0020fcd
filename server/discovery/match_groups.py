"""Orders and groups matches that do the same: copies never push other tools, or the original, out of an answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import DecodeError, Raw, Struct
from msgspec.json import decode

from foretool.retrieval.glossary import put_into_english
from foretool.retrieval.rankers.deletions import asks_to_change, asks_to_delete
from foretool.retrieval.ranking import ALIKE, CLEARLY, IN_USE, USED, Ranked
from foretool.server.config.settings import Risk
from foretool.server.discovery.schemas import summarize
from foretool.storage.records import Level, Tool, ToolId

ALIKE_OF_ONE: Final = 4
"""So many tools of one server that say much the same stand before other servers' tools."""
_MUCH_ALIKE: Final = 0.5
"""Tools of one server that share this part of their words say much the same; figures in names do not count."""

Known = tuple[Tool, Ranked]
"""A match: a tool of the catalog, and its place in the ranking."""
Bits = tuple[int, int]
"""Words as one number with a bit for each, and how many they are: an answer compares each tool with all before it."""
WordsOf = Callable[[Tool], str | None]
"""Returns the words of a tool where they are kept (`retrieval.corpus`); None where its definition has to be read."""


def read_no_words(tool: Tool) -> None:
    """Return None, for every tool: its words are then read from its definition."""


class WordBits:
    """The words of the tools of one answer as bit sets, computed once and used by all comparisons."""

    def __init__(self, words_of: WordsOf = read_no_words) -> None:
        self._words_of = words_of
        self._bit_of: dict[str, int] = {}
        self._figures = 0
        """The bits of words that are figures."""
        self._known: dict[ToolId, Bits] = {}

    def of(self, tool: Tool) -> Bits:
        if (found := self._known.get(tool.id)) is None:
            found = self._known[tool.id] = self._as_bits(_words_of(tool, self._words_of))
        return found

    def without_figures(self, tool: Tool) -> Bits:
        words, count = self.of(tool)
        figures = words & self._figures
        return words ^ figures, count - figures.bit_count()

    def _as_bits(self, words: Collection[str]) -> Bits:
        bit_of, found = self._bit_of, 0
        for word in words:
            if (bit := bit_of.get(word)) is None:
                bit = bit_of[word] = 1 << len(bit_of)
                if word.isdigit():
                    self._figures |= bit
            found |= bit
        return found, len(words)


def thin(known: Sequence[Known], asked: int, wanted: int, words: WordBits | None = None) -> list[Known]:
    """Return the first `wanted` tools. If one server has many tools that say nearly the same, the surplus moves to the
    end, so that copies of a tool cannot push the original out of the answer. The first `asked` tools stay."""
    kept, surplus = list(known[:asked]), list[Known]()
    words = words or WordBits()
    said: dict[str, _Said] = {}
    for tool, ranked in known[asked:]:
        if len(kept) >= wanted:
            break
        if (own := said.get(tool.upstream)) is None:
            own = said[tool.upstream] = _Said(words)
        (surplus if own.says_too_often(tool) else kept).append((tool, ranked))
    return [*kept, *surplus][:wanted]


class _Said:
    """What the tools of one server have said so far, and how often each."""

    __slots__ = ("_said", "_times", "_unread", "_words")

    def __init__(self, words: WordBits) -> None:
        self._words = words
        self._said: list[Bits] = []
        self._times: list[int] = []
        self._unread: list[Tool] = []
        """The first tools, whose words are not needed before there are more than `ALIKE_OF_ONE`."""

    def says_too_often(self, tool: Tool) -> bool:
        """Record one more tool; return whether more than `ALIKE_OF_ONE` say much the same, this one included."""
        self._unread.append(tool)
        if not self._said and len(self._unread) <= ALIKE_OF_ONE:
            return False
        for each in self._unread:
            times = self._count(self._words.without_figures(each))
        self._unread.clear()
        return times > ALIKE_OF_ONE

    def _count(self, words: Bits) -> int:
        """Record the words of one more tool; return how many say much the same by now."""
        for at in _alike(self._said, words, _MUCH_ALIKE):
            self._times[at] += 1
            return self._times[at]
        self._said.append(words)
        self._times.append(1)
        return 1


def put_harmless_first(
    ranked: Sequence[Ranked], level: Level, task: str, risk_of: Callable[[ToolId], Risk | None]
) -> tuple[Ranked, ...]:
    """Return the ranking of a task that no tool surely meets, without a tool that deletes in front of one that does
    not, unless the task asks for that or the tool is clearly better. Where the level is low, no tool that says it
    changes something stands in front of one that only reads, unless the task begins with such a deed.

    `risk_of`: what is known of a tool, None where nobody says anything.
    """
    if level == "high" or not ranked:
        return tuple(ranked)
    first = risk_of(ranked[0].tool)
    task = put_into_english(task)
    if first == "destructive" and not asks_to_delete(task):
        harmless: tuple[Risk | None, ...] = ("read", "write", None)
    elif first == "write" and level == "low" and not asks_to_change(task):
        harmless = ("read",)
    else:
        return tuple(ranked)
    least = ranked[0].score / CLEARLY
    found = next((each for each in ranked[1:] if each.score >= least and risk_of(each.tool) in harmless), None)
    return tuple(ranked) if found is None else (found, *(each for each in ranked if each is not found))


def group(
    known: Sequence[Known], asked: int, count_older: Callable[[ToolId], int], pins: Collection[ToolId] = (),
    reads: Callable[[Tool], bool] = lambda tool: False, words: WordBits | None = None,
) -> tuple[list[Known], dict[ToolId, ToolId]]:  # fmt: skip
    """Group tools that do the same: those of several servers that say nearly the same, and one server's two names of a
    tool. Return the new order, and for each tool that need not be described the one that it is like. The first `asked`
    tools are not grouped.

    A tool whose score is clearly better (`CLEARLY`) stays first: the task means it. Of the others the one that the user
    has chosen stands first: a pin, then the one whose server is in use, then the one that was used before. Where nobody
    has chosen, it is the one that was there first: a newer one of another server may be a copy made to take its place.
    Only where a newer one stands first are both described. Of two names of one server the one that only reads (`reads`)
    stands first.
    """
    order = list(known)
    like: dict[ToolId, ToolId] = {}
    words = words or WordBits()
    said = [words.of(tool) for tool, _ in order]  # by place, as `order`

    def chosen(tool: Tool, ranked: Ranked) -> tuple[bool, bool, bool]:
        return tool.id in pins, IN_USE in ranked.reasons, USED in ranked.reasons

    for place in range(asked, len(order)):
        tool, ranked = order[place]
        for first in _alike(said[:place], said[place], ALIKE, asked):
            other, other_ranked = order[first]
            if other.id in like or not _do_the_same(other, tool):
                continue
            is_own = other.upstream == tool.upstream
            is_older = reads(tool) > reads(other) if is_own else count_older(tool.id) < count_older(other.id)
            ours, theirs = chosen(tool, ranked), chosen(other, other_ranked)
            is_near = other_ranked.score < CLEARLY * ranked.score
            leads = is_near and (ours > theirs or (is_older and ours == theirs))
            if leads:
                order.insert(first, order.pop(place))
                said.insert(first, said.pop(place))
            # What a newer server says never stands for what an older one does.
            if is_own or leads == is_older:
                leader, follower = (tool, other) if leads else (other, tool)
                like = {one: leader.id if its == follower.id else its for one, its in like.items()}
                like[follower.id] = leader.id
            if leads or tool.id in like:
                break
    return order, like


def twin_servers(first: Tool, others: Sequence[Tool], words: WordBits) -> list[str]:
    """Return the servers of a tool and of those that do the same on other servers, in the order of the tools; [] if
    there are no others."""
    said = words.of(first)
    others = [tool for tool in others if tool.upstream != first.upstream]
    alike = _alike([words.of(tool) for tool in others], said, ALIKE)
    found = list(dict.fromkeys(others[place].upstream for place in alike))
    return [first.upstream, *found] if found else []


def fold_twins(known: Sequence[Known], like: Mapping[ToolId, ToolId]) -> tuple[list[Known], dict[ToolId, list[Known]]]:
    """Return the tools that are shown for themselves, and by the tool that is described those that are only named
    beside it. The best tool of another server stays for itself: a server that was there first must not fold away the
    one tool that the user means."""
    upstreams = {tool.id: tool.upstream for tool, _ in known}
    rivalled: set[ToolId] = set()
    shown: list[Known] = []
    folded: dict[ToolId, list[Known]] = {}
    for tool, ranked in known:
        leader = like.get(tool.id)
        is_rival = leader is not None and leader not in rivalled and upstreams[leader] != tool.upstream
        if leader is None or is_rival:
            shown.append((tool, ranked))
        else:
            folded.setdefault(leader, []).append((tool, ranked))
        if leader is not None and is_rival:
            rivalled.add(leader)
    return shown, folded


def _do_the_same(one: Tool, other: Tool) -> bool:
    """Return whether two tools that say the same also do: tools of one server only if everything but the name is alike,
    because a server has tools that differ in one word."""
    return one.upstream != other.upstream or _body(one.definition) == _body(other.definition)


class _Body(Struct, frozen=True):
    description: str = ""
    inputSchema: Raw = Raw(b"{}")


@lru_cache(maxsize=1024)
def _body(definition: bytes) -> tuple[str, bytes]:
    try:
        found = decode(definition, type=_Body)
    except (DecodeError, UnicodeDecodeError):
        return "", definition  # like no other tool
    return found.description, bytes(found.inputSchema)


def _alike(said: Sequence[Bits], words: Bits, part: float, first: int = 0) -> Iterator[int]:
    """Yield the places, from `first` on, whose words share at least this part of all words with these."""
    bits, count = words
    for at in range(first, len(said)):
        other, size = said[at]
        if count >= part * size and size >= part * count:  # else too few words can be shared
            shared = (bits & other).bit_count()
            if shared >= part * (count + size - shared) > 0:
                yield at


def _words_of(tool: Tool, words_of: WordsOf) -> Collection[str]:
    """Return the words of a tool, each once."""
    kept = words_of(tool)
    return kept.split() if kept is not None else _words(tool.definition, tool.name, tool.upstream)


@lru_cache(maxsize=1024)
def _words(definition: bytes, name: str, upstream: str) -> frozenset[str]:
    from foretool.retrieval.words import own_terms

    return own_terms(name, summarize(definition), upstream)
