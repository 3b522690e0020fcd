"""Encoders that look up: the mean of rows, and hashed n-grams."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")
tokenizers = pytest.importorskip("tokenizers", reason="the encoders' libraries are not installed")

from foretool.retrieval.encoders import EncoderError, locate, open_encoder  # noqa: E402
from foretool.retrieval.encoders.static import StaticEncoder, tensor  # noqa: E402
from foretool.retrieval.encoders.weights import BY_NAME  # noqa: E402

KNOWN = {weights.name: weights for weights in BY_NAME}


def safetensors(path: Path, **arrays: np.ndarray) -> Path:
    header, data = {}, b""
    for name, array in arrays.items():
        kind = {"float16": "F16", "float32": "F32"}[str(array.dtype)]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    told = json.dumps(header).encode()
    path.write_bytes(len(told).to_bytes(8, "little") + told + data)
    return path


def test_a_text_is_the_mean_of_its_rows(tmp_path: Path) -> None:
    model = tokenizers.models.WordLevel({"?": 0, "open": 1, "issue": 2}, unk_token="?")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    rows = safetensors(
        tmp_path / "rows",
        other=np.ones(3, np.float16),
        **{"embedding.weight": np.array([[9, 9], [2, 0], [0, 2]], np.float16)},
    )
    encoder = StaticEncoder(KNOWN["wordllama"], rows, tmp_path / "tokenizer.json")
    half = 0.5**0.5
    np.testing.assert_allclose(encoder.documents(["open", "open issue", ""]), [[1, 0], [half, half], [0, 0]], atol=1e-6)
    np.testing.assert_allclose(encoder.queries(["issue"]), [[0, 1]], atol=1e-6)


def test_a_file_without_the_numbers_is_refused(tmp_path: Path) -> None:
    rows = safetensors(tmp_path / "rows", other=np.ones((2, 2), np.float16), wide=np.ones(2, np.float32))
    with pytest.raises(EncoderError, match=r"expected 'embedding' as F16, found 'other', 'wide'"):
        tensor(rows, "embedding")
    with pytest.raises(EncoderError, match="expected 'wide' as F16"):
        tensor(rows, "wide")


def test_hashed_ngrams_forgive_spelling() -> None:
    encoder = open_encoder(KNOWN["hash"])
    tools = encoder.documents(["list repositories of a user", "weather forecast of a city", ""])
    near, far, nothing = (tools @ encoder.queries(["repositorys"])[0]).tolist()
    assert near > far + 0.1
    assert nothing == 0.0
    np.testing.assert_allclose(np.linalg.norm(tools[:2], axis=1), 1.0, atol=1e-6)


def test_wordllama_puts_like_texts_together() -> None:
    if locate(KNOWN["wordllama"]) is None:
        pytest.skip("wordllama is not installed")
    encoder = open_encoder(KNOWN["wordllama"])
    tools = encoder.documents(["create issue. Open a new issue in a repository.", "get forecast. Weather of a place."])
    near, far = (tools @ encoder.queries(["report a bug"])[0]).tolist()
    assert near > far
