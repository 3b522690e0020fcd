"""Embeds the texts that learning reads, each once, and keeps the vectors in the store.

A run embeds the words of tasks for `EMBED_S` seconds of processor time at most and replays the tasks whose words have
vectors. The next run goes on with the others; until most have vectors, trainings read the words of all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from foretool.server.catalog import embedding
from foretool.server.config.settings import Settings
from foretool.storage.records import Episode, ToolId
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.retrieval.corpus import Corpus
    from foretool.retrieval.encoders import Encoder, Weights
    from foretool.retrieval.model_format import Floats
    from foretool.retrieval.rankers.dense import DenseEnsemble
    from foretool.server.catalog.catalog import Catalog

EMBED_S: Final = 15.0
"""Processor seconds in which a run embeds the words of tasks."""
EMBEDDED_AT_ONCE: Final = 64
"""So many tasks are embedded before the time is looked at. Texts of like length share a batch, so more of them pad
less."""
_OF_TOOL: Final = 8
"""So many of its latest tasks make sure that a rare tool is learned."""


class EncodedTexts:
    """Turns texts into vectors by the encoders that serve, and reads vectors from the store where it has them."""

    def __init__(self, weights: Sequence[Weights], encoders: Sequence[Encoder], store: Store) -> None:
        self._weights = weights
        self._encoders = encoders
        self._store = store
        self._looked_up: dict[tuple[str, ...], bool] = {}
        """What `has_vectors` has found."""
        self.names = "+".join(each.name for each in encoders)

    @classmethod
    def open(cls, settings: Settings, store: Store) -> EncodedTexts | None:
        """Open the encoders of the settings; None if there are none or one cannot be opened."""
        from foretool.retrieval.encoders import EncoderError
        from foretool.server.catalog.encoders import open_any_encoder

        try:
            weights = embedding.find_weights(settings)
            encoders = [open_any_encoder(each, key=settings.encoder_key) for each in weights]
        except (EncoderError, OSError):
            return None
        return cls(weights, encoders, store) if weights else None

    def documents(self, texts: Sequence[str]) -> Floats:
        """Return vectors of tools' texts by the first encoder; (texts, dimension)."""
        return self.vectors(self._weights[0].key, texts, self._encoders[0].documents)

    def queries(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of tasks by all encoders side by side, (texts, sum of dimensions)."""
        from numpy import concatenate

        pairs = zip(self._weights, self._encoders, strict=True)
        return concatenate([self.query_vectors(one, texts, encoder.queries) for one, encoder in pairs], axis=1)

    def choose(
        self, episodes: Sequence[Episode], spend_s: float = EMBED_S, say: Callable[[float], None] = lambda share: None
    ) -> list[Episode]:
        """Embed the words of tasks, those of rare tools first and then the latest, until `spend_s` seconds of processor
        time are spent. Return the episodes whose words have vectors, in their order; words that are in the store cost
        nothing."""
        ordered = _by_need(episodes)
        until = time.process_time() + spend_s
        known = self._known([text for each in ordered for text in each.tasks])
        chosen: list[Episode] = []
        waiting: list[Episode] = []
        for each in ordered:
            (chosen if known.issuperset(each.tasks) else waiting).append(each)
        for start in range(0, len(waiting), EMBEDDED_AT_ONCE):
            if time.process_time() >= until:
                break
            say(start / len(waiting))
            part = waiting[start : start + EMBEDDED_AT_ONCE]
            self.queries([text for each in part for text in each.tasks])
            chosen += part
        kept = set(map(id, chosen))
        return [each for each in episodes if id(each) in kept]

    def has_vectors(self, texts: Sequence[str]) -> bool:
        """Return whether the store had a vector of each of these texts when this was first asked. Later calls return
        the same."""
        key = tuple(texts)
        if key not in self._looked_up:
            self._looked_up[key] = self._known(texts).issuperset(texts)
        return self._looked_up[key]

    def _known(self, texts: Sequence[str]) -> set[str]:
        """Return the texts whose vectors by all encoders are in the store."""
        from foretool.retrieval.corpus import digest_query

        digests = {digest_query(text): text for text in texts}
        missing = {each for one in self._weights for each in self._store.vectors.missing(one.query_key, set(digests))}
        return {text for each, text in digests.items() if each not in missing}

    def vectors(self, key: str, texts: Sequence[str], embed: Callable[[Sequence[str]], Floats]) -> Floats:
        """Return vectors of tools' texts from the store; embeds those that are missing, and saves them there. `key`:
        the encoder's key; `embed`: embeds texts."""
        from foretool.retrieval.corpus import digest

        return self._vectors(key, [(digest(text), text) for text in texts], embed)

    def query_vectors(self, weights: Weights, texts: Sequence[str], embed: Callable[[Sequence[str]], Floats]) -> Floats:
        """Return vectors of texts to search with, from the store; embeds those that are missing, and saves them
        there."""
        from foretool.retrieval.corpus import digest_query

        return self._vectors(weights.query_key, [(digest_query(text), text) for text in texts], embed)

    def _vectors(
        self, key: str, texts: Sequence[tuple[bytes, str]], embed: Callable[[Sequence[str]], Floats]
    ) -> Floats:
        import numpy as np

        kept = self._store.vectors
        wanted = dict(texts)
        known = kept.load(key, wanted)
        missing = [each for each in wanted if each not in known]
        for start in range(0, len(missing), embedding.SAVED_AT_ONCE):
            part = missing[start : start + embedding.SAVED_AT_ONCE]
            rows = embed([wanted[each] for each in part])
            new = {each: row.tobytes() for each, row in zip(part, rows, strict=True)}
            kept.save(key, new)
            known |= new
        return np.stack([np.frombuffer(known[each], np.float32) for each, _ in texts])

    def meaning(self, catalog: Catalog, corpus: Corpus) -> DenseEnsemble:
        """Return the dense ranker over the corpus of a catalog, with every tool embedded."""
        from foretool.retrieval.corpus import digest
        from foretool.retrieval.document import embedded_text
        from foretool.retrieval.rankers.dense import DenseEnsemble

        read = (corpus.read(tool, catalog.texts.about(tool.upstream))[0] for tool in catalog.tools())
        texts = [embedded_text(each) for each in read]
        # Replays read the same tasks as training did.
        meaning = DenseEnsemble([_Kept(self, *pair) for pair in zip(self._weights, self._encoders, strict=True)])
        for head, weights, encoder in zip(meaning.heads, self._weights, self._encoders, strict=True):
            rows = self.vectors(weights.key, texts, encoder.documents)
            head.add({digest(text): row.tobytes() for text, row in zip(texts, rows, strict=True)})
        meaning.align(corpus.digests, corpus.version, corpus.servers)
        return meaning


class _Kept:
    """An encoder that reads the vectors of texts from the store, and embeds only those that the store lacks."""

    def __init__(self, texts: EncodedTexts, weights: Weights, encoder: Encoder) -> None:
        self.name = encoder.name
        self._texts = texts
        self._weights = weights
        self._encoder = encoder

    def documents(self, texts: Sequence[str]) -> Floats:
        return self._texts.vectors(self._weights.key, texts, self._encoder.documents)

    def queries(self, texts: Sequence[str]) -> Floats:
        return self._texts.query_vectors(self._weights, texts, self._encoder.queries)


def _by_need(episodes: Sequence[Episode]) -> list[Episode]:
    """Return the latest tasks of tools with few tasks, then all others, the latest first; `episodes` begin with the
    oldest."""
    latest = list(reversed(episodes))
    counts: Counter[ToolId] = Counter()
    tasks_of = Counter(tool for each in latest for tool in set(each.calls))
    rare: list[Episode] = []
    others: list[Episode] = []
    for each in latest:
        needed = any(tasks_of[tool] <= _OF_TOOL or counts[tool] < 1 for tool in each.calls)
        (rare if needed else others).append(each)
        counts.update(set(each.calls))
    return [*rare, *others]
