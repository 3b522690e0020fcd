"""Makes the table of words that mean nearly the same (`retrieval/near_words.txt`).

    python -m bench.learning.near_words OUT

Every English word of the vocabulary that the encoder minilm came with is embedded as a text of its own, one for each
stem (the vocabulary is sorted by how common a word is, and the first is taken). A line of OUT has a stem, then the
`MOST` nearest words, each with a digit: 9 at a cosine of 1, 0 at `LEAST`; words of less than `LEAST_MARK` are left out.
Nothing but the encoder and its vocabulary is read. The figures behind the constants are in docs/benchmarks.md. It takes
half a minute of one core; another processor may round the vectors differently and move a few digits.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bench.options import make_parser
from foretool.retrieval import encoders
from foretool.retrieval.encoders.onnx import VOCABULARY
from foretool.retrieval.model_format import Floats
from foretool.retrieval.near_words import MARKS
from foretool.retrieval.words import STOP_WORDS, stem

LEAST = 0.5
"""The cosine at which a word says nothing of another."""
LEAST_MARK = 2
MOST = 6
"""How many near words a word has at most."""
ENGLISH = re.compile(r"[a-z]{3,}")
AT_ONCE = 1024


def words_by_stem() -> dict[str, str]:
    """The most common word of each stem."""
    found: dict[str, str] = {}
    for word in VOCABULARY.read_text("utf-8").split("\n"):
        if ENGLISH.fullmatch(word) and word not in STOP_WORDS:
            found.setdefault(stem(word), word)
    return found


def lines(words: dict[str, str], vectors: Floats) -> Iterator[str]:
    """The lines of the table, in the order of their bytes; `vectors` (words, dimension)."""
    spelled, stems = list(words.values()), list(words)
    for start in range(0, len(stems), AT_ONCE):
        cosines = vectors[start : start + AT_ONCE] @ vectors.T
        for at, row in enumerate(cosines, start):
            row[at] = -1.0
            best = sorted(np.argpartition(-row, MOST)[:MOST].tolist(), key=lambda each: -row[each])
            marked = ((spelled[each], round(MARKS * (float(row[each]) - LEAST) / (1.0 - LEAST))) for each in best)
            near = [f"{word}{min(mark, MARKS)}" for word, mark in marked if mark >= LEAST_MARK]
            if near:
                yield " ".join([stems[at], *near])


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and write the table."""
    parser: argparse.ArgumentParser = make_parser("bench.learning.near_words", __doc__)
    parser.add_argument("out", type=Path, metavar="OUT")
    out: Path = parser.parse_args(argv).out
    words = words_by_stem()
    (weights,) = encoders.resolve_weights("minilm")
    vectors = encoders.open_encoder(weights).documents(list(words.values()))
    found = sorted(lines(words, vectors), key=str.encode)
    out.write_text("".join(f"{line}\n" for line in found), "utf-8")
    print(f"{len(words)} words, {len(found)} lines, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
