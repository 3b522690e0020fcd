"""What training leaves behind and serving reads: models as bytes, and how they score.

A model is one string of bytes: a header of JSON and named arrays, never pickled, so that a file from elsewhere can do
no more than be refused. Who keeps it (the store) adds the checksum; what is in it is its method's affair.
Imports numpy: only who has a model imports this file.
"""

from __future__ import annotations

import io
import json
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Arrays = Mapping[str, NDArray[Any]]
Reading = tuple[Floats, ...]
"""The vectors of one text, by encoder in the order of the ranking's; (dimension,) each, of length 1."""

HEADER = "header"
MOST_BYTES = 2**30
"""Of a model when it is unpacked; a few kilobytes can say that they are terabytes."""


class ModelError(Exception):
    """These bytes are not such a model; says what was expected and what was found."""


def pack(method: str, version: int, header: Mapping[str, Any], arrays: Arrays) -> bytes:
    """A model as bytes; `header` is JSON, `version` goes up when older readers would misread it."""
    told = json.dumps({"method": method, "version": version, **header}, ensure_ascii=False).encode()
    out = io.BytesIO()
    named: dict[str, Any] = {HEADER: np.frombuffer(told, np.uint8), **arrays}
    np.savez_compressed(out, **named)
    return out.getvalue()


# Found by fuzzing, all of them: what zip, zlib and numpy raise for bytes that are none of theirs. A RuntimeError is an
# archive that is encrypted or of another kind, a MemoryError an array that says it is larger than this machine.
_NO_MODEL = (
    ValueError, KeyError, TypeError, OSError, EOFError, RuntimeError, MemoryError, OverflowError, SyntaxError,
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, struct.error,
    tokenize.TokenError,
)  # fmt: skip


def _opened(model: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    held = np.load(io.BytesIO(model), allow_pickle=False)
    if not isinstance(held, np.lib.npyio.NpzFile):
        raise ValueError("an array alone")
    with held, zipfile.ZipFile(io.BytesIO(model)) as archive:
        if sum(part.file_size for part in archive.infolist()) > MOST_BYTES:
            raise ValueError("larger than any model")
        arrays = {name: held[name] for name in held.files}
    if any(not isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("a part that is no array")
    header = json.loads(arrays.pop(HEADER).tobytes())
    if not isinstance(header, dict):
        raise ValueError("a header that is no object")
    return header, arrays


def unpack(model: bytes, method: str, version: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays. Raises `ModelError` if the bytes are damaged, of another method, or of another version."""
    try:
        header, arrays = _opened(model)
    except _NO_MODEL as error:
        raise ModelError(f"{method}: {len(model)} bytes that are no model ({type(error).__name__})") from error
    found = (header.get("method"), header.get("version"))
    if found != (method, version):
        raise ModelError(f"{method}: expected version {version} of {method}, found version {found[1]} of {found[0]}")
    return header, arrays
