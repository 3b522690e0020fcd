"""One line of a task, which is a need of its own: its terms, and what they score."""

from __future__ import annotations

from functools import cached_property

from foretool.retrieval.corpus import Corpus
from foretool.retrieval.near_words import near_terms
from foretool.retrieval.rankers.bm25 import Lexical, idf, weigh_terms
from foretool.retrieval.ranking import Evidence, softmax_entropy

ENTROPY_DEPTH = 50
"""How many of the best scores the entropy of a line is taken over."""


class NeedScores:
    def __init__(self, corpus: Corpus, text: str, *, widened: bool = False) -> None:
        """`widened`: whether words that mean nearly the same take part; encoders know them already."""
        self.text = text
        said = weigh_terms(text)
        near = near_terms(said) if widened else {}
        weights = {term: weight for term, (_, weight) in near.items()}
        added = corpus.lexical.rare(weights) if near else ()
        self.wanted = said | {term: weights[term] for term in added}
        """The terms with their weights, and with less weight those that mean nearly the same."""
        self.spelled = {term: near[term][0] for term in added}
        """Those that mean nearly the same, as words."""
        self.hits = corpus.lexical.search(self.wanted)
        self.named = corpus.names.in_line(text)
        self._is_named = bool(self.named) and bool(corpus.names.in_line(text, surely=True))
        self._lexical = corpus.lexical

    @cached_property
    def best(self) -> list[float]:
        """The `ENTROPY_DEPTH` highest scores by words, best first."""
        return sorted(self.hits.values(), reverse=True)[:ENTROPY_DEPTH]

    @cached_property
    def telling(self) -> float:
        """How much the words of this line weigh against encoders, 0 to 1."""
        return self._lexical.telling_share(self.wanted, max(self.hits.values(), default=0.0))

    def evidence(self, lexical: Lexical) -> Evidence:
        """Return how well the best tools match this line by words and by name, which the gate reads."""
        if not self.best:
            return Evidence(named=self._is_named)
        best_slot = next(slot for slot, score in self.hits.items() if score == self.best[0])
        return Evidence(
            named=self._is_named,
            strength=self.best[0] / idf(lexical.total, 1),
            entropy=softmax_entropy(self.best),
            coverage=lexical.coverage(self.wanted, best_slot),
        )
