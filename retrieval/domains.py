"""Which domain a task belongs to, from a few examples each (ITR 3.7: rare but critical tools are pinned "via domain
classifiers").

Multinomial naive Bayes over words, add-one smoothed, all domains equally likely beforehand:

    log P(domain | words)  ~  sum over words of  log (count in domain + 1) / (words in domain + vocabulary)

A query without a word of any example belongs to none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Final

from foretool.retrieval.words import terms

SURE: Final = 0.6
"""Least posterior probability at which a domain is taken."""
ELSE: Final = ""
"""The domain of everything that is in none: every word is equally likely there."""


class Domains:
    """See the module."""

    def __init__(self, examples: Mapping[str, Sequence[str]]) -> None:
        """`examples`: tasks in words by domain."""
        self._counts = {name: Counter(terms("\n".join(texts))) for name, texts in examples.items()}
        self._vocabulary = len(set().union(*self._counts.values())) if self._counts else 0

    def probabilities(self, query: str) -> dict[str, float]:
        """Of each domain, and of `ELSE`; {} where no word was ever seen."""
        known = [term for term in terms(query) if any(term in counts for counts in self._counts.values())]
        if not known:
            return {}
        logs = {name: self._log(counts, known) for name, counts in self._counts.items()}
        logs[ELSE] = -len(known) * log(self._vocabulary)
        top = max(logs.values())
        weights = {name: exp(value - top) for name, value in logs.items()}
        total = sum(weights.values())
        return {name: weight / total for name, weight in weights.items()}

    def of(self, query: str) -> str:
        """The domain that is likely enough, or `ELSE`."""
        found = self.probabilities(query)
        name = max(found, key=found.__getitem__, default=ELSE)
        return name if name != ELSE and found[name] >= SURE else ELSE

    def _log(self, counts: Counter[str], known: Sequence[str]) -> float:
        size = counts.total() + self._vocabulary
        return sum(log((counts[term] + 1) / size) for term in known)
