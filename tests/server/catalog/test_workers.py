"""The process that embeds answers in order, says what is missing, and ends; `test_token_counter` has the other one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")
pytest.importorskip("onnxruntime", reason="the encoders' libraries are not installed")
pytest.importorskip("faiss", reason="the encoders' libraries are not installed")

from tiny_model import DIMENSION, write_model  # noqa: E402

from foretool.retrieval.encoders import open_encoder, resolve_weights  # noqa: E402
from foretool.server.catalog.workers import COMMAND  # noqa: E402

WORKER = [*COMMAND, "embed"]


def test_it_answers_in_order_and_ends(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    texts = [f"open issue {'bug ' * (number % 5)}" for number in range(40)]
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    command = [*WORKER, str(folder)]
    done = subprocess.run(command, input=lines.encode(), capture_output=True, check=True, timeout=60)
    header, _, data = done.stdout.partition(b"\n")
    assert json.loads(header) == {"dimension": DIMENSION}
    found = np.frombuffer(data, np.float32).reshape(-1, DIMENSION)
    np.testing.assert_allclose(found, open_encoder(resolve_weights(str(folder))[0]).documents(texts), atol=1e-6)


def test_it_says_what_is_missing(tmp_path: Path) -> None:
    command = [*WORKER, str(tmp_path)]
    done = subprocess.run(command, input=b'"a"\n', capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"or model.safetensors in it" in done.stderr


def test_an_empty_line_has_it_embed_what_came_so_far(tmp_path: Path) -> None:
    command = [*WORKER, str(write_model(tmp_path / "m"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin and worker.stdout
        assert json.loads(worker.stdout.readline()) == {"dimension": DIMENSION}
        for number in (1, 2):
            worker.stdin.write(b'"open issue"\n' * number + b"\n")
            worker.stdin.flush()
            assert len(worker.stdout.read(4 * DIMENSION * number)) == 4 * DIMENSION * number
        assert worker.poll() is None
