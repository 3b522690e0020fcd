"""Adapters: a trained encoder as two thin matrices for each wide matrix of a known model.

Training leaves the weights of an installed model as they are and adds to each matrix W (in, out) a product A B of rank
r (LoRA). Only A and B are kept: about a megabyte instead of ninety. `apply_adapter` adds A B to the model in memory
when it is opened, so nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from foretool.retrieval.model_format import Floats, ModelError, pack, unpack
from foretool.retrieval.onnx_graph import Graph

METHOD, _VERSION = "ports", 1
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
