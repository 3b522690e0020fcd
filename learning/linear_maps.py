"""The fitted linear maps of DTDR: from words to a short vector, and from a task and its calls to the next tool's text.

`Lsa` is TF-IDF over words and pairs, projected to its main directions. Words keep what an encoder blurs: names, numbers
of things, a domain's own terms. `NextText` predicts the text of the next call's tool: after a search, the text of a
booking. It also says which of the tools that were never called fit this step, not only the whole task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import log
from typing import NamedTuple

import numpy as np

from foretool.retrieval.model_format import Floats
from foretool.retrieval.score_sum import z_scores
from foretool.retrieval.words import terms

PLACES = 4
"""Numbers of calls that differ: none, one, two, more."""
REMEMBERED = 100_000
"""Tools whose texts are remembered as near to others, times those others; each takes 12 bytes."""
LEAST_REMEMBERED = 20
"""At least so many tools are remembered: the longest history that a prediction reads."""


def count_terms(text: str) -> Counter[str]:
    """Count each word and each pair of neighbours."""
    words = terms(text)
    return Counter(words) + Counter(f"{a} {b}" for a, b in pairwise(words))


class Lsa:
    """Turns words into vectors by a fitted projection."""

    def __init__(self, vocabulary: Sequence[str], projection: Floats) -> None:
        """`projection` (vocabulary, dimension): the idf of a term times its place in the main directions."""
        self.vocabulary = tuple(vocabulary)
        self.projection = projection
        self.dimension = int(projection.shape[1])
        self._row_of = {term: row for row, term in enumerate(vocabulary)}

    def vector(self, text: str) -> Floats:
        """Return the vector of a text, of length 1; zeros if no word of it is known; (dimension,)."""
        counts = count_terms(text)
        known = [(row, 1 + log(n)) for term, n in counts.items() if (row := self._row_of.get(term)) is not None]
        if not known:
            return np.zeros(self.dimension, np.float32)
        rows, weights = zip(*known, strict=True)
        # The projection may be in half precision.
        summed: Floats = np.asarray(weights, np.float32) @ self.projection[list(rows)].astype(np.float32, copy=False)
        length = float(np.linalg.norm(summed))
        return summed / np.float32(length) if length > 0 else summed

    def vectors(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts, each as `vector` gives it; (texts, dimension)."""
        return np.asarray([self.vector(text) for text in texts], np.float32).reshape(len(texts), self.dimension)


class NextText(NamedTuple):
    """A linear map that predicts the vector of the next tool's text from a task and its calls; `dimension` is that of
    tools' texts, 0 if they have no vectors."""

    task: Floats
    """(dimension of a task's vector, dimension)."""
    calls: Floats
    """(rows of `call_features`, dimension): what the calls add to the task's part of the prediction."""
    centre: Floats
    """(dimension,): the mean text of the tools that were called."""

    @property
    def dimension(self) -> int:
        return len(self.centre)


def no_next_text(task: int) -> NextText:
    """Return a map from tasks of this dimension that predicts no text."""
    return NextText(*(np.zeros(shape, np.float32) for shape in ((task, 0), (PLACES, 0), (0,))))


def call_features(called: Sequence[Floats], calls: int, dimension: int) -> Floats:
    """Return [mean of the called tools' texts ; the last one ; how many], (2 dimension + `PLACES`,). `called`: vectors
    of the texts that are known, oldest first; `calls`: how many calls there were."""
    found = np.zeros(2 * dimension + PLACES, np.float32)
    if called:
        found[:dimension] = np.mean(called, 0)
        found[dimension : 2 * dimension] = called[-1]
    found[2 * dimension + min(calls, PLACES - 1)] = 1
    return found


def lengths(texts: Floats, centre: Floats) -> Floats:
    """Return the distance of each text from the centre; (tools,)."""
    found: Floats = np.maximum(np.linalg.norm(texts - centre, axis=1), np.float32(1e-6))
    return found


class Texts:
    """Compares the texts of tools with the text of the last tool, and with the text that is expected next.

    What is expected is a sum over the task, the called tools, the last one and the number of calls. The nearness of all
    texts is linear in it, so it is the sum of what each of those is near to, which is worked out once for each tool.
    """

    def __init__(self, vectors: Floats, aim: NextText) -> None:
        self._vectors = vectors
        self._aim = aim
        self._lengths = lengths(vectors, aim.centre) if aim.dimension else None
        # The map may be in half precision, in which no sum is made.
        self._centre = aim.centre.astype(np.float32)
        counts = aim.calls[2 * aim.dimension :].astype(np.float32)
        self._of_count = self._near(counts) if aim.dimension else None
        self._read: dict[int, tuple[Floats, Floats]] = {}
        """By slot: the z-scores of the nearness to its text; and what its call, and its call as the last one, add to
        the nearness to what is expected, (2, slots), or nothing where nothing is expected."""
        self._most = max(REMEMBERED // max(len(vectors), 1), LEAST_REMEMBERED)

    def towards(self, task: Floats) -> Floats | None:
        """Return how near each tool's text is to the text that a task leads to expect; (slots,). None where nothing is
        expected."""
        return self._near((task @ self._aim.task)[None])[0] if self._aim.dimension else None

    def after(
        self, called: Sequence[int], last: int | None, calls: int, task: Floats | None
    ) -> tuple[Floats | None, Floats | None]:
        """Return the z-scores (slots,) of the nearness to the last tool's text and to what is expected. `called`: slots
        of the called tools that are known, oldest first, the last of them `last`, unless it is not known; `calls`: how
        many calls there were; `task`: what `towards` returns."""
        kin = self._of(last)[0] if last is not None else None
        if task is None or self._of_count is None:
            return kin, None
        near = task + self._of_count[min(calls, PLACES - 1)]
        if called:
            parts = [self._of(slot)[1] for slot in called]
            near += np.add.reduce([each[0] for each in parts], 0) / np.float32(len(called))
            near += parts[-1][1]
        return kin, z_scores(near)

    def _of(self, slot: int) -> tuple[Floats, Floats]:
        if (read := self._read.get(slot)) is None:
            while len(self._read) >= self._most:
                del self._read[next(iter(self._read))]
            text, size = self._vectors[slot], self._aim.dimension
            maps = self._aim.calls[: 2 * size].reshape(2, size, size)
            adds = self._near(np.stack([text @ each for each in maps])) if size else np.zeros((0, 0), np.float32)
            read = self._read[slot] = z_scores(self._vectors @ text), adds
        return read

    def _near(self, texts: Floats) -> Floats:
        """Return (texts, slots): how near each text of a tool is to each of these."""
        # BLAS takes three times as long for several columns in one product.
        products = np.stack([self._vectors @ text for text in texts])
        products -= (texts @ self._centre)[:, None]
        products /= self._lengths
        return products
