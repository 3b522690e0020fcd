"""The words of all tools as one piece of bytes, of which a process reads only what the words of one prompt need.

A prompt waits for its hook, and reading the definitions of thousands of tools takes long. So a process that has
indexed them writes down, for each term, which tools have it and how much of the term's worth each tool gets (BM25F,
`rankers/bm25`, in 255 steps). Terms are found by halves; nothing else is decoded.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from struct import Struct
from typing import TYPE_CHECKING, Final

from foretool.retrieval.corpus import Corpus, ToolIdentity
from foretool.retrieval.document import document, summary_line
from foretool.retrieval.rankers.bm25 import Impacts, Lexical, idf, pick_rare
from foretool.retrieval.words import own_terms

if TYPE_CHECKING:
    from collections.abc import Generator

    from foretool.storage.records import Tool

_MAGIC: Final = f"words 1 {sys.byteorder}".encode().ljust(16)
"""The form, and the order of bytes: a table from another machine is none."""
_STEPS: Final = 255
_MOST_TERMS: Final = 40
"""How many words of a prompt are looked up, those that tell most."""
_AT_ONCE: Final = 2_000
"""About how many places of terms one step writes, in a millisecond or two."""
_HEAD: Final = Struct("=16sIIII")
_PLACE: Final = 4
"""Bytes of a slot, and of a place in the bytes."""


def pack_table(
    impacts: Iterator[tuple[str, Impacts]], tools: Sequence[bytes], live: int
) -> Generator[None, None, bytes]:
    """Return the table, in steps: what every term is worth, and by slot what the reader knows a tool by (b"" where a
    tool was dropped), of which `live` are there."""
    found: dict[bytes, tuple[array[int], bytes]] = {}
    written = 0
    for term, each in impacts:
        if each.slots:
            shares = bytes(min(round(_STEPS * value / each.idf), _STEPS) for value in each.values)
            found[term.encode("utf-8", "replace")] = each.slots, shares
        written += 1 + len(each.slots)
        if written > _AT_ONCE:
            written = 0
            yield
    terms = sorted(found)
    yield
    slots, worth = array("I"), bytearray()
    begins = array("I", [0])
    for at, name in enumerate(terms):
        slots += found[name][0]
        worth += found[name][1]
        begins.append(len(slots))
        if at % _AT_ONCE == 0:
            yield
    head = _HEAD.pack(_MAGIC, live, len(tools), len(terms), len(slots))
    return b"".join((
        head, _starts(tools), _starts(terms), begins.tobytes(), slots.tobytes(), bytes(worth), *tools, *terms,
    ))  # fmt: skip


def _starts(parts: Sequence[bytes]) -> bytes:
    """Return where each part begins behind the others, and the end."""
    at, starts = 0, array("I", [0])
    for part in parts:
        at += len(part)
        starts.append(at)
    return starts.tobytes()


class WordTable:
    """Reads a table that `pack_table` has made, without decoding all of it."""

    def __init__(self, data: bytes) -> None:
        """Raises `ValueError` for anything else."""
        if len(data) < _HEAD.size:
            raise ValueError(f"table of words: {len(data)} bytes, its head alone has {_HEAD.size}")
        magic, self.live, tools, terms, postings = _HEAD.unpack_from(data)
        sizes = [_PLACE * (tools + 1), _PLACE * (terms + 1), _PLACE * (terms + 1), _PLACE * postings, postings]
        if magic != _MAGIC or len(data) < _HEAD.size + sum(sizes):
            raise ValueError(f"table of words: {len(data)} bytes that begin with {magic!r} are none")
        view, at = memoryview(data), _HEAD.size
        parts = []
        for size in sizes:
            parts.append(view[at : at + size])
            at += size
        self._tools, self._terms, self._begins, self._slots = (part.cast("I") for part in parts[:4])
        self._shares = parts[4]
        self._tool_bytes = view[at : at + self._tools[tools]]
        self._term_bytes = view[at + self._tools[tools] :]
        if len(self._term_bytes) != self._terms[terms] or self._begins[terms] != postings:
            raise ValueError("table of words: it is cut off")
        self._count = terms

    def tool(self, slot: int) -> bytes:
        """Return the bytes that `pack_table` was given for the tool in a slot."""
        return bytes(self._tool_bytes[self._tools[slot] : self._tools[slot + 1]])

    def having(self, term: str) -> tuple[memoryview, memoryview]:
        """Return the slots of the tools that have a term, and how much it counts in each, 1 to `_STEPS`."""
        wanted = term.encode("utf-8", "replace")
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self._term_bytes[self._terms[middle] : self._terms[middle + 1]].tobytes() < wanted:
                low = middle + 1
            else:
                high = middle
        if low == self._count or self._term_bytes[self._terms[low] : self._terms[low + 1]] != wanted:
            return self._slots[:0], self._shares[:0]
        span = slice(self._begins[low], self._begins[low + 1])
        return self._slots[span], self._shares[span]

    def best(self, said: Mapping[str, float], near: Mapping[str, float]) -> list[int]:
        """Return the slots that have any of these weighted terms, best first. `near`: terms that mean nearly the same.
        Chooses the terms that take part by the same rules as the ranker."""
        having = {term: self.having(term) for term in [*said, *near]}
        counts = {term: len(slots) for term, (slots, _) in having.items()}
        wanted = {term: weight * idf(self.live, counts[term]) for term, weight in said.items() if counts[term]}
        wanted = {term: wanted[term] for term in nlargest(_MOST_TERMS, wanted, key=wanted.__getitem__)}
        rare = pick_rare(near, {term: counts[term] for term in near}, self.live)
        wanted |= {term: near[term] * idf(self.live, counts[term]) for term in rare if term not in wanted}
        scores: dict[int, float] = {}
        so_far = scores.get
        for term, worth in wanted.items():
            step = worth / _STEPS
            for slot, share in zip(*having[term], strict=True):
                scores[slot] = so_far(slot, 0.0) + step * share
        return sorted(scores, key=scores.__getitem__, reverse=True)


class TableLexical(Lexical):
    """Scores a few tools of a table, with the rarity of terms taken from the whole catalog."""

    def __init__(self, table: WordTable, slots: Sequence[int]) -> None:
        """`slots` ascend; the first one is slot 0 here."""
        super().__init__()
        self.live = table.live
        self._table = table
        self._number = {slot: number for number, slot in enumerate(slots)}
        self._known: dict[str, Impacts | None] = {}

    def impacts(self, term: str) -> Impacts | None:
        if term not in self._known:
            self._known[term] = self._read(term)
        return self._known[term]

    def _read(self, term: str) -> Impacts | None:
        slots, shares = self._table.having(term)
        if not slots:
            return None
        worth, number = idf(self.live, len(slots)), self._number
        found = [(number[slot], share) for slot, share in zip(slots, shares, strict=True) if slot in number]
        values = array("f", [worth * share / _STEPS for _, share in found])
        return Impacts(array("I", [at for at, _ in found]), values, worth, len(slots))


class TableCorpus(Corpus):
    """A corpus of a few tools of a table, for ranking without their definitions."""

    def __init__(self, table: WordTable, tools: Mapping[int, Tool]) -> None:
        """`tools`: their ids by their slots in the table."""
        super().__init__()
        slots = sorted(tools)
        self.lexical = TableLexical(table, slots)
        self._tools = [tools[slot] for slot in slots]
        for number, tool in enumerate(self._tools):
            self.names.add(number, tool.upstream, tool.name, tool.id)
            self.deeds.add(number, tool.upstream, tool.name)
            self.ids.append(tool.id)
            self.slot_of[tool.id] = number
            self.slots_of[tool.upstream] = (*self.slots_of.get(tool.upstream, ()), number)
        self.version += 1

    def identity(self, slot: int) -> ToolIdentity:
        tool = self._tools[slot]
        return ToolIdentity(tool.upstream, tool.name, own_terms(tool.name, summary_line(document(tool)), tool.upstream))
