"""Instruction fragments: texts that say how to work, cut into chunks that can be found and shown alone (ITR 3.2).

A chunk has 200 to 600 tokens where its text lets it: it begins at a heading, short sections are joined with the next,
long ones are cut between paragraphs, sentences, words. Its id names the place it came from and survives an edit of its
text; its digest names the text, so that caches notice the edit. Ranking is by words: fragments are few, and the share
of a query that one of them covers has a scale of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from heapq import nlargest
from math import ceil
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval.document import Document
from foretool.retrieval.rankers.lexical import SAID, Lexical, idf, weighted
from foretool.retrieval.tokens import estimate
from foretool.storage.records import ToolId

LEAST: Final = 200
MOST: Final = 560
"""Tokens of a chunk (ITR 3.2: 200 to 600), as estimated, which may be some hundredths too few."""

Priority = Literal["safety", "policy", "guidance", "example"]
PRIORITIES: Final[tuple[Priority, ...]] = ("safety", "policy", "guidance", "example")
"""In the order in which a prompt has them; `safety` is the overlay, which is always on (ITR 3.6)."""

BACKGROUND: Final = 20
"""Fragments that a shelf has at least, as far as a word's worth goes: among two, every word would tell little."""

Count = Callable[[str], int]


class Fragment(Struct, frozen=True):
    """One chunk of instructions."""

    id: str
    """`source#heading`, with a number from the second chunk under a heading on."""
    source: str
    """Who wrote it, in words: `file style.md`, `server github`, `prompt github__review`."""
    text: str
    priority: Priority = "guidance"
    upstream: str = ""
    """The server it came from; "" for the user's own files, which alone can be policy or safety."""
    tokens: int = 0
    digest: str = ""
    """16 hex digits over the words of its text."""


class Hit(Struct, frozen=True):
    """A fragment and how well it fits a query."""

    fragment: Fragment
    relevance: float
    """0 to 1: the share of what the query says, weighed by how much each word tells, that the fragment has."""


# Cutting


def fragments(
    text: str, source: str, priority: Priority = "guidance", upstream: str = "", count: Count = estimate
) -> list[Fragment]:
    """The chunks of one text, in its order; [] for one that says nothing."""
    seen: Counter[str] = Counter()
    found = []
    for heading, chunk in chunks(text, count):
        place = f"{source}#{slug(heading)}" if slug(heading) else source
        seen[place] += 1
        id = place if seen[place] == 1 else f"{place}-{seen[place]}"
        found.append(Fragment(id, source, chunk, priority, upstream, count(chunk), digest(chunk)))
    return found


def chunks(text: str, count: Count = estimate, least: int = LEAST, most: int = MOST) -> list[tuple[str, str]]:
    """Heading and text of each chunk: at most `most` tokens, and at least `least` where there is more to join it to."""
    pieces: list[tuple[str, str]] = []
    for heading, section in _sections(text):
        pieces += ((heading, piece) for piece in _cut(section, count, most))
    forward = _joined(pieces, lambda last, _: count(last) < least, count, most)
    # What is still short stands before something too long to take in: it goes to what stands before it.
    return _joined(forward, lambda _, piece: count(piece) < least, count, most)


def _joined(
    pieces: Iterable[tuple[str, str]], wanted: Callable[[str, str], bool], count: Count, most: int
) -> list[tuple[str, str]]:
    """Neighbours as one where that is `wanted` of the two and no more than `most` tokens."""
    joined: list[tuple[str, str]] = []
    for heading, piece in pieces:
        if joined and wanted(joined[-1][1], piece):
            first, last = joined[-1]
            if count(both := f"{last}\n\n{piece}") <= most:
                joined[-1] = (first, both)
                continue
        joined.append((heading, piece))
    return joined


def slug(heading: str) -> str:
    """Words of a heading, in lower case, joined by `-`."""
    return "-".join(re.findall(r"\w+", heading.lower()))[:60]


def digest(text: str) -> str:
    """Of the words: other spaces and line breaks make no other text."""
    return blake2b(" ".join(text.split()).encode("utf-8", "replace"), digest_size=8).hexdigest()


def unique(found: Iterable[Fragment]) -> list[Fragment]:
    """Each text once (ITR 12, chunk hygiene), from where it counts most; of equals the first."""
    kept: dict[str, Fragment] = {}
    for fragment in found:
        known = kept.get(fragment.digest)
        if known is None or rank(fragment) < rank(known):
            kept[fragment.digest] = fragment
    return list(kept.values())


def is_overlay(fragment: Fragment) -> bool:
    """Whether it is always on (ITR 3.6); no server can make its own words so."""
    return fragment.priority == "safety" and not fragment.upstream


def rank(fragment: Fragment) -> int:
    """Its place by policy priority, 0 first."""
    return PRIORITIES.index(fragment.priority)


def fitting(fragment: Fragment, tokens: int, count: Count = estimate) -> Fragment | None:
    """The fragment, or its beginning if only that fits, which then says so; None where not even a line fits."""
    if fragment.tokens <= tokens:
        return fragment
    kept = ""
    for unit in _units(fragment.text):
        longer = f"{kept} {unit}".strip() if kept and "\n" not in unit else f"{kept}\n{unit}".strip()
        if count(longer + " […]") > tokens:
            break
        kept = longer
    if not kept:
        return None
    cut = kept + " […]"
    return replace(fragment, text=cut, tokens=count(cut))


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """The `key: value` lines between two `---` lines at the beginning of a file, and what follows them."""
    matched = re.match(r"---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?", text, re.DOTALL | re.MULTILINE)
    if matched is None:
        return {}, text
    pairs = (line.partition(":") for line in matched[1].splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}, text[matched.end() :]


_HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*$")
_FENCE = re.compile(r"\s*(```|~~~)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n")


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Heading and text, heading line included; what is fenced off as code has no headings."""
    heading, lines, fenced = "", list[str](), False
    for line in text.splitlines():
        fenced ^= bool(_FENCE.match(line))
        found = None if fenced else _HEADING.match(line)
        if found is not None:
            if "".join(lines).strip():
                yield heading, "\n".join(lines).strip()
            heading, lines = found[1], []
        lines.append(line)
    if "".join(lines).strip():
        yield heading, "\n".join(lines).strip()


def _cut(section: str, count: Count, most: int) -> Iterator[str]:
    """A section in pieces of about one size, none over `most` tokens."""
    size = count(section)
    if size <= most:
        yield section
        return
    # Equal parts rather than full ones and a rest.
    aim = ceil(size / ceil(size / most))
    kept = ""
    for block in _blocks(section, count, most):
        longer = f"{kept}\n\n{block}" if kept else block
        if kept and (count(longer) > most or count(longer) - aim > aim - count(kept)):
            yield kept
            kept = block
        else:
            kept = longer
    if kept:
        yield kept


def _blocks(section: str, count: Count, most: int) -> Iterator[str]:
    """Paragraphs; those that are too long by sentence or line, those still too long by word."""
    for block in filter(str.strip, re.split(r"\n\s*\n", section)):
        if count(block) <= most:
            yield block
            continue
        for unit in filter(str.strip, _SENTENCE.split(block)):
            yield from [unit] if count(unit) <= most else _words(unit, count, most)


def _words(unit: str, count: Count, most: int) -> Iterator[str]:
    """A text without an end, cut where the tokens are full; one endless word by its characters."""
    parts = ceil(count(unit) / most) + 1
    size = max(len(unit) // parts, 1)
    start = 0
    while start < len(unit):
        end = start + size
        if end < len(unit) and (space := unit.rfind(" ", start + 1, end)) > start:
            end = space
        if piece := unit[start:end].strip():
            yield piece
        start = end


def _units(text: str) -> list[str]:
    return [unit for unit in _SENTENCE.split(text) if unit.strip()]


# Finding


class Shelf:
    """Fragments that can be searched. Made anew when one of them changes: they are few."""

    def __init__(self, found: Sequence[Fragment] = ()) -> None:
        self.fragments = tuple(found)
        self._lexical = Lexical()
        for fragment in self.fragments:
            self._lexical.add(Document(ToolId(fragment.id), fragment.upstream, slug(fragment.id), "", fragment.text))

    def find(self, lines: Sequence[str], limit: int = 20) -> list[Hit]:
        """The best for any line of a query, best first; only fragments that share a word with it."""
        best: dict[int, tuple[float, float]] = {}
        for line in lines:
            wanted = weighted(line)
            hits = self._lexical.hits(self._lexical.telling(wanted))
            for slot in nlargest(2 * limit, hits, key=hits.__getitem__):
                score = hits[slot]
                best[slot] = max((self._coverage(wanted, slot), score), best.get(slot, (0.0, 0.0)))
        order = sorted(best, key=lambda slot: (-best[slot][0], -best[slot][1], slot))[:limit]
        return [Hit(self.fragments[slot], best[slot][0]) for slot in order]

    def _coverage(self, wanted: dict[str, float], slot: int) -> float:
        mass = met = 0.0
        total = max(self._lexical.live, BACKGROUND)
        for term, weight in wanted.items():
            if weight >= SAID:
                impacts = self._lexical.impacts(term)
                worth = weight * idf(total, len(impacts.slots) if impacts else 0)
                mass += worth
                met += worth if impacts and impacts.of(slot) else 0.0
        return met / mass if mass else 0.0
