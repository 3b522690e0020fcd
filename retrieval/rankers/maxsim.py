"""Late interaction (ColBERT: Khattab and Zaharia 2020, eq. 3) over the token states of an encoder made for cosines.

score(q, d) = mean over the query's tokens of the highest cosine to any token of d. The mean instead of the sum, so that
long queries have no other range; the order is the same. No weights beside those of the encoder.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

QUERY_TOKENS, DOCUMENT_TOKENS = 128, 128
KEPT = 1024
"""Tools whose states are kept as float16, some 45 kB each: the same tools come up again and again."""


class HasStates(Protocol):
    """An encoder that shows the state of every token."""

    @property
    def name(self) -> str: ...

    def states(self, texts: Sequence[str], limit: int) -> list[Floats]: ...


class MaxSim:
    """Scores texts by their tokens' states, which are made when first asked for."""

    name = "maxsim"

    def __init__(self, encoder: HasStates, kept: int = KEPT) -> None:
        self.described = f"maxsim over {encoder.name}"
        self._encoder = encoder
        self._most = kept
        self._kept: OrderedDict[str, NDArray[np.float16]] = OrderedDict()

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """How well the tokens of the query are met in each text; (texts,)."""
        (asked,) = self._encoder.states([query], QUERY_TOKENS)
        return [similarity(asked, states) for states in self._states(texts)]

    def _states(self, texts: Sequence[str]) -> list[Floats]:
        new = [text for text in dict.fromkeys(texts) if text not in self._kept]
        for text, states in zip(new, self._encoder.states(new, DOCUMENT_TOKENS) if new else (), strict=True):
            self._kept[text] = states.astype(np.float16)
        found = [self._kept[text].astype(np.float32) for text in texts]
        for text in texts:
            self._kept.move_to_end(text)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return found


def similarity(query: Floats, document: Floats) -> float:
    """(tokens, dimension) each, rows of length 1; 0 where either has no token."""
    if not len(query) or not len(document):
        return 0.0
    return float((query @ document.T).max(1).mean())
