"""onnxruntime is imported in one place, which keeps it from telling anyone about the machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from requirements import requirement

ROOT = Path(__file__).parents[3]
OURS = ROOT / "retrieval/encoders/onnx.py"


def imports_runtime(path: Path) -> bool:
    return re.search(r"^\s*(?:import|from) onnxruntime\b", path.read_text(encoding="utf-8"), re.M) is not None


def test_no_other_file_imports_onnxruntime() -> None:
    sources = [path for folder in ("retrieval", "server", "storage", "bench") for path in (ROOT / folder).rglob("*.py")]
    assert [path for path in sources if imports_runtime(path)] == [OURS]


@pytest.mark.slow
@requirement("trust:data:silent-libraries")
def test_an_encoder_leaves_nothing_for_the_maker_of_onnxruntime(tmp_path: Path) -> None:
    """Its builds keep an identifier and what they are going to send in the home folder."""
    pytest.importorskip("tokenizers", reason="the encoders' libraries are not installed")
    script = (
        "from foretool.retrieval.encoders import open_encoder, resolve_weights\n"
        "for name in ('minilm', 'minilm-tools'):\n"
        "    open_encoder(resolve_weights(name)[0]).queries(['open issue'])\n"
    )
    home = tmp_path / "home"
    home.mkdir()
    env = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    command = [sys.executable, "-c", script]
    subprocess.run(command, check=True, cwd=tmp_path, env={**env, "HOME": str(home), "XDG_CACHE_HOME": str(home)})
    assert list(home.rglob("*")) == []
