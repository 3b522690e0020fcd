"""Adapters: a trained encoder as two thin matrices for each wide matrix of a known model.

Training leaves the weights of an installed model as they are and adds to each matrix W (in, out) a product A B of rank
r (LoRA). Only A and B are kept: about a megabyte instead of ninety. Serving takes the model apart once (onnxruntime
writes its numbers, folded to float32, into a file of their own) and adds A B to them in place. ONNX files are read here
as far as this takes: the names, shapes and places of a graph's initializers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from foretool.retrieval.model_format import NUMBERS, Floats, ModelError, pack, unpack

METHOD, _VERSION = "ports", 1
_FLOAT32 = 1  # TensorProto.DataType
_KINDS = ("float32", "float16")
"""The types in which the thin matrices may be stored."""


class Adapter(Struct, frozen=True):
    """The changes to the matrices of one model."""

    base: str
    """sha256 of the model file."""
    changes: Mapping[str, tuple[Floats, Floats]]
    """By the initializer's name: A (in, r) and B (r, out), to be added as A @ B."""
    report: Mapping[str, Any] = {}
    """The report of the training: sets, seed, losses, figures before and after."""

    def dumps(self) -> bytes:
        """Encode the adapter, with numbers in half precision."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, (left, right) in self.changes.items():
            arrays[f"{name}|left"] = left.astype(np.float16)
            arrays[f"{name}|right"] = right.astype(np.float16)
        return pack(METHOD, _VERSION, {"base": self.base, "report": dict(self.report)}, arrays)


def loads(model: bytes) -> Adapter:
    """Decode an adapter. Raises `ModelError`."""
    header, arrays = unpack(model, METHOD, _VERSION)
    base = header.get("base")
    names = sorted({name.rpartition("|")[0] for name in arrays})
    if not isinstance(base, str) or {f"{name}|{side}" for name in names for side in ("left", "right")} != set(arrays):
        raise ModelError("ports: expected the base and pairs of matrices; train it again")
    changes = {}
    for name in names:
        left, right = (arrays[f"{name}|{side}"] for side in ("left", "right"))
        if str(left.dtype) not in _KINDS or left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
            raise ModelError(
                f"ports: {name}: {left.shape} and {right.shape} {left.dtype} are not a pair of thin matrices"
            )
        changes[name] = (left.astype(np.float32), right.astype(np.float32))
    return Adapter(base, changes, header.get("report") or {})


def check_base(adapter: Adapter, base: str) -> None:
    """Check that an adapter belongs to this file. Raises `ModelError` if it does not."""
    if adapter.base != base:
        raise ModelError(f"ports: trained on weights {adapter.base[:12]}, the encoder has {base[:12]}; train it again")


def matrices(model: Path) -> dict[str, Floats]:
    """Return the float32 initializers by name, read from the file beside the model."""
    return _matrices(model, np.memmap(model.with_name(NUMBERS), np.uint8, "r"))


def apply_adapter(adapter: Adapter, model: Path) -> None:
    """Add the changes to a model that was taken apart. Raises `ModelError`, and writes nothing, if one does not fit."""
    data = np.memmap(model.with_name(NUMBERS), np.uint8, "r+")
    found = _matrices(model, data)
    for name, (left, right) in adapter.changes.items():
        shape = (left.shape[0], right.shape[1])
        if name not in found or found[name].shape != shape:
            raise ModelError(f"ports: {name} {shape}: the model has {found[name].shape if name in found else 'none'}")
    for name, (left, right) in adapter.changes.items():
        found[name] += left @ right  # other readers of the file see it at once; nothing waits for the disk


def _matrices(model: Path, data: NDArray[np.uint8]) -> dict[str, Floats]:
    """Return the float32 initializers whose numbers stand in `data`, as views of it."""
    found = {}
    for graph in _read(model.read_bytes())[7]:
        for tensor in map(_read, _read(graph)[5]):
            told = {_text(entry[1]): _text(entry[2]) for entry in map(_read, tensor[13])}
            if "offset" in told and next(_numbers(tensor[2]), 0) == _FLOAT32:
                shape, start = tuple(_numbers(tensor[1])), int(told["offset"])
                rows = data[start : start + 4 * prod(shape)].view(np.float32)
                found[_text(tensor[8])] = rows.reshape(shape)
    return found


# Protocol buffers


def _read(message: bytes | memoryview) -> dict[int, list[Any]]:
    """Return the fields of a message by number: varints as they are, everything else as bytes."""
    view, at = memoryview(message), 0
    found: dict[int, list[Any]] = defaultdict(list)
    while at < len(view):
        tag, at = _varint(view, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(view, at)
            found[tag >> 3].append(value)
            continue
        size = {1: 8, 5: 4}.get(kind, 0)
        if kind == 2:
            size, at = _varint(view, at)
        found[tag >> 3].append(view[at : at + size])
        at += size
    return found


def _numbers(values: Sequence[int | memoryview]) -> Iterator[int]:
    """Yield the varints of a field, packed or not."""
    for value in values:
        if isinstance(value, int):
            yield value
            continue
        at = 0
        while at < len(value):
            found, at = _varint(value, at)
            yield found


def _text(values: Sequence[memoryview]) -> str:
    return bytes(values[0]).decode("utf-8", "replace") if values else ""


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
