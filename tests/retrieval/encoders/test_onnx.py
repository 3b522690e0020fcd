"""BERT-like models run from a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")
pytest.importorskip("onnxruntime", reason="the encoders' libraries are not installed")
pytest.importorskip("faiss", reason="the encoders' libraries are not installed")

from tiny_model import DIMENSION, write_model  # noqa: E402

from foretool.retrieval.document import IN_ENGLISH  # noqa: E402
from foretool.retrieval.encoders import (  # noqa: E402
    MANIFEST,
    EncoderError,
    Endpoint,
    Weights,
    locate,
    onnx,
    open_encoder,
    resolve_weights,
)
from foretool.retrieval.encoders.onnx import OnnxEncoder, cut  # noqa: E402


def test_vectors_are_of_length_one_and_do_not_depend_on_their_batch(tmp_path: Path) -> None:
    encoder = open_encoder(resolve_weights(str(write_model(tmp_path / "m")))[0])
    texts = ["open issue", "web page", "bug report " * 300, "open issue on github ."] * 12
    together = encoder.documents(texts)
    assert together.shape == (48, DIMENSION) and together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-6)
    alone = np.concatenate([encoder.documents([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert together[0] @ together[3] > together[0] @ together[1]


def test_queries_and_documents_carry_their_prefixes(tmp_path: Path) -> None:
    (plain,) = resolve_weights(str(write_model(tmp_path / "m")))
    asked = open_encoder(replace(plain, prefix="web page ", document_prefix="open "))
    bare = open_encoder(plain)
    np.testing.assert_allclose(asked.queries(["bug"]), bare.documents(["web page bug"]), atol=1e-6)
    np.testing.assert_allclose(asked.documents(["bug"]), bare.documents(["open bug"]), atol=1e-6)


def test_a_long_text_keeps_its_last_mark() -> None:
    assert cut([1, 2, 3, 4, 9], 3) == [1, 2, 9]
    assert cut([1, 9], 3) == [1, 9]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="only Linux says what is in memory")
def test_an_open_encoder_holds_its_matrices_once_and_its_vocabulary_small() -> None:
    """43 MB of matrices and 12 MB of vocabulary; with either a second time, or wide, it would be 90 and more."""
    script = (
        "from pathlib import Path\n"
        "from foretool.retrieval.encoders import open_encoder, resolve_weights\n"
        "import onnxruntime, numpy\n"
        "def own() -> int:\n"
        "    lines = Path('/proc/self/status').read_text().splitlines()\n"
        "    return next(int(line.split()[1]) for line in lines if line.startswith('RssAnon'))\n"
        "before = own()\n"
        "encoder = open_encoder(resolve_weights('minilm-tools')[0])\n"
        "encoder.queries(['open issue', 'send the weekly mail'])\n"
        "print(own() - before)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 75 * 1024


def test_the_package_tokenizers_is_not_imported_for_known_weights(tmp_path: Path) -> None:
    script = (
        "import sys; from foretool.retrieval.encoders import open_encoder, resolve_weights;"
        "open_encoder(resolve_weights('minilm')[0]).queries(['open issue']); print('tokenizers' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert told.stdout.strip() == "False"


def test_a_file_with_other_numbers_is_not_run(tmp_path: Path) -> None:
    (weights,) = resolve_weights(str(write_model(tmp_path / "m")))
    (tmp_path / "m" / "model.onnx").write_bytes(b"something else")
    with pytest.raises(EncoderError, match=r"has sha256 .*, expected"):
        open_encoder(weights)


@pytest.mark.parametrize("weights", MANIFEST, ids=lambda weights: weights.name)
def test_known_weights_put_like_texts_together(weights: Weights) -> None:
    if locate(weights) is None:
        pytest.skip(f"{weights.package} is not installed")
    encoder = open_encoder(weights)
    tools = encoder.documents(["create issue. Open a new issue in a repository.", "get forecast. Weather of a place."])
    near, far = (tools @ encoder.queries(["report a bug"])[0]).tolist()
    assert near > far + 0.1


def test_each_kind_has_its_class(tmp_path: Path) -> None:
    assert isinstance(open_encoder(resolve_weights(str(write_model(tmp_path / "m")))[0]), OnnxEncoder)
    with pytest.raises(EncoderError, match="cannot be opened in this process"):
        open_encoder(resolve_weights("any", Endpoint("http://127.0.0.1:1/v1"))[0])


def test_an_encoder_that_reads_english_alone_is_given_english(tmp_path: Path) -> None:
    (plain,) = resolve_weights(str(write_model(tmp_path / "m")))
    assert not plain.english_only and all(each.english_only for each in MANIFEST)
    bare, english = open_encoder(plain), open_encoder(replace(plain, english_only=True))
    text, put = "打开 issue", "open issue"
    np.testing.assert_array_equal(english.queries([text, put]), bare.queries([put, put]))
    np.testing.assert_array_equal(english.documents([f"{text}{IN_ENGLISH}{put}"]), bare.documents([put]))
    np.testing.assert_array_equal(bare.documents([f"{text}{IN_ENGLISH}{put}"]), bare.documents([text]))
    assert not np.array_equal(bare.queries([text]), bare.queries([put])), "an encoder of the user's own reads it itself"


@pytest.mark.parametrize(("version", "spins"), [("1.22.0", "0"), ("1.31.4", "0"), ("1.32.0", "1"), ("2.0.0rc1", "1")])
def test_threads_wait_in_a_loop_only_where_that_has_a_bound(version: str, spins: str) -> None:
    entries = onnx._waiting(version)
    assert entries["session.intra_op.allow_spinning"] == spins
    assert ("session.intra_op.spin_duration_us" in entries) == (spins == "1")
