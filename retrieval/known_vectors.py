"""Vectors of the tools of well-known servers, which come with foretool (`known_vectors.bin`).

A fresh machine ranks these tools by meaning before it has embedded anything. A tool is known as in `known_tools`, but
nearly all words of its definition have to be the same, and its wordings have to be those that come with foretool. The
name of its server may be another one: that hardly moves a vector.

The first line of the file is JSON: the key of the encoder that made the vectors, and how many numbers each has. Then
come the rows, each a hash of a line of `known_tools.tsv` and the numbers in 8 bits.
`python -m bench.learning.known_vectors` makes the file; it has no text of others.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from math import sqrt
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from foretool.retrieval.document import Document
from foretool.retrieval.encoders.base import WORDED_LENGTH
from foretool.retrieval.known_tools import (
    KnownTool,
    KnownTools,
    known_tools,
    share_in_common,
    sketch_definition,
    write_line,
)

FILE: Final = Path(__file__).with_name("known_vectors.bin")
_NEARLY_ALL: Final = 0.9
"""How much of the words of two definitions has to be the same: then a vector of the one serves the other."""
_HASH_BYTES: Final = 8


class Head(Struct):
    encoder: str
    dimension: Annotated[int, Meta(ge=1)]


class KnownVectors:
    def __init__(self, data: bytes, tools: KnownTools) -> None:
        """Read the bytes of a file. Raises ValueError where they are not all there."""
        head, _, rows = data.partition(b"\n")
        try:
            read = msgspec.json.decode(head, type=Head)
        except msgspec.DecodeError as error:
            raise ValueError(f"its first line is damaged: {error}") from None
        self.encoder = read.encoder
        """The key of the encoder that made them (`Weights.key`)."""
        self._tools = tools
        self._size = _HASH_BYTES + read.dimension
        if len(rows) % self._size:
            raise ValueError(f"expected rows of {self._size} bytes, found {len(rows):,} bytes in all")
        self._rows = rows
        self._starts = {
            rows[at : at + _HASH_BYTES]: at + _HASH_BYTES for at in range(0, len(rows), self._size)
        }  # fmt: skip

    def find(self, document: Document) -> bytes | None:
        """Return the shipped vector of a tool as the bytes of float32; None unless its wordings are those of a known
        tool and nearly all of its text."""
        known = self._tools.find(document) if document.wordings else None
        if known is None or document.wordings != known.wishes:
            return None
        if share_in_common(sketch_definition(document), known.sketch) < _NEARLY_ALL:
            return None
        start = self._starts.get(hash_of(known))
        return None if start is None else _unpack(self._rows[start : start + self._size - _HASH_BYTES])


def read_file() -> KnownVectors:
    """Return the vectors that come with foretool. Raises OSError and ValueError for a file that is damaged."""
    return KnownVectors(FILE.read_bytes(), known_tools())


def hash_of(tool: KnownTool) -> bytes:
    """Return the hash under which the shipped file has the vector of this tool."""
    return blake2b(write_line(tool).encode(), digest_size=_HASH_BYTES).digest()


def _unpack(data: bytes) -> bytes:
    numbers = array("b", data)
    scale = WORDED_LENGTH / sqrt(sum(each * each for each in numbers))
    return array("f", (scale * each for each in numbers)).tobytes()
