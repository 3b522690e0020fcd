"""Fielded BM25 (BM25F: Robertson, Zaragoza, Taylor 2004, "Simple BM25 extension to multiple weighted fields").

For a term t and a tool d:  w(t, d) = sum over fields f of  weight_f * tf_f / (1 - b_f + b_f * len_f / mean len_f)
score(d) = sum over the query's terms of  q(t) * idf(t) * w / (k1 + w),  q(t) = 1 + 0.5 ln(times t is asked for)
idf(t) = ln(1 + (N - n + 0.5) / (n + 0.5)) with n of N tools that have t in any field.

Plain Python on purpose: importing numpy costs a serving process more time and memory than this whole index
(`docs/decisions/0002-lexical-engine.md`). A change of the corpus discards what it makes stale; a term is computed again
when it is next searched. So adding one server to hundreds costs that server alone.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import repeat
from math import log

from msgspec import Struct

from foretool.retrieval.document import Document, english_words, wording_words
from foretool.retrieval.glossary import is_unspaced, put_into_english, translated
from foretool.retrieval.words import GET, KINDRED, is_question, terms

_K1 = 1.2
KINDRED_WEIGHT = 0.3
"""What a verb counts that means the same as a verb of the query, or that a question stands for; .2 to .4 do equally
well."""
WRITTEN_WEIGHT = 0.9
"""What a word of another language, or a character of it, counts beside its English."""
_MAX_TERMS = 40
_LEAST_TELLING = 0.1
"""Terms that tell less than this share of the best one are left out (`docs/benchmarks.md`)."""
_MOST_NEAR = 6
"""How many terms take part that a query does not have (`near_words`)."""
_FEW, _FEWEST = 0.05, 3
"""Such a term counts only if at most this share of the tools has it, or so many: else it tells little."""
_MET = 0.5
"""Words that meet this share of what a query tells count in full beside encoders."""
_RARE_TERMS = 3
"""A query is held to tell at most as much as so many terms that one tool has: no tool meets most of a long one."""
SAID = 1.0
"""The least weight of a term that the query itself has."""


class Field(Struct, frozen=True):
    """How much a term in one part of a tool counts, and how much the length of that part counts against it."""

    weight: float
    b: float


_NAME = Field(3.0, 0.3)
_SERVER = Field(1.0, 0.3)
_DESCRIPTION = Field(1.0, 0.75)
_PARAMETERS = Field(1.0, 0.75)
_PARAMETER_TEXTS = Field(0.3, 0.75)
_SERVER_TEXT = Field(0.5, 0.75)
_WORDINGS = Field(0.3, 0.75)
"""Less than a description: a language model wrote them (`docs/benchmarks.md`)."""
_ENGLISH = Field(0.7, 0.75)
"""What a tool says in another language, in English words (`glossary`); less than what it says itself."""
FIELDS = (_NAME, _SERVER, _DESCRIPTION, _PARAMETERS, _PARAMETER_TEXTS, _SERVER_TEXT, _WORDINGS, _ENGLISH)

SERVERS_OWN = 6
"""So many of these fields hold words of the server."""
_ENGLISH_AT = 7
"""Where the English of what it says in another language is, which counts as its own words too."""

# What one tool may count for, so that stuffing it with words gains nothing. Few real tools reach these bounds
# (`docs/benchmarks.md`).
READ = (12, 12, 500, 60, 250, 40, 60, 120)
"""By field, how many terms are read."""
MOST_TIMES = 16
"""How often one term counts in one field."""
_WIDE = 150
"""How many different terms a tool may have; with more, it counts the less the more it has."""
_OUT_OF_PLACE = 0.25
"""A wide tool with less than this share of the best score is left out: with so many words, some always match."""


def field_texts(document: Document) -> tuple[str, ...]:
    """Return the text of each field, in the order of `FIELDS`."""
    return (
        document.name,
        document.server,
        f"{document.title}\n{document.description}",
        " ".join(document.parameters),
        "\n".join(document.parameter_texts),
        document.server_text,
        wording_words(document),
        english_words(document),
    )


# One posting is one 32-bit number: slot (20 bits), field (3 bits), occurrences (9 bits).
_SLOT, _FIELD, _MAX_COUNT = 12, 9, 511
_MAX_SLOTS = 1 << 20


class Impacts(Struct, frozen=True):
    """What one term adds to the score of each tool that has it; slots ascend."""

    slots: array[int]
    values: array[float]
    idf: float
    having: int
    """How many tools have the term, those that are not looked at included."""

    def of(self, slot: int) -> float:
        """Return what the term adds to one tool, 0 if the tool lacks it."""
        at = bisect_left(self.slots, slot)
        return self.values[at] if at < len(self.slots) and self.slots[at] == slot else 0.0

    def has(self, slot: int) -> bool:
        """Return whether a tool has the term."""
        slots = self.slots
        at = bisect_left(slots, slot)
        return at < len(slots) and slots[at] == slot

    def scaled(self, weight: float) -> Sequence[float]:
        """Return the values for a query that gives the term this weight."""
        return self.values if weight == 1.0 else [weight * value for value in self.values]


class Lexical:
    """A BM25F index over slots: documents are added to new slots and dropped from old ones, never changed in place."""

    def __init__(self, fields: Sequence[Field] = FIELDS, wide: int = _WIDE) -> None:
        """`wide`: the bound `_WIDE`; 0 for texts that may be as rich as they are."""
        self.fields = tuple(fields)
        self.live = 0
        """Tools that are not dropped."""
        self.chosen_from = 0
        """How many tools these were chosen from by the words of the query, if they were: of a rare word all that have
        it are here, and idf compares their number with all."""
        self._alive = bytearray()  # (slots,), 1 until dropped
        self._bound = wide
        self._wide: dict[int, float] = {}  # by slot of a wide tool, what its scores are multiplied by
        # Ascending in slot, dropped slots included.
        self._postings: defaultdict[str, array[int]] = defaultdict(lambda: array("I"))
        self._lengths = tuple(array("I") for _ in self.fields)  # (slots,) each
        self._totals = [0] * len(self.fields)  # sums of lengths over live slots
        self._norms: list[list[float]] = []  # (slots,) each, by field; none when stale
        self._impacts: dict[str, Impacts] = {}  # of the terms asked for since the last change

    @property
    def total(self) -> int:
        """The N of idf."""
        return max(self.live, self.chosen_from)

    def add(self, document: Document) -> int:
        """Index a document; its slot is the next one."""
        return self.add_counts(
            [Counter(terms(text)[:most]) for text, most in zip(field_texts(document), READ, strict=True)]
        )

    def add_counts(self, counts: Sequence[Mapping[str, int]]) -> int:
        """Index a document given as occurrences of each term, by field."""
        slot = len(self._alive)
        if slot >= _MAX_SLOTS:
            raise ValueError(f"lexical index: {slot} slots are taken, it has no more")
        for number, (found, lengths) in enumerate(zip(counts, self._lengths, strict=True)):
            length = 0
            for term, times in found.items():
                times = min(times, MOST_TIMES)
                self._postings[term].append(slot << _SLOT | number << _FIELD | times)
                length += times
            lengths.append(length)
            self._totals[number] += length
        if self._bound and (different := _count_different(counts)) > self._bound:
            self._wide[slot] = (self._bound / different) ** 2
        self._alive.append(1)
        self.live += 1
        self._stale()
        return slot

    def copy(self) -> Lexical:
        """Return a copy of the index; a change of one does not change the other."""
        copied = Lexical(self.fields, self._bound)
        copied.live, copied._alive, copied._wide = self.live, self._alive[:], dict(self._wide)
        for term, postings in self._postings.items():
            copied._postings[term] = postings[:]
        copied._lengths = tuple(lengths[:] for lengths in self._lengths)
        copied._totals = self._totals[:]
        return copied

    def drop(self, slot: int) -> None:
        """Forget the document in this slot; the slot stays empty."""
        if self._alive[slot]:
            self._alive[slot] = 0
            self._wide.pop(slot, None)
            self.live -= 1
            for number, lengths in enumerate(self._lengths):
                self._totals[number] -= lengths[slot]
            self._stale()

    def compact(self) -> None:
        """Close the gaps of dropped slots: live ones keep their order and get new numbers."""
        numbers = array("I", bytes(4 * len(self._alive)))
        kept = 0
        for slot, alive in enumerate(self._alive):
            numbers[slot] = kept
            kept += alive
        below = (1 << _SLOT) - 1
        compacted: defaultdict[str, array[int]] = defaultdict(lambda: array("I"))
        for term, postings in self._postings.items():
            live = (posting for posting in postings if self._alive[posting >> _SLOT])
            moved = array("I", (numbers[posting >> _SLOT] << _SLOT | posting & below for posting in live))
            if moved:
                compacted[term] = moved
        self._postings = compacted
        self._lengths = tuple(
            array("I", (n for n, alive in zip(lengths, self._alive, strict=True) if alive)) for lengths in self._lengths
        )
        self._wide = {numbers[slot]: factor for slot, factor in self._wide.items()}
        self._alive = bytearray(repeat(1, kept))
        self._stale()

    def search(self, wanted: Mapping[str, float]) -> dict[int, float]:
        """Score the terms of a query (`weigh_terms`) by slot; a slot without a telling term is left out."""
        scores = self.hits(self.telling(wanted))
        if wide := self._wide.keys() & scores.keys():
            least = _OUT_OF_PLACE * max(scores.values())
            for slot in wide:
                if scores[slot] < least:
                    del scores[slot]
        return scores

    def telling(self, wanted: Mapping[str, float]) -> dict[str, float]:
        """Return the terms of a query that decide its ranking. The others, most of a long query, occur in so many tools
        that they cost time and change nothing."""
        worth = {term: weight * found.idf for term, weight in wanted.items() if (found := self.impacts(term))}
        if worth.keys() <= {GET} and wanted.get(GET, 0.0) < SAID:
            return {}  # that somebody asks for something does not say for what
        least = _LEAST_TELLING * max(worth.values(), default=0.0)
        # Sorting few values takes less than `nlargest`, and puts equal ones in the same order.
        most = sorted(worth, key=worth.__getitem__, reverse=True)[:_MAX_TERMS]
        return {term: wanted[term] for term in most if worth[term] >= least}

    def rare(self, wanted: Mapping[str, float]) -> list[str]:
        """Return the terms that few tools have, the rarest first, at most `_MOST_NEAR`."""
        having = {term: found.having for term in wanted if (found := self.impacts(term))}
        return pick_rare(wanted, having, self.total)

    def hits(self, wanted: Mapping[str, float]) -> dict[int, float]:
        """Score weighted terms by slot; slots that have none of them are left out."""
        found = [(impacts, weight) for term, weight in wanted.items() if (impacts := self.impacts(term))]
        if not found:
            return {}
        # The longest list starts the sums, for copying it is an order of magnitude faster than adding it.
        found.sort(key=lambda each: len(each[0].slots), reverse=True)
        longest, weight = found.pop(0)
        scores = dict(zip(longest.slots, longest.scaled(weight), strict=True))
        so_far = scores.get
        for impacts, weight in found:
            for slot, value in zip(impacts.slots, impacts.scaled(weight), strict=True):
                scores[slot] = so_far(slot, 0.0) + value
        return scores

    def coverage(self, wanted: Mapping[str, float], slot: int, least_total: int = 0) -> float:
        """Return which share of a query's terms, by weight and idf, a tool has, 0 to 1. `least_total`: the fewest tools
        for which idf is computed, so that a small corpus does not make every word look rare."""
        total = max(self.total, least_total)
        mass = met = 0.0
        unknown = idf(total, 0)
        for term, weight in wanted.items():
            if weight < SAID:
                continue
            impacts = self.impacts(term)
            worth = weight * (idf(total, impacts.having) if impacts else unknown)
            mass += worth
            met += worth if impacts and impacts.of(slot) else 0.0
        return met / mass if mass else 0.0

    def telling_share(self, wanted: Mapping[str, float], score: float) -> float:
        """Return how much the words of a query weigh against encoders, 0 to 1. `score`: the best score by words. It is
        low where that tool meets little of the query, such as one rare word in the example of a parameter."""
        total = self.total
        mass = 0.0
        for term, weight in wanted.items():
            if weight >= SAID:
                impacts = self.impacts(term)
                mass += weight * idf(total, impacts.having if impacts else 0)
        mass = min(mass, _RARE_TERMS * idf(total, 1))
        return min(score / (_MET * mass), 1.0) if mass > 0 else 1.0

    def impacts(self, term: str) -> Impacts | None:
        """Return what this term is worth in each tool that has it; None if no tool has it."""
        if term in self._impacts:
            return self._impacts[term]
        postings = self._postings.get(term)
        if postings is None:
            return None
        found = self._computed(postings)
        if not found.slots:
            return None  # only dropped tools had it
        self._impacts[term] = found
        return found

    def _computed(self, postings: array[int]) -> Impacts:
        norms = self._norms = self._norms or self._compute_norms()
        alive = self._alive
        if self.live < len(alive):
            postings = array("I", (posting for posting in postings if alive[posting >> _SLOT]))
        slots, weights = list[int](), list[float]()
        # Local names, because this runs for every posting of a new term.
        add_slot, add_weight, above, field, times, last = slots.append, weights.append, _SLOT, _FIELD, _MAX_COUNT, -1
        for posting in postings:  # the fields of one slot stand side by side
            slot = posting >> above
            weight = norms[posting >> field & 7][slot] * (posting & times)
            if slot == last:
                weights[-1] += weight
            else:
                add_slot(slot)
                add_weight(weight)
                last = slot
        worth = idf(self.total, len(slots))
        values = array("f", [worth * weight / (_K1 + weight) for weight in weights])
        if self._wide:
            for place, slot in enumerate(slots):
                if slot in self._wide:
                    values[place] *= self._wide[slot]
        return Impacts(array("I", slots), values, worth, len(slots))

    def _compute_norms(self) -> list[list[float]]:
        """Return what one occurrence is worth, weight / (1 - b + b len / mean len), by field and slot."""
        norms = []
        for field, lengths, total in zip(self.fields, self._lengths, self._totals, strict=True):
            scale = field.b * self.live / total if total else 0.0
            floor = 1.0 - field.b
            norms.append([field.weight / (floor + scale * length) if length else 0.0 for length in lengths])
        return norms

    def _stale(self) -> None:
        # A change moves every mean length and every idf a little; the next queries compute what they need.
        if self._norms or self._impacts:
            self._norms = []
            self._impacts = {}


def pick_rare(wanted: Mapping[str, float], having: Mapping[str, int], total: int) -> list[str]:
    """Return the weighted terms that tell most, at most `_MOST_NEAR`, of those that few of `total` tools have and at
    least one. `having`: how many tools have each term."""
    most = max(_FEW * total, _FEWEST)
    worth = {term: wanted[term] * idf(total, count) for term, count in having.items() if 0 < count <= most}
    return sorted(worth, key=worth.__getitem__, reverse=True)[:_MOST_NEAR]


def _count_different(counts: Sequence[Mapping[str, int]]) -> int:
    """Count the terms that a server gave a tool: as it wrote them, or with the English of another language in their
    place, whichever is more. Which of them are in another language, only a script without spaces tells; elsewhere two
    English terms stand for at least one of them."""
    written, english = set[str]().union(*counts[:SERVERS_OWN]), set[str]().union(*counts[_ENGLISH_AT:])
    if not english:
        return len(written)
    others = {term for term in written if not is_unspaced(term)}
    if len(others) < len(written):
        return max(len(written), len(others | english))
    return len(written) + len(english - written) // 2


def weigh_terms(text: str) -> dict[str, float]:
    """Return the terms of a query with their weights, and with less weight the verbs that mean the same or that a
    question stands for. A word of another language counts by its English, and with less weight as it is written."""
    english = put_into_english(text)
    counts = Counter(terms(english))
    # A word that occurs twice is worth more; ten times is not worth ten times more.
    wanted = {term: 1.0 if times == 1 else 1.0 + 0.5 * log(times) for term, times in counts.items()}
    for term in counts.keys() & KINDRED.keys():
        for other in KINDRED[term]:
            wanted.setdefault(other, KINDRED_WEIGHT)
    if counts and is_question(english):
        wanted.setdefault(GET, KINDRED_WEIGHT)
    for piece in translated(text):
        for term in terms(piece.text) if terms(piece.english or "") else ():
            wanted.setdefault(term, WRITTEN_WEIGHT)
    return wanted


def idf(total: int, having: int) -> float:
    """Return the inverse document frequency of a term that `having` of `total` tools have."""
    return log(1.0 + (total - having + 0.5) / (having + 0.5))
