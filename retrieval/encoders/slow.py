"""Encoders that answer too slowly for a search to wait: their queries are asked ahead, in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from foretool.retrieval.encoders.base import BATCH, Encoder, EncoderError, embed_readings, unit
from foretool.retrieval.encoders.weights import Weights

if TYPE_CHECKING:
    from foretool.retrieval.encoders.base import Vectors

KEPT: Final = 256
"""How many texts keep their vector."""


class Ahead:
    """Answers from kept vectors; a text that was not asked ahead is a row of zeros, so the other rankers decide."""

    def __init__(self, encoder: Encoder) -> None:
        """Ask once, to learn the dimension and whether the encoder answers at all. Raises `EncoderError`."""
        self._encoder, self.name = encoder, encoder.name
        self._zeros = (
            encoder.documents(["warm"])[0] * 0
        )  # `documents` waits longer: a provider may have to load the model first
        self._kept: dict[str, Vectors] = {}

    def fetch(self, texts: Sequence[str]) -> None:
        """Ask for the vectors of texts and keep them; slow. Raises `EncoderError`."""
        new = [text for text in dict.fromkeys(texts) if text not in self._kept]
        if not new:
            return
        rows = self._encoder.queries(new)
        # Another thread may do the same; a new dictionary changes nothing under a reader of the old one.
        kept = {**self._kept, **dict(zip(new, rows, strict=True))}
        self._kept = dict(list(kept.items())[-KEPT:])

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts that are searched; slow."""
        return self._encoder.documents(texts)

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors that are known by now."""
        import numpy as np

        return np.stack([self._kept.get(text, self._zeros) for text in texts])


class SentenceTransformerEncoder:
    """Embeds with any model of sentence-transformers and its own prompts; torch takes 3 s and 500 MB to load."""

    def __init__(self, weights: Weights) -> None:
        self.weights, self.name = weights, weights.name
        wanted = weights.file or weights.name
        path = Path(wanted)
        # The library prefers a folder of this name, and the working folder may be a cloned repository.
        if not path.is_absolute() and path.exists():
            raise EncoderError(
                f"encoder {weights.name!r}: {path.absolute()} would be loaded in its place; start foretool in another"
                " folder, or name a model's folder by its full path"
            )
        from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found]

        try:
            self._model = SentenceTransformer(wanted, device="cpu")
        except (OSError, ValueError) as error:
            raise EncoderError(
                f"encoder {weights.name!r}: not in the cache and cannot be downloaded: {str(error).splitlines()[0]};"
                " download it once where there is a network, or name a folder"
            ) from error

    def documents(self, texts: Sequence[str]) -> Vectors:
        return embed_readings(texts, lambda read: unit(self._model.encode_document(read, batch_size=BATCH)))

    def queries(self, texts: Sequence[str]) -> Vectors:
        return unit(self._model.encode_query(list(texts), batch_size=BATCH))
