"""What training leaves behind and serving reads: models as bytes, and how they score.

A model is one string of bytes: a header of JSON and named arrays, never pickled, so that a file from elsewhere can do
no more than be refused. Who keeps it (`storage.artifacts`) adds the checksum; what is in it is its method's affair.
Imports numpy: only who has a model imports this file.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from foretool.retrieval.ranking import Query
from foretool.storage.records import ToolId

Floats = NDArray[np.float32]
Arrays = Mapping[str, NDArray[Any]]

HEADER = "header"


class ModelError(Exception):
    """These bytes are not such a model; says what was expected and what was found."""


class Learned(Protocol):
    """A trained model over a corpus; it knows nothing of tools that came later and scores them 0."""

    @property
    def name(self) -> str:
        """The method, as the CLI and the docs spell it."""
        ...

    @classmethod
    def loads(cls, model: bytes) -> Self:
        """Raises `ModelError`."""
        ...

    def align(self, tools: Sequence[ToolId | None], vectors: Floats | None) -> None:
        """Follow a corpus: the tool by slot, None where one was dropped; `vectors` (slots, dimension) of the first
        encoder, None without one."""
        ...

    def score(self, query: Query, vector: Floats | None) -> Floats:
        """(slots,), 0 for what is not known; `vector` (dimension,) of the query, None without words or encoder."""
        ...


def pack(method: str, version: int, header: Mapping[str, Any], arrays: Arrays) -> bytes:
    """A model as bytes; `header` is JSON, `version` goes up when older readers would misread it."""
    told = json.dumps({"method": method, "version": version, **header}, ensure_ascii=False).encode()
    out = io.BytesIO()
    named: dict[str, Any] = {HEADER: np.frombuffer(told, np.uint8), **arrays}
    np.savez_compressed(out, **named)
    return out.getvalue()


def unpack(model: bytes, method: str, version: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays. Raises `ModelError` if the bytes are damaged, of another method, or of another version."""
    try:
        with np.load(io.BytesIO(model), allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        header: dict[str, Any] = json.loads(arrays.pop(HEADER).tobytes())
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        raise ModelError(f"{method}: {len(model)} bytes that are no model ({type(error).__name__})") from error
    found = (header.get("method"), header.get("version"))
    if found != (method, version):
        raise ModelError(f"{method}: expected version {version} of {method}, found version {found[1]} of {found[0]}")
    return header, arrays
