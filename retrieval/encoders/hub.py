"""Any model of sentence-transformers; needs torch, and takes 3 s and 500 MB before the first vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretool.retrieval.encoders.base import BATCH, EncoderError, unit
from foretool.retrieval.encoders.weights import Weights

if TYPE_CHECKING:
    from foretool.retrieval.encoders.base import Vectors


class SentenceTransformerEncoder:
    """Embeds with a model given by id or folder, under the model's own prompts for queries and documents."""

    def __init__(self, weights: Weights) -> None:
        from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found]

        self.weights, self.name = weights, weights.name
        try:
            self._model = SentenceTransformer(weights.name, device="cpu")
        except (OSError, ValueError) as error:
            raise EncoderError(
                f"encoder {weights.name!r}: not in the cache and cannot be downloaded: {str(error).splitlines()[0]};"
                " download it once where there is a network, or name a folder"
            ) from error

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts that are searched."""
        return unit(self._model.encode_document(list(texts), batch_size=BATCH))

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Embed texts to search with."""
        return unit(self._model.encode_query(list(texts), batch_size=BATCH))
