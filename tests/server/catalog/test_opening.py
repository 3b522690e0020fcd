"""Every kind of encoder that the settings can choose is opened by its weights."""

from __future__ import annotations

from pathlib import Path

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")
pytest.importorskip("onnxruntime", reason="the encoders' libraries are not installed")
pytest.importorskip("faiss", reason="the encoders' libraries are not installed")

from tiny_model import write_model  # noqa: E402

from foretool.retrieval.encoders import Endpoint, find  # noqa: E402
from foretool.retrieval.encoders.onnx import OnnxEncoder  # noqa: E402
from foretool.server.catalog.endpoint import EndpointEncoder  # noqa: E402
from foretool.server.catalog.opening import open_encoder  # noqa: E402


def test_each_kind_has_its_class(tmp_path: Path) -> None:
    assert isinstance(open_encoder(find(str(write_model(tmp_path / "m")))[0]), OnnxEncoder)
    assert isinstance(open_encoder(find("any", Endpoint("http://127.0.0.1:1/v1"))[0], key="k"), EndpointEncoder)
