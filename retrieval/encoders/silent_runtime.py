"""Imports onnxruntime, whose newer builds tell its maker about the machine unless they are told not to.

They send the operating system, the processor, the path of the program and a lasting identifier, and keep them in
`~/.cache/Microsoft` until they are sent. That is decided while onnxruntime is imported.
"""

from __future__ import annotations

import os
from types import ModuleType


def import_runtime() -> ModuleType:
    """Return onnxruntime, which sends nothing from this process and from those that it starts."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # type: ignore[import-untyped]

    runtime: ModuleType = onnxruntime
    return runtime
