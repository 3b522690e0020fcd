"""Textbook BM25 over name and description as one field: rankings are measured against it, and it serves nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from math import log
from statistics import fmean

from foretool.retrieval.words import terms
from foretool.storage.records import Tool

K1 = 1.2
B = 0.75


def bm25_scores(tools: Sequence[Tool]) -> Callable[[str], list[float]]:
    """Return what scores every tool for a text, in the order of `tools`."""
    rows = [json.loads(tool.definition) for tool in tools]
    counts = [Counter(terms(f"{row['name']} {row.get('description') or ''}")) for row in rows]
    frequency = Counter(term for count in counts for term in count)
    mean = fmean([count.total() for count in counts] or [1.0]) or 1.0

    def score(wanted: Sequence[str], count: Counter[str]) -> float:
        norm = K1 * (1 - B + B * count.total() / mean)
        idf = {term: log(1 + (len(tools) - frequency[term] + 0.5) / (frequency[term] + 0.5)) for term in wanted}
        return sum(idf[term] * count[term] * (K1 + 1) / (count[term] + norm) for term in wanted)

    def scores(text: str) -> list[float]:
        wanted = terms(text)
        return [score(wanted, count) for count in counts]

    return scores
