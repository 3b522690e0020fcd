"""The ranking methods that `bench.retrieval.ranking` runs, by name.

A method is one name or several joined by `+`:

    bm25            textbook BM25 over name and description, the baseline of the paired tests
    lexical         our fielded BM25, the query as one text, with words that mean nearly the same as its own
    said            the same without those words, as it stands beside an encoder
    minilm, ...     an encoder alone, by what the setting `encoder` calls it (a folder or a hub id too)
    lexical+minilm  the sum of z-scores of the words and of the named encoders
    dense           the first encoder of `--encoder` alone
    light           lexical and that encoder
    hybrid          lexical and all encoders of `--encoder`
    served          what the proxy answers: names first, each line a need, encoders where there are any
    served+minilm   the same with the named encoders
    itr             ITR as published: eq. 3 with the first encoder, BM25 and, where it is installed, the cross-encoder
    itr_hybrid      the same without the cross-encoder
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.retrieval.itr_ranking import published
from bench.retrieval.pool import DEPTH, Pool, Search, bm25
from foretool.retrieval import encoders
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.line import NeedScores
from foretool.retrieval.ranking import Query
from foretool.storage.records import ToolId


def build_method(name: str, pool: Pool) -> Search:
    """Build a method. Raises `EncoderError` for an encoder that is not there, `ValueError` for a method without one."""
    if name == "bm25":
        return bm25(pool)
    if name in ("itr", "itr_hybrid"):
        scores = published(pool, cross=name == "itr")
        return lambda text: [tool for tool, _ in scores(text)]
    if name in ("lexical", "said"):
        return lexical(pool, widened=name == "lexical")
    if name == "served":
        return served(pool)
    if name in ("dense", "light", "hybrid"):
        if not pool.encoders:
            raise ValueError(f"{name} needs an encoder; {encoders.INSTALL}")
        return dense(pool) if name == "dense" else blended(pool, 1 if name == "light" else len(pool.encoders))
    words, _, rest = name.partition("+")
    if words in ("served", "lexical"):
        others = replace(pool, encoders=pool.open(rest))
        return served(others) if words == "served" else blended(others, len(others.encoders))
    found = pool.open(name)
    if len(found) != 1:
        raise ValueError(f"{name}: expected lexical+ before several encoders, found {len(found)}")
    return dense(replace(pool, encoders=found))


def served(pool: Pool) -> Search:
    """The proxy's pipeline."""
    pipeline = pool.pipeline(len(pool.encoders))
    return lambda text: [each.tool for each in pipeline.rank(Query(tuple(text.splitlines())), limit=DEPTH).ranked]


def lexical(pool: Pool, *, widened: bool = True) -> Search:
    """Our fielded BM25 alone, the query as one text."""
    corpus = pool.corpus

    def search(text: str) -> list[ToolId]:
        hits = NeedScores(corpus, text, widened=widened).hits
        return best(corpus, [hits.get(slot, float("-inf")) for slot in range(len(corpus.ids))])

    return search


def dense(pool: Pool) -> Search:
    """The first encoder alone, the query as one text."""
    meaning = pool.pipeline(1).dense
    assert meaning is not None
    head = meaning.heads[0]
    return lambda text: best(pool.corpus, head.nearness(head.encoder.queries([text]))[0].tolist())


def blended(pool: Pool, most: int) -> Search:
    """The sum of z-scores of the words and of the first `most` encoders, the query as one text, names not read."""
    meaning = pool.pipeline(most).dense
    corpus = pool.corpus
    assert meaning is not None

    def search(text: str) -> list[ToolId]:
        line = NeedScores(corpus, text)
        (blend,) = meaning.sums([line.hits], meaning.readings([text]), [line.telling])
        order, _ = blend.best(DEPTH, {}, corpus.ids)
        return [tool for slot, _ in order if (tool := corpus.ids[slot])]

    return search


def best(corpus: Corpus, scores: Sequence[float]) -> list[ToolId]:
    """The tools with finite scores, best first; `scores` by slot."""
    order = sorted(range(len(scores)), key=lambda slot: -scores[slot])[:DEPTH]
    return [tool for slot in order if (tool := corpus.ids[slot]) and scores[slot] > float("-inf")]
