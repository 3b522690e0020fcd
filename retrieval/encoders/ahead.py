"""An encoder that answers too slowly to be waited for: its queries are asked ahead, in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from foretool.retrieval.encoders.opening import Encoder

if TYPE_CHECKING:
    from foretool.retrieval.encoders.opening import Vectors

KEPT: Final = 256
"""Texts whose vector is kept."""


class Ahead:
    """What was not asked ahead is a row of zeros: near to nothing, so the other rankers decide."""

    def __init__(self, encoder: Encoder) -> None:
        """Asks once, to learn the dimension and whether it answers at all. Raises `EncoderError`."""
        self._encoder = encoder
        self._zeros = encoder.documents(["warm"])[0] * 0  # patiently: a provider may have to load the model first
        self._kept: dict[str, Vectors] = {}

    @property
    def name(self) -> str:
        return self._encoder.name

    def fetch(self, texts: Sequence[str]) -> None:
        """Ask; takes its time. Raises `EncoderError`."""
        new = [text for text in dict.fromkeys(texts) if text not in self._kept]
        if not new:
            return
        rows = self._encoder.queries(new)
        # Another thread may do the same: a whole new dictionary never changes under who reads the old one.
        kept = {**self._kept, **dict(zip(new, rows, strict=True))}
        self._kept = dict(list(kept.items())[-KEPT:])

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed what is searched; takes its time."""
        return self._encoder.documents(texts)

    def queries(self, texts: Sequence[str]) -> Vectors:
        """What is known by now."""
        import numpy as np

        return np.stack([self._kept.get(text, self._zeros) for text in texts])
