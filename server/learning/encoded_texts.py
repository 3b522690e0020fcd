"""Embeds the texts that learning reads, every task and every tool at once, and keeps the vectors in the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from foretool.server.catalog import embedding
from foretool.server.config.settings import Settings
from foretool.storage.stores import Store

if TYPE_CHECKING:
    from foretool.retrieval.corpus import Corpus
    from foretool.retrieval.encoders import Encoder, Weights
    from foretool.retrieval.model_format import Floats
    from foretool.retrieval.rankers.dense import DenseEnsemble
    from foretool.server.catalog.catalog import Catalog


class EncodedTexts:
    """Turns texts into vectors by the encoders that serve, and reads vectors from the store where it has them."""

    def __init__(self, weights: Sequence[Weights], encoders: Sequence[Encoder], store: Store) -> None:
        self._weights = weights
        self._encoders = encoders
        self._store = store
        self.names = "+".join(each.name for each in encoders)

    @classmethod
    def open(cls, settings: Settings, store: Store) -> EncodedTexts | None:
        """Open the encoders of the settings; None if there are none or one cannot be opened."""
        from foretool.retrieval.encoders import EncoderError
        from foretool.server.catalog.encoders import open_encoder

        try:
            weights = embedding.find_weights(settings)
            folder = embedding.find_cache_folder(store)
            encoders = [open_encoder(each, folder, key=settings.encoder_key) for each in weights]
        except (EncoderError, OSError):
            return None
        return cls(weights, encoders, store) if weights else None

    def documents(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of the text of tools by the first encoder, (texts, dimension)."""
        return self._vectors(self._weights[0].key, texts, self._encoders[0].documents)

    def queries(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of tasks by all encoders side by side, (texts, sum of dimensions)."""
        from numpy import concatenate

        pairs = zip(self._weights, self._encoders, strict=True)
        return concatenate([self._vectors(one.query_key, texts, encoder.queries) for one, encoder in pairs], axis=1)

    def _vectors(self, key: str, texts: Sequence[str], embed: Callable[[Sequence[str]], Floats]) -> Floats:
        import numpy as np

        from foretool.retrieval.corpus import digest

        kept = self._store.vectors
        wanted = {digest(text): text for text in texts}
        known = kept.load(key, wanted)
        missing = [each for each in wanted if each not in known]
        for start in range(0, len(missing), embedding.SAVED_AT_ONCE):
            part = missing[start : start + embedding.SAVED_AT_ONCE]
            rows = embed([wanted[each] for each in part])
            new = {each: row.tobytes() for each, row in zip(part, rows, strict=True)}
            kept.save(key, new)
            known |= new
        return np.stack([np.frombuffer(known[digest(text)], np.float32) for text in texts])

    def meaning(self, catalog: Catalog, corpus: Corpus) -> DenseEnsemble:
        """Return the dense ranker over the corpus of a catalog, with every tool embedded."""
        from foretool.retrieval.corpus import digest
        from foretool.retrieval.document import document, embedded_text
        from foretool.retrieval.rankers.dense import DenseEnsemble

        texts = [embedded_text(document(tool, catalog.server_text(tool.upstream))) for tool in catalog.tools()]
        meaning = DenseEnsemble(self._encoders)
        for head, weights, encoder in zip(meaning.heads, self._weights, self._encoders, strict=True):
            rows = self._vectors(weights.key, texts, encoder.documents)
            head.add({digest(text): row.tobytes() for text, row in zip(texts, rows, strict=True)})
        meaning.align(corpus.digests, corpus.version, corpus.servers)
        return meaning
