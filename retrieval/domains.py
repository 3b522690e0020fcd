"""Says which domain a task belongs to, from a few examples of each (ITR 3.7 pins rare but critical tools "via domain
classifiers").

The classifier is multinomial naive Bayes over words, add-one smoothed over a vocabulary of a thousand words. All
domains are equally likely beforehand. One more domain is everything else, where each word is as likely as any other:

    P(domain | words)  ~  product over words of  (count in domain + 1) / (words in domain + 1000)
    P(else | words)    ~  product over words of  1 / 1000

A word of one example doubles the odds of its domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Final

from foretool.retrieval.words import terms

SURE: Final = 0.75
"""The least probability at which a domain counts: a few of its words, or one that several examples have."""
ELSE: Final = ""
"""The domain of a task that is in no other."""
VOCABULARY: Final = 1000


class Domains:
    """Classifies tasks by the words of example tasks."""

    def __init__(self, examples: Mapping[str, Sequence[str]]) -> None:
        """`examples`: tasks in words by domain."""
        self._counts = {name: Counter(terms("\n".join(texts))) for name, texts in examples.items()}

    def probabilities(self, query: str) -> dict[str, float]:
        """The probability of each domain and of `ELSE`."""
        words = terms(query)
        logs = {name: _log(counts, words) for name, counts in self._counts.items()}
        logs[ELSE] = -len(words) * log(VOCABULARY)
        top = max(logs.values())
        weights = {name: exp(value - top) for name, value in logs.items()}
        total = sum(weights.values())
        return {name: weight / total for name, weight in weights.items()}

    def of(self, query: str) -> str:
        """The likeliest domain if it is likely enough, else `ELSE`."""
        found = self.probabilities(query)
        name = max(found, key=found.__getitem__)
        return name if found[name] >= SURE else ELSE


def _log(counts: Counter[str], words: Sequence[str]) -> float:
    size = counts.total() + VOCABULARY
    return sum(log((counts[word] + 1) / size) for word in words)
