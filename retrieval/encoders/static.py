"""Encoders without a network of neurons: a text is the mean of what its pieces stand for; 0.03 ms a query.

`wordllama`: one row a token, taken from the input layers of large language models (the package's own loader goes to a
model hub, so its two files are read here). `hash`: words and their trigrams at hashed places, for who has nothing else;
it only forgives spelling.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from foretool.retrieval.encoders.opening import Encoder, unit
from foretool.retrieval.encoders.weights import INSTALL, EncoderError, Weights, locate, verified
from foretool.retrieval.words import terms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from foretool.retrieval.encoders.opening import Vectors

DIMENSION = 1024
"""Of hashed n-grams; at 256 unlike words meet too often."""
WORD, TRIGRAM = 1.0, 0.3
"""What a word counts, and each three letters of it."""
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


def opened(weights: Weights) -> Encoder:
    """Raises `EncoderError`."""
    if weights.kind == "hash":
        return HashEncoder(weights)
    path = locate(weights)
    if path is None:
        raise EncoderError(f"encoder {weights.name!r}: {weights.package} is not there; {INSTALL} {weights.package}")
    return StaticEncoder(weights, verified(path, weights), path.parents[1] / _TOKENIZER)


class StaticEncoder:
    """One row a token; a text is the mean of its rows."""

    def __init__(self, weights: Weights, rows: Path, tokenizer: Path) -> None:
        from tokenizers import Tokenizer

        self.weights = weights
        self._rows = tensor(rows, "embedding.weight")
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    @property
    def name(self) -> str:
        return self.weights.name

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed what is searched."""
        return self._embed(texts, self.weights.document_tokens)

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Embed what it is searched with."""
        return self._embed(texts, self.weights.query_tokens)

    def _embed(self, texts: Sequence[str], limit: int) -> Vectors:
        import numpy as np

        found = np.zeros((len(texts), self._rows.shape[1]), np.float32)
        for place, text in enumerate(texts):
            if ids := self._tokenizer.encode(text[: limit * 12], add_special_tokens=False).ids[:limit]:
                found[place] = self._rows[ids].mean(0, dtype=np.float32)
        return unit(found)


class HashEncoder:
    """Each word and each of its trigrams has a place and a sign that its checksum gives (Weinberger et al. 2009)."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    @property
    def name(self) -> str:
        return self.weights.name

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed what is searched."""
        import numpy as np

        found = np.zeros((len(texts), DIMENSION), np.float32)
        for place, text in enumerate(texts):
            for term in terms(text):
                for at, value in _places(term):
                    found[place, at] += value
        return unit(found)

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Embed what it is searched with."""
        return self.documents(texts)


@lru_cache(maxsize=8192)
def _places(term: str) -> tuple[tuple[int, float], ...]:
    return tuple(_hashed(term))


def _hashed(term: str) -> Iterator[tuple[int, float]]:
    marked = f"^{term}$"
    for gram, weight in [(term, WORD), *((marked[at : at + 3], TRIGRAM) for at in range(len(marked) - 2))]:
        number = crc32(gram.encode("utf-8", "replace"))
        yield number % DIMENSION, weight if number >> 31 else -weight


def tensor(path: Path, name: str) -> NDArray[np.float16]:
    """One float16 array of a safetensors file, mapped: eight bytes of length, JSON, then the numbers.

    Raises `EncoderError`."""
    import numpy as np

    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(size))
    told = header.get(name)
    if told is None or told["dtype"] != "F16":
        raise EncoderError(f"{path}: expected {name!r} as F16, found {', '.join(map(repr, header))}")
    start, _ = told["data_offsets"]
    return np.memmap(path, np.float16, "r", 8 + size + start, tuple(told["shape"]))
