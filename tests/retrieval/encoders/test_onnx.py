"""BERT-like models run from a file, and prepared ones give the same."""

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


def mapped_kib(path: Path) -> int:
    """How much of a mapped file is in memory."""
    kib, is_it = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.partition(" ")[0]:
            is_it = line.endswith(str(path.resolve()))
        elif is_it and line.startswith("Rss:"):
            kib += int(line.split()[1])
    return kib


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


def test_a_prepared_model_gives_the_same_vectors(tmp_path: Path) -> None:
    (weights,) = resolve_weights(str(write_model(tmp_path / "m")))
    cache = tmp_path / "cache"
    texts = ["open issue", "web page"]
    plain = open_encoder(weights).documents(texts)
    for _ in range(2):
        np.testing.assert_allclose(open_encoder(weights, cache).documents(texts), plain, atol=1e-6)
    (folder,) = cache.iterdir()
    assert folder.name.startswith(weights.sha256[:16])


@pytest.mark.skipif(not Path("/proc/self/smaps").is_file(), reason="only Linux says what is in memory")
def test_rows_of_the_vocabulary_leave_the_memory_again(tmp_path: Path) -> None:
    (weights,) = resolve_weights("minilm-tools")
    encoder = open_encoder(weights, tmp_path / "cache")
    (numbers,) = (tmp_path / "cache").glob("*/numbers.bin")
    before = encoder.queries(["open issue"])
    held = mapped_kib(numbers)
    for words in ("web page", "bug report", "send the weekly mail", "weather in Paris", "rows of a table"):
        encoder.queries([words])
    assert mapped_kib(numbers) <= held
    np.testing.assert_array_equal(encoder.queries(["open issue"]), before)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps").is_file(), reason="only Linux says what is in memory")
def test_matrices_in_the_order_of_the_processor_are_mapped_too(tmp_path: Path) -> None:
    """Proxies share what is mapped; what each orders for itself (40 MiB) each has in its own memory."""
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from foretool.retrieval.encoders import open_encoder, resolve_weights\n"
        "def own() -> int:\n"
        "    lines = Path('/proc/self/status').read_text().splitlines()\n"
        "    return next(int(line.split()[1]) for line in lines if line.startswith('RssAnon'))\n"
        "(weights,) = resolve_weights('minilm-tools')\n"
        "open_encoder(weights, Path(sys.argv[1]))\n"  # prepared here, which takes memory
        "import onnxruntime, numpy\n"
        "print(own(), flush=True)\n"
        "if sys.argv[2:]:\n"
        "    encoder = open_encoder(weights, Path(sys.argv[1]))\n"
        "    encoder.queries(['open issue'])\n"
        "    print(own())\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    subprocess.run(command, capture_output=True, text=True, check=True)
    run = subprocess.run([*command, "again"], capture_output=True, text=True, check=True)
    first, second = map(int, run.stdout.split())
    assert second - first < 20 * 1024
    (numbers,) = tmp_path.glob("*-packed/numbers.bin")
    (weights,) = resolve_weights("minilm-tools")
    encoder = open_encoder(weights, tmp_path)
    encoder.queries(["open issue"])
    assert mapped_kib(numbers) > 40 * 1024


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
