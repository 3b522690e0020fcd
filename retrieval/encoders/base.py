"""What every encoder can do, and what all kinds of encoders share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]
    """(texts, dimension), each row of length 1."""

BATCH = 16
"""How many texts run at once; more is no faster on two cores and takes more memory."""
BATCH_TOKENS = 1024
"""How many tokens run at once, padding included, unless one text has more."""


class EncoderError(Exception):
    """No usable encoder; the message says what was looked for, what was found, and the way out."""


class Encoder(Protocol):
    """Turns texts into float32 vectors of length 1; texts that are searched and texts to search with differ."""

    @property
    def name(self) -> str: ...

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts that are searched. Raises `EncoderError`."""

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Embed texts to search with. Raises `EncoderError`."""


def unit(vectors: Any) -> Vectors:
    """Scale vectors to length 1 along the last axis, as float32; zeros stay zeros."""
    import numpy as np

    rows: Vectors = np.asarray(vectors, np.float32)
    scaled: Vectors = rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), np.float32(1e-12))
    return scaled
