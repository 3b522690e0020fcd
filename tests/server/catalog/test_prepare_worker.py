"""A trained encoder is prepared in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")
pytest.importorskip("onnxruntime", reason="the encoders' libraries are not installed")

from foretool.retrieval import adapters
from foretool.retrieval.encoders import locate
from foretool.retrieval.encoders.weights import BY_NAME
from foretool.server.catalog.prepare_worker import prepare_apart


def test_the_changed_model_is_made_by_another_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    weights = next(each for each in BY_NAME if each.name == "minilm-tools")
    if locate(weights) is None:
        pytest.skip(f"{weights.package} is not installed")
    model = Path(adapters.__file__).with_name(weights.adapter).read_bytes()
    monkeypatch.setattr(adapters, "apply", None)  # here it cannot be made
    assert prepare_apart(weights, model, tmp_path).is_file()
    (folder,) = tmp_path.iterdir()
    assert sorted(each.name for each in folder.iterdir()) == ["model.onnx", "numbers.bin"]
