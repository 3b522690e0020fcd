"""Instruction fragments: texts that say how to work, cut into chunks that can be found and shown alone (ITR 3.2).

A chunk has 200 to 600 tokens where its text lets it: it begins at a heading, short sections are joined with the next,
long ones are cut between paragraphs, sentences, words. Its id names the place it came from and survives an edit of its
text; its digest names the text, so that caches notice the edit. Chunks are ranked by words alone, and skills by the
meaning of their names and descriptions, and a little by words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from heapq import nlargest
from math import ceil
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval.document import Document
from foretool.retrieval.rankers.bm25 import Lexical, weigh_terms
from foretool.retrieval.tokens import estimate
from foretool.storage.records import ToolId

if TYPE_CHECKING:
    from foretool.retrieval.model_format import Floats

_LEAST: Final = 200
_MOST: Final = 540
"""Tokens of a chunk (ITR 3.2: 200 to 600), as estimated, which may be a tenth too few."""

Priority = Literal["safety", "policy", "guidance", "example"]
PRIORITIES: Final[tuple[Priority, ...]] = ("safety", "policy", "guidance", "example")
"""The order in a prompt; `safety` is the overlay, which is always on (ITR 3.6)."""

_BACKGROUND: Final = 20
"""The fewest fragments or skills that the idf of a word assumes: among two, every word would tell little."""


class Fragment(Struct, frozen=True):
    """One chunk of instructions."""

    id: str
    """`source#heading`, with a number from the second chunk under a heading on."""
    source: str
    """Its author in words: `file style.md`, `server github`, `prompt github__review`."""
    text: str
    priority: Priority = "guidance"
    upstream: str = ""
    """The server it came from; "" for the user's own files, which alone can be policy or safety."""
    tokens: int = 0
    digest: str = ""
    """16 hex digits over the words of its text."""


class Hit(Struct, frozen=True):
    """A fragment that was found, and how well it fits."""

    fragment: Fragment
    relevance: float
    """0 to 1: the share of what the query says, weighed by how much each word tells, that the fragment has."""


# Cutting


def fragments(text: str, source: str, priority: Priority = "guidance", upstream: str = "") -> list[Fragment]:
    """Cut one text into fragments, in its order; [] for an empty text."""
    seen: Counter[str] = Counter()
    found = []
    for heading, chunk in text_chunks(text):
        place = f"{source}#{heading_slug(heading)}" if heading_slug(heading) else source
        seen[place] += 1
        id = place if seen[place] == 1 else f"{place}-{seen[place]}"
        found.append(Fragment(id, source, chunk, priority, upstream, estimate(chunk), digest(chunk)))
    return found


def text_chunks(text: str) -> list[tuple[str, str]]:
    """Return the heading and the text of each chunk: at most `_MOST` tokens, at least `_LEAST` if a neighbour can be
    joined."""
    sections = ((heading, piece) for heading, section in _sections(text) for piece in _cut(section))
    pieces = (_Piece(heading, [piece], estimate(piece) + 1) for heading, piece in sections)
    forward = _joined(pieces, lambda last, _: last.tokens < _LEAST)
    # A chunk that is still short stands before one that is too long to take it in, so it joins the one before.
    joined = _joined(forward, lambda _, piece: piece.tokens < _LEAST)
    return [(piece.heading, piece.text) for piece in joined]


class _Piece(Struct):
    """A chunk in the making."""

    heading: str
    parts: list[str]
    tokens: int
    """The sum over its parts, so that none is counted twice, with one more for each for what joins them."""
    between: str = "\n\n"
    """The text between it and the piece before."""

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def add(self, other: _Piece) -> None:
        self.parts += [other.between, *other.parts]
        self.tokens += other.tokens


def _joined(pieces: Iterable[_Piece], wanted: Callable[[_Piece, _Piece], bool]) -> list[_Piece]:
    """Join neighbours if the two are `wanted` together and have at most `_MOST` tokens."""
    joined: list[_Piece] = []
    for piece in pieces:
        if joined and wanted(joined[-1], piece) and joined[-1].tokens + piece.tokens <= _MOST:
            joined[-1].add(piece)
        else:
            joined.append(piece)
    return joined


def heading_slug(heading: str) -> str:
    """Return the words of a heading in lower case, joined by `-`."""
    return "-".join(re.findall(r"\w+", heading.lower()))[:60]


def digest(text: str) -> str:
    """Hash the words of a text; other spaces and line breaks do not change it."""
    return blake2b(" ".join(text.split()).encode("utf-8", "replace"), digest_size=8).hexdigest()


def unique(found: Iterable[Fragment]) -> list[Fragment]:
    """Keep each text once (ITR 12, chunk hygiene), where its priority is highest; of equals the first."""
    kept: dict[str, Fragment] = {}
    for fragment in found:
        known = kept.get(fragment.digest)
        if known is None or rank(fragment) < rank(known):
            kept[fragment.digest] = fragment
    return list(kept.values())


def is_overlay(fragment: Fragment) -> bool:
    """Return whether a fragment is always on (ITR 3.6); the words of a server never are."""
    return fragment.priority == "safety" and not fragment.upstream


def rank(fragment: Fragment) -> int:
    """Return a fragment's place by priority; 0 is the most important."""
    return PRIORITIES.index(fragment.priority)


def fit_fragment(fragment: Fragment, tokens: int) -> Fragment | None:
    """Fit a fragment into `tokens`: the whole, else a marked beginning; None if not even a sentence fits."""
    if fragment.tokens <= tokens:
        return fragment
    kept = ""
    for between, unit in _units(fragment.text):
        longer = f"{kept}{between}{unit}" if kept else unit
        if estimate(longer + " […]") > tokens:
            break
        kept = longer
    if not kept:
        return None
    cut = kept + " […]"
    return replace(fragment, text=cut, tokens=estimate(cut))


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """Split off the `key: value` lines between two `---` lines at the beginning of a file."""
    matched = re.match(r"---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?", text, re.DOTALL | re.MULTILINE)
    if matched is None:
        return {}, text
    pairs = (line.partition(":") for line in matched[1].splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}, text[matched.end() :]


_HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*$")
_FENCE = re.compile(r"\s*(```|~~~)")
_SENTENCE = re.compile(r"(?<=[.!?])(?<!\d\.)\s+")  # not after the number of a list


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield the heading and the text of each section, heading line included; fenced code has no headings."""
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


def _cut(section: str) -> Iterator[str]:
    """Cut a section into pieces of about the same size, none over `_MOST` tokens."""
    size = estimate(section)
    if size <= _MOST:
        yield section
        return
    # Equal parts rather than full ones and a rest.
    size_of_piece = ceil(size / ceil(size / _MOST))
    # Long paragraphs are cut by line, then by sentence, then by word.
    ways = (("\n", str.splitlines), (" ", _SENTENCE.split))
    paragraphs = filter(str.strip, re.split(r"\n\s*\n", section))
    kept: _Piece | None = None
    for between, block in (found for paragraph in paragraphs for found in _smaller("\n\n", paragraph, ways)):
        piece = _Piece("", [block], estimate(block) + 1, between)
        if kept is None:
            kept = piece
        elif (
            kept.tokens + piece.tokens - size_of_piece > size_of_piece - kept.tokens
            or kept.tokens + piece.tokens > _MOST
        ):
            yield kept.text
            kept = piece
        else:
            kept.add(piece)
    if kept is not None:
        yield kept.text


def _smaller(
    between: str, text: str, ways: Sequence[tuple[str, Callable[[str], list[str]]]]
) -> Iterator[tuple[str, str]]:
    """Yield the whole text, or its parts by the first way of cutting that makes them short enough; each with the text
    that stands before it."""
    if estimate(text) <= _MOST:
        yield between, text
    elif not ways:
        yield from ((" ", piece) for piece in _words(text))
    else:
        (inner, cut), *others = ways
        for number, part in enumerate(filter(str.strip, cut(text))):
            yield from _smaller(inner if number else between, part, others)


def _words(unit: str) -> Iterator[str]:
    """Cut a text without sentences where the tokens are full; one endless word by its characters."""
    parts = ceil(estimate(unit) / _MOST) + 1
    size = max(len(unit) // parts, 1)
    start = 0
    while start < len(unit):
        end = start + size
        if end < len(unit) and (space := unit.rfind(" ", start + 1, end)) > start:
            end = space
        if piece := unit[start:end].strip():
            yield piece
        start = end


def _units(text: str) -> Iterator[tuple[str, str]]:
    """Yield the sentences, each with the text before it."""
    for line in filter(str.strip, text.splitlines()):
        for number, sentence in enumerate(filter(str.strip, _SENTENCE.split(line))):
            yield " " if number else "\n", sentence


# Finding


class FragmentIndex:
    """Searches fragments by words. Fragments are few, so a change of one makes another index."""

    def __init__(self, found: Sequence[Fragment] = ()) -> None:
        self.fragments = tuple(found)
        self._lexical = Lexical(wide=0)
        for fragment in self.fragments:
            self._lexical.add(
                Document(ToolId(fragment.id), fragment.upstream, heading_slug(fragment.id), "", fragment.text)
            )

    def find(self, lines: Sequence[str], limit: int = 20) -> list[Hit]:
        """Return the fragments that fit any line of a query, best first; each shares a word with it."""
        best: dict[int, tuple[float, float]] = {}
        for line in lines if self.fragments else ():
            wanted = weigh_terms(line)
            hits = self._lexical.search(wanted)
            for slot in nlargest(2 * limit, hits, key=hits.__getitem__):
                score = hits[slot]
                best[slot] = max((self._lexical.coverage(wanted, slot, _BACKGROUND), score), best.get(slot, (0.0, 0.0)))
        order = sorted(best, key=lambda slot: (-best[slot][0], -best[slot][1], slot))[:limit]
        return [Hit(self.fragments[slot], best[slot][0]) for slot in order]


# Skills. They are few and long-winded beside tools: a description says what the skill does and when to use it. So the
# cosine decides, and the share of the task's words that a skill has settles near ties (`python -m
# bench.retrieval.skills`). Without vectors that share alone decides.


_MOST_SKILLS: Final = 3
"""So many skills are shown at most."""
_WORDS: Final = 0.1
"""What all words of a task count beside the cosine."""
_APPLIES: Final = 0.33
"""A skill fits from this score on. Unrelated texts have cosines of .1 to .25 with the encoder that ships."""
_BEHIND: Final = 0.1
"""A skill that is this much behind the best one is not shown."""
_APPLIES_BY_WORDS: Final = 0.5
"""Without vectors: the least share of a task's words, weighed by how much each tells."""


def skill_text(name: str, description: str) -> str:
    """Return what an encoder reads of a skill."""
    return f"{name.replace('-', ' ')}: {' '.join(description.split())}"


class SkillRanking:
    def __init__(self, skills: Sequence[tuple[str, str]]) -> None:
        """`skills`: name and description of each."""
        self.texts = [skill_text(name, description) for name, description in skills]
        self._lexical = Lexical(wide=0)
        for place, (name, description) in enumerate(skills):
            self._lexical.add(Document(ToolId(str(place)), "", name, "", description))

    def find(
        self, tasks: Sequence[str], queries: Sequence[Floats] = (), vectors: Mapping[str, Floats] | None = None
    ) -> list[int]:
        """Return the places of the skills that fit one of the texts of a task, best first. `queries`: the vectors of
        these texts; `vectors`: those of skills, by text."""
        known = vectors or {}
        best: dict[int, tuple[bool, float]] = {}
        for at, task in enumerate(tasks):
            words = weigh_terms(task)
            for place, text in enumerate(self.texts):
                share = self._lexical.coverage(words, place, _BACKGROUND)
                if at < len(queries) and text in known:
                    score, least = float(queries[at] @ known[text]) + _WORDS * share, _APPLIES
                else:
                    score, least = share, _APPLIES_BY_WORDS
                best[place] = max((score >= least, score), best.get(place, (False, 0.0)))
        fitting = sorted((-score, place) for place, (fits, score) in best.items() if fits)
        return [place for score, place in fitting[:_MOST_SKILLS] if -score >= -fitting[0][0] - _BEHIND]
