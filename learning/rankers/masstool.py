"""MassTool (arXiv 2507.00487) as it is served: which tools past tasks like this one took.

It differs from the published form (`bench/papers/published/masstool.py`) where that measured better:

- The golden sets ("scenes", 4.2.1) are classes of their own. A head gives each class its probability, and a tool gets
  the probabilities of its sets. Scoring tool by tool, and through the graph, finds less (docs/learning.md).
- The head reads the sentence vector and the words (one and two in a row, TF-IDF). A matrix that is learnt with the
  head projects the words to a few numbers; an SVD of the same words finds less.
- The search for like tasks (SUIM) votes with the tools of the neighbours, without training and over a thin log.
- Dynamic filtering and AdaKT are one factor, the trust. It is 0 far from every known task, so that a thin or foreign
  log adds nothing. Near them it is how often the head was right on tasks that it had not seen.

The detection tower is `needs_tool`, a logistic model over the same two views of a task.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING, Any, Final, Self
from zlib import crc32

import numpy as np
from msgspec import Struct, convert, to_builtins
from numpy.typing import NDArray

from foretool.retrieval.calibration import sigmoid
from foretool.retrieval.encoders.base import unit
from foretool.retrieval.model_format import Floats, ModelError, pack, unpack
from foretool.retrieval.rankers.learned import LearnedModel
from foretool.retrieval.ranking import Query
from foretool.retrieval.score_sum import softmax
from foretool.retrieval.words import chunks
from foretool.storage.records import ToolId

if TYPE_CHECKING:
    from foretool.retrieval.encoders import Encoder

Ints = NDArray[np.int64]
_log = logging.getLogger("foretool.models")

NAME: Final = "masstool"
VERSION: Final = 1
PEAK: Final = 120.0
"""What the only tool of a surely known task gets, in standard deviations of a list; it is multiplied by the square of
the trust. Words and encoders together reach about 10, so head and vote alone order the tools of a known task."""
LEAST_TRUST: Final = 0.1
"""Trust up to this much counts as none."""
LEAST_PRIOR: Final = 0.03
FAINT: Final = 1e-3
"""Shares are compared by their logarithm; shares well below this one count as 0."""
_NEIGHBOURS: Final = 20
"""K of the search (SUIM)."""
SHARPNESS: Final = 20.0
"""The vote of a neighbour is exp(SHARPNESS x likeness)."""


def grams(text: str) -> Counter[int]:
    """Count the words and the pairs of neighbours of a text, as hashes of 32 bits: a model holds no words."""
    words = [chunk for chunk in chunks(text.lower()) if chunk.isalnum()]
    pairs = (f"{one} {other}" for one, other in pairwise(words))
    return Counter(crc32(gram.encode("utf-8", "replace")) for gram in (*words, *pairs))


def weighted(counts: Mapping[int, int], hashes: NDArray[np.uint32], idf: Floats) -> tuple[Ints, Floats]:
    """Return the places in the vocabulary `hashes` (sorted) and TF-IDF there; both (known grams,).

    The whole text has length 1, grams outside of the vocabulary counted as the rarest in it: a text of which little is
    known is like nothing.
    """
    if not len(hashes) or not counts:
        return np.empty(0, np.int64), np.empty(0, np.float32)
    wanted = np.fromiter(counts, np.uint32, len(counts))
    times = np.log(np.fromiter(counts.values(), np.float32, len(counts))) + 1
    places = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
    known = hashes[places] == wanted
    values = times * np.where(known, idf[places], idf.max())
    values /= np.linalg.norm(values)
    return places[known].astype(np.int64), values[known].astype(np.float32)


class Sparse(Struct, frozen=True):
    """A sparse matrix: row r has columns[starts[r]:starts[r + 1]] and the values at the same places."""

    starts: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Floats

    def __len__(self) -> int:
        return len(self.starts) - 1

    def row(self, number: int) -> tuple[Ints, Floats]:
        """Return the columns and values of one row."""
        part = slice(self.starts[number], self.starts[number + 1])
        return self.columns[part], self.values[part]

    def times(self, vector: Floats) -> Floats:
        """Return (rows,): the product with (columns,)."""
        sums = np.concatenate([[0.0], np.cumsum(self.values * vector[self.columns], dtype=np.float64)])
        found: Floats = (sums[self.starts[1:]] - sums[self.starts[:-1]]).astype(np.float32)
        return found

    def spread(self, rows: Floats, columns: int) -> Floats:
        """Return (columns,): the product of (rows,) with the matrix."""
        return np.bincount(self.columns, np.repeat(rows, np.diff(self.starts)) * self.values, columns).astype(
            np.float32
        )


class Net(Struct, frozen=True):
    """The head: scores the classes of golden sets by the words and the sentence vector of a task."""

    rows: NDArray[np.int8]
    """(vocabulary, d): what each gram adds to the words' d numbers, times `scales`."""
    scales: Floats
    """(vocabulary,)"""
    out: Floats
    """(d + dimension, classes), or (d, classes) where it reads words alone."""
    bias: Floats
    """(classes,)"""

    @property
    def reads_vectors(self) -> bool:
        """Whether it needs a sentence vector."""
        return len(self.out) > int(self.rows.shape[1])

    def logits(self, places: Ints, values: Floats, vector: Floats) -> Floats:
        """Return an array (classes,); grams as `weighted` has them, vector (dimension,), zeros where there is none."""
        words = (values * self.scales[places]) @ self.rows[places].astype(np.float32)
        inputs = np.concatenate([words, vector if self.reads_vectors else vector[:0]])
        return (inputs @ self.out + self.bias).astype(np.float32)


class Tuned(Struct, frozen=True):
    """An encoder that was fine-tuned on the tasks on record (`training.masstool_tuned`), and the head on it."""

    encoder: Encoder
    out: Floats
    """(dimension, classes)"""
    bias: Floats
    """(classes,)"""

    @classmethod
    def read(cls, arrays: Mapping[str, NDArray[Any]]) -> Self | None:
        """Read it from a model; None if the model has none, or if its weights are not installed here."""
        if "tuned_adapter" not in arrays:
            return None
        from foretool.retrieval.encoders.adapted import open_trained

        try:
            encoder = open_trained(arrays["tuned_adapter"].tobytes())
        except (ModelError, ImportError) as error:
            _log.info("%s is served without its fine-tuned encoder: %s", NAME, error)
            return None
        return cls(encoder, arrays["tuned_out"], arrays["tuned_bias"])

    def logits(self, text: str) -> Floats:
        """Return an array (classes,); reads the text once more, 2 to 3 ms."""
        found: Floats = self.encoder.queries([text])[0] @ self.out + self.bias
        return found


class Familiarity(Struct, frozen=True):
    """How much one task is like the tasks of the training: the features that `Trust` reads."""

    meaning: float
    """Cosine of its sentence vector to the nearest known task's; 0 where there is none."""
    words: float
    """The same of the words."""
    sureness: float
    """The head's probability of its likeliest class."""
    agreement: float
    """How far the shares of head and vote agree, 0 to 1, or a little more where sets do not count evenly."""


class Trust(Struct, frozen=True):
    """Predicts how right head and vote are about a task, by how right they were on tasks that look alike, times how
    near this one is. A logistic model without negative weights, fitted on tasks that neither had seen, half of them
    with tools that had been kept from both. The factor for distance is there because a strange task may share a
    sentence or a word with known ones."""

    bias: float
    meaning: float
    words: float
    sureness: float
    agreement: float
    near: float
    """The likeness that most tasks of this log have to the nearest known task; from here on, distance takes nothing."""
    far: float
    """The likeness of two unrelated tasks; at this likeness, distance takes everything."""
    reads_vectors: bool
    """Whether likeness is that of sentence vectors, else of words."""

    def __call__(self, signs: Familiarity, prior: float = 0.5) -> float:
        """Return 0 to 1; `prior`: the chance, before it is read, that a task is of a kind on record."""
        logit = (
            self.bias
            + log(prior / (1.0 - prior))
            + self.meaning * signs.meaning
            + self.words * signs.words
            + self.sureness * signs.sureness
            + self.agreement * signs.agreement
        )
        likeness = signs.meaning if self.reads_vectors else signs.words
        distance = (self.near - likeness) / max(self.near - self.far, 1e-3)
        found = (1.0 - min(max(distance, 0.0), 1.0)) * sigmoid(logit)
        return max(found - LEAST_TRUST, 0.0) / (1.0 - LEAST_TRUST)


class Header(Struct, frozen=True):
    """The parts of a model that are not arrays."""

    tools: tuple[str, ...]
    read: Trust
    """The trust with a sentence vector."""
    unread: Trust
    """The trust by words alone."""
    nets: int
    mix: float
    """The part of the head in a share, 0 to 1; the rest is the part of the vote."""
    even: float
    """A set counts for each tool 1 / size to this power: 1 is best for recall at k, 0 the plain probability."""
    tasks: int
    """How many tasks it was trained on."""
    familiar: float
    """The share of them that took only tools that other tasks took too."""
    detects: bool
    """Whether some tasks needed no tool, so that detection was trained."""


class MassTool(LearnedModel):
    """Scores tools by the tools of past tasks like this one. The height of its scores is its trust in them."""

    name = NAME
    in_deviations = True
    reads_all_encoders = True

    def __init__(self, header: Header, arrays: Mapping[str, NDArray[Any]], tuned: Tuned | None = None) -> None:
        self.header = header
        self.tuned = tuned
        self.hashes: NDArray[np.uint32] = arrays["hashes"]
        """(vocabulary,), sorted."""
        self.idf: Floats = arrays["idf"]
        self.nets = tuple(
            Net(*(arrays[f"{name}{number}"] for name in Net.__struct_fields__)) for number in range(header.nets)
        )
        self.classes = share_rows(arrays["class_starts"], arrays["class_tools"], header.even)
        self.bank: Floats = arrays["bank"].astype(np.float32) / np.float32(127)
        """(kept tasks, dimension): their sentence vectors, of length 1; dimension 0 where there was no encoder."""
        self.bank_words = Sparse(arrays["word_starts"], arrays["word_columns"].astype(np.int64), arrays["word_values"])
        self.bank_tools = share_rows(arrays["golds_starts"], arrays["golds_tools"], header.even)
        self.detect: Floats = arrays["detect"]
        """(dimension + vocabulary + 1,): weights of the detection, the bias last."""
        self.slots: Ints = np.full(len(header.tools), -1, np.int64)
        """(known tools,), -1 for those that are not in the corpus."""
        self.prior = LEAST_PRIOR
        """The probability, before the task is read, that it is of a known kind."""

    @classmethod
    def loads(cls, model: bytes) -> Self:
        told, stored = unpack(model, NAME, VERSION)
        arrays = {
            name: each.astype(np.float32, copy=False) if each.dtype.kind == "f" else each
            for name, each in stored.items()
        }
        try:
            return cls(convert(told, Header), arrays, Tuned.read(arrays))
        except (KeyError, ValueError) as error:
            raise ModelError(f"{NAME}: a model without all its parts ({error})") from error

    def seen_tools(self) -> tuple[NDArray[np.bool_], float]:
        """Return which slots hold tools of the training tasks (slots,), and which share of tasks took a tool that no
        earlier task had taken."""
        found = np.zeros(self.size, np.bool_)
        found[self.slots[self.slots >= 0]] = True
        return found, 1.0 - self.header.familiar

    def align(self, tools: Sequence[ToolId | None], vectors: Floats | None) -> None:
        slot_of = {tool: slot for slot, tool in enumerate(tools) if tool is not None}
        self.slots = np.asarray([slot_of.get(ToolId(tool), -1) for tool in self.header.tools], np.int64)
        self.size = len(tools)
        # Where most of what the tasks took is gone, or was never here, they say little of the next one.
        lacking = self.bank_tools.times((self.slots < 0).astype(np.float32))
        here = self.header.familiar * float(np.mean(lacking == 0)) if len(lacking) else 0.0
        self.prior = min(max(here, LEAST_PRIOR), 1.0 - LEAST_PRIOR)

    def score(self, query: Query, vector: Floats | None) -> Floats:
        """Return scores from 0 to `PEAK`, all 0 without words and for a task far from every known one; (slots,)."""
        found = np.zeros(self.size, np.float32)
        text = "\n".join(query.lines)
        held = self.slots >= 0
        if not text.strip() or not held.any():
            return found
        past = self.past(self.read(text, vector))
        if (trust := self.believed(past)) <= 0.0:
            return found
        shares = past.shares
        # If the tools that such tasks took are gone, the rest of the shares says nothing.
        present = float(shares[held].sum() / max(float(shares.sum()), 1e-9))
        found[self.slots[held]] = PEAK * trust**2 * present * height(shares[held])
        return found

    def needs_tool(self, vector: Floats | None, text: str = "") -> float | None:
        """Return the probability that a task needs a tool at all; None where no task was on record that needed none."""
        if not self.header.detects:
            return None
        task = self.read(text, vector)
        size = len(task.vector)
        logit = float(
            task.vector @ self.detect[:size] + task.values @ self.detect[size + task.places] + self.detect[-1]
        )
        return sigmoid(logit)

    def read(self, text: str, vector: Floats | None) -> Task:
        """Read a task into what head and search compare: its grams and its vector."""
        places, values = weighted(grams(text), self.hashes, self.idf)
        size = self.bank.shape[1]
        # Vectors of other encoders than in training are not read.
        if vector is None or len(vector) != size or not vector.any():
            return Task(text, places, values, np.zeros(size, np.float32), False)
        return Task(text, places, values, unit(vector), True)

    def believed(self, past: Past) -> float:
        """Return how far to believe what past tasks say about this one, 0 to 1."""
        return (self.header.read if past.has_vector else self.header.unread)(past.signs, self.prior)

    def past(self, task: Task) -> Past:
        """Return what head and search predict for a task from past tasks."""
        tools = len(self.header.tools)
        query = np.zeros(len(self.hashes), np.float32)
        query[task.places] = task.values
        likeness = words = self.bank_words.times(query)
        meaning = np.zeros(1, np.float32)
        if task.has_vector:
            meaning = self.bank @ task.vector
            likeness = np.float32(0.5) * (words + meaning)
        vote = self.bank_tools.spread(votes(likeness), tools)
        head, sureness = np.zeros(tools, np.float32), 0.0
        if self.nets:  # one of them at least reads words alone
            nets = [net for net in self.nets if net.reads_vectors is task.has_vector] or self.nets
            said = [net.logits(task.places, task.values, task.vector) for net in nets]
            logits: Floats = np.asarray(said, np.float32).mean(0)
            if self.tuned is not None and task.has_vector:
                logits = np.float32(0.5) * (logits + self.tuned.logits(task.text))
            classes = softmax(logits)
            head, sureness = self.classes.spread(classes, tools), float(classes.max())
        signs = Familiarity(
            meaning=float(meaning.max(initial=0.0)),
            words=float(words.max(initial=0.0)),
            sureness=sureness,
            agreement=float(np.minimum(head, vote).sum()),
        )
        mix = np.float32(self.header.mix)
        return Past(mix * head + (1 - mix) * vote, signs, task.has_vector)


class Past(Struct, frozen=True):
    """What past tasks say about one task."""

    shares: Floats
    """(known tools,), together 1 where sets count evenly."""
    signs: Familiarity
    has_vector: bool


class Task(Struct, frozen=True):
    """One task as words and vector, the input of head and search."""

    text: str
    places: Ints
    values: Floats
    """Its grams, as `weighted` has them."""
    vector: Floats
    """(dimension,), zeros where there is none."""
    has_vector: bool


def share_rows(starts: NDArray[Any], tools: NDArray[Any], even: float) -> Sparse:
    """Return a matrix (rows, tools) in which each tool of a row weighs 1 / n to the power `even`, for n tools in the
    row."""
    begins: Ints = starts.astype(np.int64)
    sizes = begins[1:] - begins[:-1]
    weights = np.repeat(np.maximum(sizes, 1).astype(np.float32) ** -np.float32(even), sizes)
    return Sparse(begins, tools.astype(np.int64), weights)


def votes(likeness: Floats) -> Floats:
    """Return how much each past task counts in the vote, exp(SHARPNESS x likeness) for the `_NEIGHBOURS` most alike and
    0 for the others, scaled to the sum 1 (eq. 5)."""
    found = np.zeros_like(likeness)
    if not len(likeness):
        return found
    count = min(_NEIGHBOURS, len(likeness))
    best = np.argpartition(-likeness, count - 1)[:count]
    powers = np.exp(np.float32(SHARPNESS) * (likeness[best] - likeness[best].max()))
    found[best] = powers / powers.sum()
    return found


def height(shares: Floats) -> Floats:
    """Map shares of 0 to 1 to a logarithmic scale, on which 0 stays 0 and 1 stays 1."""
    found: Floats = np.log1p(shares / np.float32(FAINT)) / np.float32(np.log1p(1.0 / FAINT))
    return found


def read_header(model: bytes) -> Header:
    """Decode the header of a model. Raises `ModelError`."""
    told, _ = unpack(model, NAME, VERSION)
    try:
        return convert(told, Header)
    except ValueError as error:
        raise ModelError(f"{NAME}: a model without all its parts ({error})") from error


def dumps(header: Header, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Encode a model for `MassTool.loads`."""
    return pack(NAME, VERSION, to_builtins(header), arrays)
