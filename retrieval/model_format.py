"""The format of trained models: what training writes and serving reads.

A model is one string of bytes: a header of JSON and named arrays. Nothing is pickled, so a file from elsewhere can only
be refused. The store adds the checksum. This module imports numpy: only a process with a model imports it.
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
"""The vectors of one text by all encoders, in their order; (dimension,) each, of length 1."""

_HEADER = "header"
_MOST_BYTES = 2**30
"""The largest size of an unpacked model; a few kilobytes can claim to be terabytes."""


class ModelError(Exception):
    """These bytes are not such a model; the message says what was expected and what was found."""


def pack(method: str, version: int, header: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Encode a model; `header` becomes JSON, `version` goes up when older readers would misread it."""
    told = json.dumps({"method": method, "version": version, **header}, ensure_ascii=False).encode()
    out = io.BytesIO()
    named: dict[str, Any] = {_HEADER: np.frombuffer(told, np.uint8), **arrays}
    np.savez_compressed(out, **named)
    return out.getvalue()


# Fuzzing found all of these: zip, zlib and numpy raise them for foreign bytes. A RuntimeError means an encrypted
# archive or one of another kind, a MemoryError an array that claims to be larger than this machine.
_NO_MODEL = (
    ValueError, KeyError, TypeError, OSError, EOFError, RuntimeError, MemoryError, OverflowError, SyntaxError,
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, struct.error,
    tokenize.TokenError,
)  # fmt: skip


def _decode(model: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    held = np.load(io.BytesIO(model), allow_pickle=False)
    if not isinstance(held, np.lib.npyio.NpzFile):
        raise ValueError("an array alone")
    with held, zipfile.ZipFile(io.BytesIO(model)) as archive:
        if sum(part.file_size for part in archive.infolist()) > _MOST_BYTES:
            raise ValueError("larger than any model")
        arrays = {name: held[name] for name in held.files}
    if any(not isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("a part that is not an array")
    header = json.loads(arrays.pop(_HEADER).tobytes())
    if not isinstance(header, dict):
        raise ValueError("a header that is not an object")
    return header, arrays


def unpack(model: bytes, method: str, version: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Decode header and arrays. Raises `ModelError` for damaged bytes, another method or another version."""
    try:
        header, arrays = _decode(model)
    except _NO_MODEL as error:
        raise ModelError(f"{method}: {len(model)} bytes that are not a model ({type(error).__name__})") from error
    found = (header.get("method"), header.get("version"))
    if found != (method, version):
        raise ModelError(f"{method}: expected version {version} of {method}, found version {found[1]} of {found[0]}")
    return header, arrays
