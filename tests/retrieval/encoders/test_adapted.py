"""Queries go through trained weights, documents do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from foretool.retrieval import adapters
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.encoders import MANIFEST, EncoderError, Weights, adapted, locate, open_encoder, unit
from foretool.retrieval.encoders.weights import BY_NAME, in_folder
from foretool.retrieval.learned import ModelError
from tests.retrieval.tiny_model import WORDS, lookup_model

VOCABULARY = (*WORDS, *(f"[unused{number}]" for number in range(64 - len(WORDS))))
TABLE = np.random.default_rng(3).standard_normal((len(VOCABULARY), 8)).astype(np.float32)
LEFT = np.random.default_rng(4).standard_normal((len(VOCABULARY), 2)).astype(np.float32)
RIGHT = np.random.default_rng(5).standard_normal((2, 8)).astype(np.float32)


def installed(folder: Path) -> Weights:
    folder.mkdir()
    (folder / "model.onnx").write_bytes(lookup_model(TABLE))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return in_folder(folder)


def mean_of(table: adapters.Floats, *words: str) -> adapters.Floats:
    rows = table[[VOCABULARY.index(word) for word in ("[CLS]", *words, "[SEP]")]]
    return unit(rows.mean(0, keepdims=True))


def test_only_queries_are_read_with_what_was_learned(tmp_path: Path) -> None:
    weights = installed(tmp_path / "model")
    model = Adapter(weights.sha256, {"table": (LEFT, RIGHT)}).dumps()
    encoder = adapted.opened(weights, model, tmp_path / "cache")
    left, right = adapters.loads(model).changes["table"]
    changed = TABLE + left @ right
    np.testing.assert_allclose(encoder.queries(["open issue"]), mean_of(changed, "open", "issue"), atol=1e-5)
    np.testing.assert_allclose(encoder.documents(["open issue"]), mean_of(TABLE, "open", "issue"), atol=1e-5)
    assert encoder.name == weights.name


def test_the_changed_model_is_made_once(tmp_path: Path) -> None:
    weights = installed(tmp_path / "model")
    model = Adapter(weights.sha256, {"table": (LEFT, RIGHT)}).dumps()
    made = adapted.prepared(weights, model, tmp_path / "cache")
    at = made.stat().st_mtime_ns
    assert adapted.prepared(weights, model, tmp_path / "cache") == made
    assert made.stat().st_mtime_ns == at
    assert [each.name for each in (tmp_path / "cache").iterdir()] == [made.parent.name]


def test_an_adapter_of_other_weights_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    weights = installed(tmp_path / "model")
    for open_it in (adapted.opened, adapted.prepared):
        with pytest.raises(ModelError, match="trained on weights other"):
            open_it(weights, Adapter("other", {}).dumps(), tmp_path / "cache")
    with pytest.raises(ModelError, match="the model has none"):
        model = Adapter(weights.sha256, {"elsewhere": (LEFT, RIGHT)}).dumps()
        adapted.prepared(weights, model, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_prepared_models_are_kept_where_caches_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert adapted.cache_folder() == tmp_path / "foretool" / "encoders"


def test_the_shipped_adapter_belongs_to_the_weights_that_are_known() -> None:
    known = {weights.name: weights for weights in BY_NAME}
    trained = known["minilm-tools"]
    shipped = adapters.loads(Path(adapters.__file__).with_name(trained.adapter).read_bytes())
    assert shipped.base == trained.sha256 == known["minilm"].sha256
    assert trained.key == known["minilm"].key  # tools keep their vectors
    assert len(shipped.changes) == 36


def test_the_shipped_adapter_opens_by_its_name(tmp_path: Path) -> None:
    (weights,) = (each for each in BY_NAME if each.name == "minilm-tools")
    if locate(weights) is None:
        pytest.skip(f"{weights.package} is not installed")
    encoder = open_encoder(weights, tmp_path)
    base = open_encoder(MANIFEST[0], tmp_path)
    texts = ["what is the weather in Bergen?"]
    np.testing.assert_array_equal(encoder.documents(texts), base.documents(texts))
    assert 0.5 < float((encoder.queries(texts) * base.queries(texts)).sum()) < 0.999


def test_an_adapter_that_is_missing_is_said(tmp_path: Path) -> None:
    weights = replace(MANIFEST[0], name="other", adapter="none.adapter")
    with pytest.raises(EncoderError, match=r"encoder 'other'.*none\.adapter"):
        adapted.shipped(weights, tmp_path)
