"""Encoders for tests: one that hashes words, and a real ONNX model of a few hundred bytes, written byte by byte.

The model is one lookup: the state of a token is a row of a table. With mean pooling, texts that share words are close.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import pack

import numpy as np
from numpy.typing import NDArray

from foretool.retrieval.encoders import unit
from foretool.retrieval.encoders.base import embed_readings
from foretool.retrieval.words import terms

WORDS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "open",
    "issue",
    "bug",
    "report",
    "page",
    "web",
    "github",
    ".",
    ":",
)
DIMENSION = 8


class HashEncoder:
    """A word is a fixed random direction; words said to be alike share one."""

    def __init__(self, name: str = "hash", alike: Sequence[set[str]] = (), dimension: int = 64) -> None:
        self.name = name
        self.alike = alike
        self.dimension = dimension
        self.asked: list[str] = []

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return embed_readings(texts, self._embed)

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked += texts
        return self._embed(texts)

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return unit(np.stack([self._vector(text) for text in texts]))

    def _vector(self, text: str) -> NDArray[np.float64]:
        total = np.zeros(self.dimension)
        for term in terms(text):
            word = next((min(group) for group in self.alike if term in group), term)
            seed = int.from_bytes(word.encode()[:8].ljust(8, b"\0"), "little")
            total += np.random.default_rng(seed).standard_normal(self.dimension)
        return total


def write_model(folder: Path) -> Path:
    """`model.onnx` and `vocab.txt` in a folder; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    table = np.random.default_rng(3).standard_normal((len(WORDS), DIMENSION)).astype(np.float32)
    (folder / "model.onnx").write_bytes(lookup_model(table))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return folder


def lookup_model(table: NDArray[np.float32]) -> bytes:
    """ONNX: last_hidden_state = Gather(table, input_ids)."""
    return _model([_node(b"Gather", (b"table", b"input_ids"), b"last_hidden_state")], {b"table": table})


def small_model(table: NDArray[np.int8], scale: NDArray[np.float32]) -> bytes:
    """ONNX: the same, where the table is integers times a scale for each row."""
    nodes = [
        _node(b"Cast", (b"table_q",), b"table_f", _field(1, b"to") + _number(3, 1) + _number(20, 2)),
        _node(b"Mul", (b"table_f", b"table_scale"), b"table"),
        _node(b"Gather", (b"table", b"input_ids"), b"last_hidden_state"),
    ]
    return _model(nodes, {b"table_q": table, b"table_scale": scale})


def _node(kind: bytes, inputs: Sequence[bytes], output: bytes, attribute: bytes = b"") -> bytes:
    given = b"".join(_field(1, each) for each in inputs)
    return given + _field(2, output) + _field(4, kind) + (_field(5, attribute) if attribute else b"")


def _model(nodes: Sequence[bytes], tables: Mapping[bytes, NDArray[np.float32] | NDArray[np.int8]]) -> bytes:
    graph = b"".join(_field(1, each) for each in nodes) + _field(2, b"lookup")
    for name, table in tables.items():
        shape = b"".join(_number(1, size) for size in table.shape)
        kind = _number(2, 1 if table.dtype == np.float32 else 3)
        graph += _field(5, shape + kind + _field(8, name) + _field(9, table.tobytes()))
    graph += _field(11, _value(b"input_ids", 7, (b"batch", b"tokens")))
    graph += _field(12, _value(b"last_hidden_state", 1, (b"batch", b"tokens", b"dimension")))
    return _number(1, 8) + _field(7, graph) + _field(8, _number(2, 13))


def _value(name: bytes, kind: int, axes: Sequence[bytes]) -> bytes:
    shape = b"".join(_field(1, _field(2, axis)) for axis in axes)
    return _field(1, name) + _field(2, _field(1, _number(1, kind) + _field(2, shape)))


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += pack("B", value & 127 | 128)
        value >>= 7
    return found + pack("B", value)
