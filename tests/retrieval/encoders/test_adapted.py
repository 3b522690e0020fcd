"""Queries go through trained weights; documents through those of the package, if it reads tools with them."""

from __future__ import annotations

import tempfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from requirements import requirement
from tiny_model import WORDS, lookup_model

from foretool.retrieval import adapters
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.encoders import EncoderError, Weights, adapted, locate, open_encoder, unit
from foretool.retrieval.encoders.weights import BY_NAME, in_folder
from foretool.retrieval.model_format import ModelError

BY = {each.name: each for each in BY_NAME}
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


@requirement("encoder:trained")
def test_only_queries_are_read_with_what_was_learned(tmp_path: Path) -> None:
    weights = installed(tmp_path / "model")
    model = Adapter(weights.sha256, {"table": (LEFT, RIGHT)}).dumps()
    encoder = adapted.AdaptedEncoder(weights, model)
    left, right = adapters.loads(model).changes["table"]
    changed = TABLE + left @ right
    np.testing.assert_allclose(encoder.queries(["open issue"]), mean_of(changed, "open", "issue"), atol=1e-5)
    np.testing.assert_allclose(encoder.documents(["open issue"]), mean_of(TABLE, "open", "issue"), atol=1e-5)
    assert encoder.name == weights.name


@requirement("encoder:trained")
def test_tools_keep_the_vectors_of_the_adapter_that_ships_while_queries_are_learned_further(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    weights = replace(installed(tmp_path / "model"), adapter="any", reads_tools=True)
    shipped = Adapter(weights.sha256, {"table": (LEFT, RIGHT)}).dumps()
    learned = Adapter(weights.sha256, {"table": (-LEFT, RIGHT)}).dumps()
    monkeypatch.setattr(adapted, "read_shipped", lambda weights: shipped)
    tables = []
    for model in (shipped, learned):
        left, right = adapters.loads(model).changes["table"]
        tables.append(TABLE + left @ right)
    for model, table in zip((shipped, learned), tables, strict=True):
        encoder = adapted.AdaptedEncoder(weights, model)
        np.testing.assert_allclose(encoder.queries(["open issue"]), mean_of(table, "open", "issue"), atol=1e-5)
        np.testing.assert_allclose(encoder.documents(["open issue"]), mean_of(tables[0], "open", "issue"), atol=1e-5)


def test_an_adapter_of_other_weights_is_refused(tmp_path: Path) -> None:
    weights = installed(tmp_path / "model")
    with pytest.raises(ModelError, match="trained on weights other"):
        adapted.AdaptedEncoder(weights, Adapter("other", {}).dumps())
    with pytest.raises(ModelError, match="the model has none"):
        adapted.AdaptedEncoder(weights, Adapter(weights.sha256, {"elsewhere": (LEFT, RIGHT)}).dumps()).queries(["a"])


@requirement("encoder:room")
def test_an_encoder_that_is_opened_writes_no_file_and_takes_no_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    places = {"HOME": tmp_path / "home", "XDG_CACHE_HOME": tmp_path / "caches", "TMPDIR": tmp_path / "scratch"}
    for name, place in places.items():
        place.mkdir()
        monkeypatch.setenv(name, str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    weights = installed(tmp_path / "model")
    before = set(tmp_path.rglob("*"))
    adapted.AdaptedEncoder(weights, Adapter(weights.sha256, {"table": (LEFT, RIGHT)}).dumps()).queries(["open issue"])
    assert set(tmp_path.rglob("*")) == before


def test_an_adapter_that_is_not_the_one_we_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = replace(BY["minilm-tools"], adapter_sha256="0" * 64)
    with pytest.raises(
        EncoderError, match=r"encoder 'minilm-tools': minilm_tools\.adapter has sha256 .*, expected 000"
    ):
        adapted.open_shipped(weights)


def test_the_shipped_adapter_belongs_to_the_weights_that_are_known() -> None:
    base, trained = BY["minilm"], BY["minilm-tools"]
    model = Path(adapters.__file__).with_name(trained.adapter).read_bytes()
    assert sha256(model).hexdigest() == trained.adapter_sha256
    shipped = adapters.loads(model)
    assert shipped.base == trained.sha256 == base.sha256
    assert len(shipped.changes) == 36


@pytest.mark.slow
def test_the_shipped_adapter_opens_by_its_name() -> None:
    weights = BY["minilm-tools"]
    if locate(weights) is None:
        pytest.skip(f"{weights.package} is not installed")
    encoder = open_encoder(weights)
    base = open_encoder(weights.untrained)
    texts = ["what is the weather in Bergen?"]
    np.testing.assert_array_equal(encoder.documents(texts), encoder.queries(texts))
    assert 0.5 < float((encoder.queries(texts) * base.queries(texts)).sum()) < 0.999


def test_an_adapter_that_is_missing_is_said() -> None:
    weights = replace(BY["minilm-tools"], name="other", adapter="none.adapter")
    with pytest.raises(EncoderError, match=r"encoder 'other'.*none\.adapter"):
        adapted.open_shipped(weights)
