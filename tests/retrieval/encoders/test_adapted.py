"""Queries go through trained weights; documents through those of the package, if it reads tools with them."""

from __future__ import annotations

import logging
import tempfile
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace
from requirements import requirement
from tiny_model import WORDS, lookup_model

from foretool.retrieval import adapters
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.encoders import EncoderError, Weights, adapted, locate, open_encoder, unit
from foretool.retrieval.encoders import weights as weights_module
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
    encoder = adapted.AdaptedEncoder(weights, model, tmp_path / "cache")
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
        encoder = adapted.AdaptedEncoder(weights, model, tmp_path / "cache")
        np.testing.assert_allclose(encoder.queries(["open issue"]), mean_of(table, "open", "issue"), atol=1e-5)
        np.testing.assert_allclose(encoder.documents(["open issue"]), mean_of(tables[0], "open", "issue"), atol=1e-5)


def test_an_encoder_that_reads_tools_gives_way_to_words_where_it_cannot_be_prepared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    weights = installed(tmp_path / "model")
    model = Adapter(weights.sha256, {"table": (LEFT, RIGHT)}).dumps()
    monkeypatch.setattr(adapted, "read_shipped", lambda weights: model)
    monkeypatch.setattr(adapted, "disk_usage", lambda folder: SimpleNamespace(free=0))
    trained = replace(weights, name="trained", adapter="any", base=weights.name, reads_tools=True)
    said = r"encoder 'trained' cannot be prepared: .*no room to prepare an encoder, \d+ MiB must be free"
    with pytest.raises(EncoderError, match=said):
        adapted.open_shipped(trained, tmp_path / "cache")


def test_the_changed_model_is_made_once(tmp_path: Path) -> None:
    weights = installed(tmp_path / "model")
    model = Adapter(weights.sha256, {"table": (LEFT, RIGHT)}).dumps()
    made = adapted.prepare_model(weights, model, tmp_path / "cache")
    at = made.stat().st_mtime_ns
    assert adapted.prepare_model(weights, model, tmp_path / "cache") == made
    assert made.stat().st_mtime_ns == at
    assert [each.name for each in (tmp_path / "cache").iterdir()] == [made.parent.name]


def test_an_adapter_of_other_weights_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    weights = installed(tmp_path / "model")
    for open_it in (adapted.AdaptedEncoder, adapted.prepare_model):
        with pytest.raises(ModelError, match="trained on weights other"):
            open_it(weights, Adapter("other", {}).dumps(), tmp_path / "cache")
    with pytest.raises(ModelError, match="the model has none"):
        model = Adapter(weights.sha256, {"elsewhere": (LEFT, RIGHT)}).dumps()
        adapted.prepare_model(weights, model, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@requirement("encoder:room")
def test_without_a_place_to_keep_it_the_changed_model_is_prepared_for_the_moment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    weights = installed(tmp_path / "model")
    model = Adapter(weights.sha256, {"table": (LEFT, RIGHT)}).dumps()
    (tmp_path / "file").write_text("", encoding="utf-8")
    kept = adapted.AdaptedEncoder(weights, model, tmp_path / "cache")
    for cache in (None, tmp_path / "file"):
        encoder = adapted.AdaptedEncoder(weights, model, cache)
        np.testing.assert_array_equal(encoder.queries(["open issue"]), kept.queries(["open issue"]))
    assert list((tmp_path / "scratch").iterdir()) == []


@requirement("encoder:room")
def test_with_no_room_at_all_the_untrained_encoder_answers_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    weights = installed(tmp_path / "model")
    model = Adapter(weights.sha256, {"table": (LEFT, RIGHT)}).dumps()
    monkeypatch.setattr(adapted, "read_shipped", lambda weights: model)
    monkeypatch.setattr(adapted, "disk_usage", lambda folder: SimpleNamespace(free=0))
    trained = replace(weights, name="trained", adapter="any", base=weights.name)
    monkeypatch.setattr(weights_module, "BY_NAME", (weights, trained))
    with caplog.at_level(logging.WARNING):
        encoder = adapted.open_shipped(trained, tmp_path / "cache")
    np.testing.assert_allclose(encoder.queries(["open issue"]), mean_of(TABLE, "open", "issue"), atol=1e-5)
    assert encoder.name == weights.name  # so the gate reads it by the figures that are right for it
    assert "encoder trained cannot be prepared, so model is asked" in caplog.text
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_adapter_that_is_not_the_one_we_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = replace(BY["minilm-tools"], adapter_sha256="0" * 64)
    with pytest.raises(
        EncoderError, match=r"encoder 'minilm-tools': minilm_tools\.adapter has sha256 .*, expected 000"
    ):
        adapted.open_shipped(weights, None)


def test_prepared_models_are_kept_where_caches_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert adapted.cache_folder() == tmp_path / "foretool" / "encoders"


def test_the_shipped_adapter_belongs_to_the_weights_that_are_known() -> None:
    base, trained = BY["minilm"], BY["minilm-tools"]
    model = Path(adapters.__file__).with_name(trained.adapter).read_bytes()
    assert sha256(model).hexdigest() == trained.adapter_sha256
    shipped = adapters.loads(model)
    assert shipped.base == trained.sha256 == base.sha256
    assert len(shipped.changes) == 36


@pytest.mark.slow
def test_the_shipped_adapter_opens_by_its_name(tmp_path: Path) -> None:
    weights = BY["minilm-tools"]
    if locate(weights) is None:
        pytest.skip(f"{weights.package} is not installed")
    encoder = open_encoder(weights, tmp_path)
    base = open_encoder(weights.untrained, tmp_path)
    texts = ["what is the weather in Bergen?"]
    np.testing.assert_array_equal(encoder.documents(texts), encoder.queries(texts))
    assert 0.5 < float((encoder.queries(texts) * base.queries(texts)).sum()) < 0.999


def test_an_adapter_that_is_missing_is_said(tmp_path: Path) -> None:
    weights = replace(BY["minilm-tools"], name="other", adapter="none.adapter")
    with pytest.raises(EncoderError, match=r"encoder 'other'.*none\.adapter"):
        adapted.open_shipped(weights, tmp_path)
