"""Adapters: a trained encoder as two thin matrices for each wide matrix of a known model.

Training leaves the weights of an installed model as they are and adds to each matrix W (in, out) a product A B of rank
r (LoRA). Only A and B are kept: about a megabyte instead of ninety. `apply_adapter` adds A B to the model in memory
when it is opened, so nothing is written.

`Graph` reads an ONNX file, replaces some of its matrices, and writes it again; as far as adapters need it. A file is a
message of protocol buffers: the graph in a model, its nodes, and its initializers, which are the matrices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from foretool.retrieval.model_format import Floats, ModelError, pack, unpack

METHOD, _VERSION = "ports", 1
_KINDS = ("float32", "float16")
"""The types in which the thin matrices may be stored."""
_FLOAT32 = 1  # TensorProto.DataType
_KIND_OF = {_FLOAT32: np.float32, 3: np.int8}
_GRAPH, _NODES, _TENSORS = 7, 1, 5
"""The fields of a model and of its graph that are replaced."""

Part = bytes | memoryview


class Adapter(Struct, frozen=True):
    """What training changed in the matrices of a model: to each the product of two thin ones is added."""

    base: str
    """sha256 of the model file."""
    changes: Mapping[str, tuple[Floats, Floats]]
    """By the initializer's name: A (in, r) and B (r, out), to be added as A @ B."""
    report: Mapping[str, Any] = {}
    """The report of the training: sets, seed, losses, figures before and after."""

    def dumps(self) -> bytes:
        """Encode the adapter for `loads`; its numbers are kept as float16."""
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


def matrices(model: bytes) -> dict[str, Floats]:
    """Return the float32 matrices of a model by name, those that it keeps as small integers among them."""
    graph = Graph(model)
    return {name: rows for name in graph.names() if (rows := graph.matrix(name)) is not None}


def apply_adapter(adapter: Adapter, model: bytes) -> bytes:
    """Return the model with the changes added to its matrices. Raises `ModelError` if one does not fit.

    A matrix of small integers becomes one of float32 where it is changed. A table whose rows are looked up stays small,
    and the rows that were looked up are multiplied (MiniLM's vocabulary: 12 instead of 47 MB in memory).
    """
    graph = Graph(model)
    for name, (left, right) in adapter.changes.items():
        rows, shape = graph.matrix(name), (left.shape[0], right.shape[1])
        if rows is None or rows.shape != shape:
            raise ModelError(f"ports: {name} {shape}: the model has {'none' if rows is None else rows.shape}")
        # `left @ right` would start numpy's threads, which takes a second on a busy machine.
        rows += np.einsum("ir,rj->ij", left, right)
        graph.replace(name, rows)
    graph.look_up_first()
    return graph.dumps()


class Node(NamedTuple):
    kind: str
    inputs: list[str]
    output: str
    attributes: list[Any]
    raw: Part

    @classmethod
    def read(cls, raw: memoryview) -> Self:
        fields = _read(raw)
        inputs = [_text([each]) for each in fields[1]]
        return cls(_text(fields[4]), inputs, _text(fields[2]), fields[5], raw)


class Graph:
    """An ONNX model: its nodes, and its initializers, of which some may be replaced. This exporter keeps a matrix as
    int8 with a scale: `name = Mul(Cast(name_q), name_scale)`."""

    def __init__(self, model: bytes) -> None:
        self._model = _read(model)
        self._graph = _read(self._model[_GRAPH][0])
        self._nodes = [Node.read(each) for each in self._graph[_NODES]]
        self._tensors: dict[str, Part] = {_text(_read(each)[8]): each for each in self._graph[_TENSORS]}
        casts = {each.output: each for each in self._nodes if each.kind == "Cast" and each.inputs[0] in self._tensors}
        self._scaled = {
            each.output: (casts[each.inputs[0]], each)
            for each in self._nodes
            if each.kind == "Mul" and each.inputs[0] in casts and each.inputs[1] in self._tensors
        }
        """The two nodes that make a matrix of small integers, by its name."""

    def names(self) -> list[str]:
        parts = {name for cast, scaled in self._scaled.values() for name in (cast.inputs[0], scaled.inputs[1])}
        return [*(name for name in self._tensors if name not in parts), *self._scaled]

    def matrix(self, name: str) -> Floats | None:
        """Return a copy of the matrix of this name, None if there is none of float32."""
        if name not in self._scaled:
            rows = self._numbers(name)
            return rows.copy() if rows is not None and rows.dtype == np.float32 else None
        cast, scaled = self._scaled[name]
        small, scale = self._numbers(cast.inputs[0]), self._numbers(scaled.inputs[1])
        if small is None or scale is None:
            return None
        found: Floats = small.astype(np.float32)
        found *= scale
        return found

    def _numbers(self, name: str) -> NDArray[Any] | None:
        fields = _read(self._tensors.get(name, b""))
        kind = _KIND_OF.get(next(_numbers(fields[2]), 0))
        if kind is None or not fields[9]:
            return None
        return np.frombuffer(fields[9][0], kind).reshape(tuple(_numbers(fields[1])))

    def replace(self, name: str, rows: Floats) -> None:
        """Put a float32 matrix in the place of the one of this name."""
        if name in self._scaled:
            cast, scaled = self._scaled.pop(name)
            del self._tensors[cast.inputs[0]], self._tensors[scaled.inputs[1]]
            self._nodes = [each for each in self._nodes if each is not cast and each is not scaled]
        shape = [(1, size) for size in rows.shape]
        self._tensors[name] = _write(*shape, (2, _FLOAT32), (8, name.encode()), (9, rows.tobytes()))

    def look_up_first(self) -> None:
        """Have rows of small integers be looked up before they are multiplied, where each row has a scale."""
        for name, (cast, scaled) in list(self._scaled.items()):
            readers = [each for each in self._nodes if name in each.inputs]
            small, scale = self._numbers(cast.inputs[0]), self._numbers(scaled.inputs[1])
            if small is None or scale is None or scale.shape != (len(small), 1):
                continue
            if all(each.kind == "Gather" and each.inputs[0] == name for each in readers):
                made = {id(each): _look_up(each, cast, scaled) for each in readers}
                made |= {id(cast): [], id(scaled): []}
                self._nodes = [new for each in self._nodes for new in made.get(id(each), [each])]

    def dumps(self) -> bytes:
        """Return the model as a file has it."""
        self._graph[_NODES] = [each.raw for each in self._nodes]
        self._graph[_TENSORS] = list(self._tensors.values())
        self._model[_GRAPH] = [_write(*_pairs(self._graph))]
        return _write(*_pairs(self._model))


def _look_up(gather: Node, cast: Node, scaled: Node) -> list[Node]:
    """Return the nodes that look up integers and their scales, and multiply these."""
    (small, scale), (_, index) = (cast.inputs[0], scaled.inputs[1]), gather.inputs
    rows, floats, scales = (f"{gather.output}_{part}" for part in ("small", "float", "scale"))
    wanted: tuple[tuple[str, list[str], str, list[Any]], ...] = (
        ("Gather", [small, index], rows, gather.attributes),
        ("Gather", [scale, index], scales, gather.attributes),
        ("Cast", [rows], floats, cast.attributes),
        ("Mul", [floats, scales], gather.output, []),
    )
    return [
        Node(
            kind, inputs, output, attributes,
            _write(
                *((1, each.encode()) for each in inputs),
                (2, output.encode()),
                (4, kind.encode()),
                *((5, each) for each in attributes),
            ),
        )
        for kind, inputs, output, attributes in wanted
    ]  # fmt: skip


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


def _pairs(fields: Mapping[int, Sequence[int | Part]]) -> Iterator[tuple[int, int | Part]]:
    return ((number, each) for number, values in fields.items() for each in values)


def _write(*fields: tuple[int, int | Part]) -> bytes:
    """Return a message; it has no numbers of fixed size, which neither a model nor a graph has."""
    parts: list[Part] = []
    for number, value in fields:
        if isinstance(value, int):
            parts += (_as_varint(number << 3), _as_varint(value))
        else:
            parts += (_as_varint(number << 3 | 2), _as_varint(len(value)), value)
    return b"".join(parts)


def _as_varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
