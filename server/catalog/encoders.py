"""Opens any encoder that the settings can choose: in this process, or behind an OpenAI-compatible endpoint.

An endpoint gets `POST {url}/embeddings` with `model` and `input`; tools and queries are sent alike. The key goes into
one header and nowhere else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from foretool.retrieval import encoders
from foretool.retrieval.encoders.base import EncoderError, embed_readings, unit
from foretool.retrieval.encoders.weights import Endpoint, Weights
from foretool.server.system.http_clients import make_client

if TYPE_CHECKING:
    from foretool.retrieval.encoders import Encoder
    from foretool.retrieval.encoders.base import Vectors

AT_ONCE: Final = 64
"""How many texts one request has; providers take a hundred or more."""
_DOCUMENTS_S, _QUERY_S = 60.0, 3.0
"""The longest wait for an answer: nobody waits for documents, a client waits for a query."""
TRIES: Final = 4
_PAUSE_S: Final = 1.0
"""The pause before the second try of a batch of documents; doubled each time."""
_CHARACTERS: Final = 8_000
"""How much of a text is sent; a provider refuses a text that is longer than its model reads."""


def open_any_encoder(weights: Weights, key: str = "", in_bulk: bool = False) -> Encoder:
    """Open an encoder; `key` is for an endpoint, `in_bulk` for a process that embeds thousands of texts and ends.
    Raises `EncoderError`."""
    if weights.kind == "endpoint":
        return EndpointEncoder(weights, Endpoint(weights.file, key))
    return encoders.open_encoder(weights, in_bulk)


class EndpointEncoder:
    """Embeds texts by requests; every error comes out as `EncoderError`, without the key."""

    def __init__(self, weights: Weights, endpoint: Endpoint, pause_s: float = _PAUSE_S) -> None:
        import httpx2

        self.weights = weights
        self._url = endpoint.url.rstrip("/") + "/embeddings"
        self._pause_s = pause_s
        headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
        try:
            self._client = make_client(httpx2.Client, self._url, headers=headers)
        except ValueError as error:
            raise EncoderError(f"encoder {self.name!r}: {self._url}: {error}") from None

    @property
    def name(self) -> str:
        return self.weights.name

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts that are searched; try again where the endpoint is busy."""
        return embed_readings(texts, self._in_requests)

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Embed texts to search with; one try, with a short wait."""
        return self._ask(texts, _QUERY_S)

    def _in_requests(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        rows = [self._patient(texts[start : start + AT_ONCE]) for start in range(0, len(texts), AT_ONCE)]
        return np.concatenate(rows) if rows else np.empty((0, 0), np.float32)

    def _patient(self, texts: Sequence[str]) -> Vectors:
        pause = self._pause_s
        for _ in range(TRIES - 1):
            try:
                return self._ask(texts, _DOCUMENTS_S)
            except _BusyError:
                time.sleep(pause)
                pause *= 2
        return self._ask(texts, _DOCUMENTS_S)

    def _ask(self, texts: Sequence[str], timeout_s: float) -> Vectors:
        import httpx2

        # Most providers refuse an empty text.
        sent = [text[:_CHARACTERS] or " " for text in texts]
        try:
            answer = self._client.post(self._url, json={"model": self.weights.name, "input": sent}, timeout=timeout_s)
        except httpx2.HTTPError as error:
            raise _BusyError(f"encoder {self.name!r}: {self._url}: {type(error).__name__}: {error}") from error
        if answer.status_code != 200:
            kind = _BusyError if answer.status_code == 429 or answer.status_code >= 500 else EncoderError
            said = " ".join(answer.text.split())[:200]
            raise kind(f"encoder {self.name!r}: {self._url} answered {answer.status_code}: {said}")
        return self._read(answer, len(sent))

    def _read(self, answer: Any, wanted: int) -> Vectors:
        try:
            data = sorted(answer.json()["data"], key=lambda each: each["index"])
            found = unit([each["embedding"] for each in data])
        except (ValueError, KeyError, TypeError) as error:
            raise EncoderError(f"encoder {self.name!r}: {self._url} sent no embeddings: {error!r}") from error
        if found.ndim != 2 or len(found) != wanted:
            raise EncoderError(f"encoder {self.name!r}: {self._url} answered {len(found)} vectors for {wanted} texts")
        return found


class _BusyError(EncoderError):
    """The endpoint is busy or unreachable, which may pass."""


# Loads the shared libraries of numpy and onnxruntime while other threads go on.
#
# An import keeps every other thread of Python waiting while the system maps and links the library, a tenth of a
# second for these two. The system is therefore asked to load them first, through `ctypes`, which lets the others go
# on; the import then finds them.


_LIBRARIES: Final = {
    "numpy": "_core/_multiarray_umath*.so",
    "onnxruntime": "capi/onnxruntime_pybind11_state*.so",
}


def load_libraries() -> int:
    """Load what is installed of these libraries, from any thread; return how many. The import itself says what is
    wrong with one that cannot be loaded."""
    if os.name != "posix":
        return 0
    import ctypes  # takes time, and nothing needs it before the first search

    load = ctypes.CDLL(None).dlopen
    load.restype, load.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    return sum(bool(load(os.fsencode(path), os.RTLD_NOW)) for path in _find_libraries())


def _find_libraries() -> list[Path]:
    found = []
    for package, pattern in _LIBRARIES.items():
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            found += sorted(Path(folder).glob(pattern))
    return found
