"""Asks a frozen language model how likely a call is, given one tool's text: the signal that PORTS trains on (eq. 2).

A scorer answers with the log-probability of a continuation of a prompt; it never generates. The scorers themselves are
in `learning.language_models`. Scores are kept in a file of lines, by the hash of model, document, query and
answer, so that a training that was killed asks nothing twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from foretool.learning.training import TooLittle

_PROMPT = """You write one function call. Use only the function that is described, with its exact name and parameters.

Docstring:
{document}

Query: {query}
Answer:"""
"""The paper's figure 5 without its example, so that a small model on a CPU reads a fourth of it. The fixed text comes
first, then the document, so that a scorer computes the state of either once for many queries."""


LONGEST_VALUE = 80
"""Characters of an argument that the model is asked about."""


class ScorerError(TooLittle):
    """No language model can be opened, or its answer makes no sense. The message says what was looked for, what was
    found, and the way out; the run goes on without the method that asked."""


class Score(NamedTuple):
    total: float
    """Sum of the natural log-probabilities of its tokens."""
    tokens: int

    @property
    def mean(self) -> float:
        """P_G of eq. 2."""
        return self.total / self.tokens


class ContinuationScorer(Protocol):
    """A frozen language model that scores continuations."""

    model: str
    """The name under which its scores are kept; other weights have another name."""

    def logprob(self, prompt: str, continuation: str) -> Score:
        """Return the score of a continuation of a prompt. Raises `ScorerError`."""
        ...


def write_call(name: str, arguments: str) -> str:
    """Write a call as the paper does, y of eq. 2: `name(key=value, ...)`, with `name()` where nothing else is known.

    `arguments`: a JSON object of values, or of types where the log keeps no values; long values are cut.
    """
    try:
        found = json.loads(arguments) if arguments else {}
    except ValueError:
        found = {}
    if not isinstance(found, dict):
        found = {}
    values = ((key, json.dumps(value, ensure_ascii=False)) for key, value in found.items())
    return f"{name}({', '.join(f'{key}={value[:LONGEST_VALUE]}' for key, value in values)})"


class LikelihoodQuestion(NamedTuple):
    """Asks the model how likely this answer is, given this document."""

    document: str
    query: str
    answer: str

    @property
    def prompt(self) -> str:
        return _PROMPT.format(document=self.document, query=self.query)

    @property
    def continuation(self) -> str:
        return f" {self.answer}"

    def key(self, model: str) -> str:
        """Return the key under which this model's score is kept: 128 bits in hex."""
        text = json.dumps([model, _PROMPT, *self], ensure_ascii=False)
        return sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


class ScoreFile(dict[str, Score]):
    """Keeps scores in a file, one line each: hash, sum, tokens.

    Lines are only ever added. Half a line at the end, left by a process that was killed, is dropped.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = 0
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            key, total, tokens = line.split()
            self[key.decode()] = Score(float(total), int(tokens))
        if path.exists():
            os.truncate(path, whole)
        self._file = path.open("a", encoding="ascii")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, key: str, score: Score) -> None:
        """Hand the score to the operating system before it returns."""
        self[key] = score
        self._file.write(f"{key} {score.total:.6f} {score.tokens}\n")
        self._file.flush()


def score_all(
    scorer: ContinuationScorer,
    questions: Iterable[LikelihoodQuestion],
    kept: ScoreFile,
    progress: Callable[[int, int], None] | None = None,
) -> dict[LikelihoodQuestion, Score]:
    """Return the score of every question; `progress` gets how many are done, and their total.

    Questions on one document follow each other, since a scorer may remember the state of the beginning they share.
    """
    wanted = list(dict.fromkeys(questions))
    found = {each: score for each in wanted if (score := kept.get(each.key(scorer.model))) is not None}
    for each in sorted((each for each in wanted if each not in found), key=lambda each: (each.document, each.query)):
        found[each] = scorer.logprob(each.prompt, each.continuation)
        kept.add(each.key(scorer.model), found[each])
        if progress is not None:
            progress(len(found), len(wanted))
    return found
