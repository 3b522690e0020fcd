"""What every encoder can do, and what all kinds of encoders share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from foretool.retrieval.document import IN_ENGLISH, READING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]
    """(texts, dimension), each row of length 1, or `WORDED_LENGTH` for a text with wordings."""

BATCH = 16
"""How many texts run at once; more is no faster on two cores and takes more memory."""
BATCH_TOKENS = 1024
"""How many tokens run at once, padding included, unless one text has more."""
WORDED = 0.2
"""What the wordings of a text count beside the text (`docs/benchmarks.md`)."""
WORDED_LENGTH = 0.95
"""How long the vector of such a text is. At length 1 a tool without wordings would stand lower beside it: what is made
of several readings is near to more tasks."""


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


def embed_readings(
    texts: Sequence[str], embed: Callable[[list[str]], Vectors], *, english_only: bool = False
) -> Vectors:
    """Embed the texts of tools; returns (texts, dimension). The own text and each wording of a tool are embedded by
    themselves and then mixed into one vector, in which all wordings together count as one text beside the own one.
    `english_only`: the encoder reads English alone, so the English of a text takes its place."""
    import numpy as np

    readings = [text.split(READING) for text in texts]
    for one in readings:
        text, _, english = one[0].partition(IN_ENGLISH)
        one[0] = english if english and english_only else text
    rows = embed([each for one in readings for each in one])
    if len(rows) == len(texts):
        return rows
    ends = np.cumsum([len(one) for one in readings])
    mixed: Vectors = np.stack([_mix(rows[end - len(one) : end]) for end, one in zip(ends, readings, strict=True)])
    return mixed


def _mix(rows: Vectors) -> Vectors:
    """Return one vector of a text and its wordings; (readings, dimension)."""
    if len(rows) == 1:
        alone: Vectors = rows[0]
        return alone
    mixed = unit((1 - WORDED) * rows[0] + WORDED * unit(rows[1:].mean(0)))
    scaled: Vectors = WORDED_LENGTH * mixed
    return scaled
