"""The rankers that the benchmark of retrieval runs, by name, and what they search.

A method is one name or several joined by `+`:

    bm25            textbook BM25 over name and description, the baseline of the paired tests
    lexical         our fielded BM25, the query as one text
    minilm, ...     an encoder alone, by what the setting `encoder` calls it (a folder or a hub id too)
    lexical+minilm  the sum of z-scores, of as many encoders as are named
    dense           the first encoder of `--encoder` alone
    light           lexical and that one
    hybrid          lexical and all encoders of `--encoder`
    served          what the proxy answers: names first, each line a need, encoders where there are any
    served+minilm   the same with the encoders that are named
    itr             ITR as published: eq. 3 with the first encoder, BM25 and, where it is installed, the cross-encoder
    itr_hybrid      the same without the cross-encoder
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from statistics import fmean

from foretool.retrieval import encoders
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.encoders import Encoder
from foretool.retrieval.pipeline import Corpus, Pipeline, digest
from foretool.retrieval.rankers.bm25 import weighted
from foretool.retrieval.ranking import Query, Ranked, Ranking
from foretool.retrieval.words import terms
from foretool.storage.records import Tool, ToolId
from foretool.storage.stores import VectorStore

DEPTH = 50

Search = Callable[[str], list[ToolId]]
Scored = Callable[[str], Ranking]
Open = Callable[[str], "list[Embedder]"]
"""The encoders that a setting means."""


@dataclass(frozen=True)
class Pool:
    """What is searched, and with which encoders."""

    tools: Sequence[Tool]
    texts: Mapping[str, str]
    """What the servers say of themselves."""
    encoders: Sequence[Embedder] = ()
    open: Open = lambda setting: []
    """How other encoders than those are had."""

    @cached_property
    def corpus(self) -> Corpus:
        return Corpus(self.tools, self.texts)

    @cached_property
    def said(self) -> dict[ToolId, str]:
        """What encoders read of each tool."""
        return {tool.id: embedded_text(document(tool, self.texts.get(tool.upstream, ""))) for tool in self.tools}

    def pipeline(self, most: int = 2) -> Pipeline:
        """The ranking with the first so many encoders."""
        if not self.encoders[:most]:
            return Pipeline(self.corpus)
        from foretool.retrieval.rankers.dense import Meaning

        meaning = Meaning([each.encoder for each in self.encoders[:most]])
        for head, embedder in zip(meaning.heads, self.encoders, strict=False):
            head.add(embedder.vectors(list(self.said.values())))
        meaning.align(self.corpus.digests, self.corpus.version)
        return Pipeline(self.corpus, meaning)


@dataclass(frozen=True)
class Embedder:
    """An encoder that keeps what it has embedded."""

    encoder: Encoder
    key: str
    kept: VectorStore

    def vectors(self, texts: Sequence[str]) -> dict[bytes, bytes]:
        wanted = {digest(text): text for text in texts}
        found = self.kept.load(self.key, wanted)
        missing = [each for each in wanted if each not in found]
        for start in range(0, len(missing), 256):
            part = missing[start : start + 256]
            rows = self.encoder.documents([wanted[each] for each in part])
            new = {each: row.tobytes() for each, row in zip(part, rows, strict=True)}
            self.kept.save(self.key, new)
            found |= new
        return found


def method(name: str, pool: Pool) -> Search:
    """Build one. Raises `EncoderError` for an encoder that is not there, `ValueError` for what needs one."""
    if name == "bm25":
        return bm25(pool)
    if name in ("itr", "itr_hybrid"):
        from bench.papers.itr import published

        search = published(pool, cross=name == "itr")
        return lambda text: [tool for tool, _ in search(text)]
    return named(scored(name, pool))


def named(search: Scored) -> Search:
    return lambda text: [each.tool for each in search(text).ranked]


def scored(name: str, pool: Pool) -> Scored:
    """A method whose scores are kept."""
    if name == "lexical":
        return lexical(pool)
    if name == "served":
        pipeline = pool.pipeline(len(pool.encoders))
        return lambda text: pipeline.rank(Query(tuple(text.splitlines())), limit=DEPTH)
    if name in ("dense", "light", "hybrid"):
        if not pool.encoders:
            raise ValueError(f"{name} needs an encoder; {encoders.INSTALL}")
        return dense(pool) if name == "dense" else blended(pool, 1 if name == "light" else len(pool.encoders))
    words, _, rest = name.partition("+")
    if words == "served":
        return scored("served", replace(pool, encoders=pool.open(rest)))
    if words == "lexical":
        found = pool.open(rest)
        return blended(replace(pool, encoders=found), len(found))
    found = pool.open(name)
    if len(found) != 1:
        raise ValueError(f"{name}: expected lexical+ before several encoders, found {len(found)}")
    return dense(replace(pool, encoders=found))


def lexical(pool: Pool) -> Scored:
    """Our fielded BM25 alone, the query as one text."""
    corpus = pool.corpus

    def search(text: str) -> Ranking:
        hits = corpus.lexical.search(weighted(text))
        return ordered(corpus, [hits.get(slot, float("-inf")) for slot in range(len(corpus.ids))])

    return search


def dense(pool: Pool) -> Scored:
    """The first encoder alone, the query as one text."""
    meaning = pool.pipeline(1).meaning
    assert meaning is not None
    head = meaning.heads[0]
    return lambda text: ordered(pool.corpus, head.cosines([text])[0].tolist())


def blended(pool: Pool, most: int) -> Scored:
    """The sum of z-scores, the query as one text, names not read."""
    meaning = pool.pipeline(most).meaning
    corpus = pool.corpus
    assert meaning is not None

    def search(text: str) -> Ranking:
        hits = corpus.lexical.search(weighted(text))
        (blend,) = meaning.blends([text], [hits])
        order, total = blend.best(DEPTH, {}, corpus.ids)
        return Ranking(tuple(Ranked(tool, score) for slot, score in order if (tool := corpus.ids[slot])), total)

    return search


def ordered(corpus: Corpus, scores: Sequence[float]) -> Ranking:
    """The finite scores of all slots, best first."""
    order = sorted(range(len(scores)), key=lambda slot: -scores[slot])[:DEPTH]
    kept = ((corpus.ids[slot], scores[slot]) for slot in order)
    return Ranking(tuple(Ranked(tool, score) for tool, score in kept if tool and score > float("-inf")))


def bm25(pool: Pool) -> Search:
    """Textbook BM25 over name and description as one field: the baseline."""
    tools, scored = pool.tools, bm25_scores(pool)

    def search(text: str) -> list[ToolId]:
        scores = scored(text)
        slots = sorted((slot for slot in range(len(tools)) if scores[slot] > 0), key=lambda slot: -scores[slot])
        return [tools[slot].id for slot in slots[:DEPTH]]

    return search


def bm25_scores(pool: Pool, k1: float = 1.2, b: float = 0.75) -> Callable[[str], list[float]]:
    """Its score for every tool of the pool, in the pool's order."""
    tools = pool.tools
    rows = [json.loads(tool.definition) for tool in tools]
    counts = [Counter(terms(f"{row['name']} {row.get('description') or ''}")) for row in rows]
    frequency = Counter(term for count in counts for term in count)
    mean = fmean(count.total() for count in counts) or 1.0

    def score(wanted: Sequence[str], count: Counter[str]) -> float:
        norm = k1 * (1 - b + b * count.total() / mean)
        idf = {term: log(1 + (len(tools) - frequency[term] + 0.5) / (frequency[term] + 0.5)) for term in wanted}
        return sum(idf[term] * count[term] * (k1 + 1) / (count[term] + norm) for term in wanted)

    def scores(text: str) -> list[float]:
        wanted = terms(text)
        return [score(wanted, count) for count in counts]

    return scores
