"""Shared libraries are loaded before their packages are imported, and an import then takes the same ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from foretool.server.catalog import encoders
from foretool.server.catalog.encoders import load_libraries

SCRIPT = """
import sys
from foretool.server.catalog.encoders import load_libraries
loaded = load_libraries()
before = "numpy" in sys.modules
import numpy, onnxruntime
maps = open("/proc/self/maps").read()
copies = {line.split()[0] for line in maps.splitlines() if "_multiarray_umath" in line and "r-xp" in line}
print(loaded, before, len(copies), float(numpy.ones(3).sum()))
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux says what is mapped")
def test_a_library_that_was_loaded_is_the_one_that_is_imported() -> None:
    pytest.importorskip("onnxruntime", reason="the encoders' libraries are not installed")
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False", "1", "3.0"]


def test_what_is_missing_or_broken_is_left_to_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "__init__.py").touch()
    (tmp_path / "torn" / "part.so").write_bytes(b"no library")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(encoders, "_LIBRARIES", {"torn": "*.so", "missing_package": "*.so"})
    assert load_libraries() == 0
