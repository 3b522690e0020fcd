"""Loads the shared libraries of numpy and onnxruntime while other threads go on.

An import keeps every other thread of Python waiting while the system maps and links the library, a tenth of a second
for these two. The system is therefore asked to load them first, through `ctypes`, which lets the others go on; the
import then finds them.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_LIBRARIES: Final = {
    "numpy": "_core/_multiarray_umath*.so",
    "onnxruntime": "capi/onnxruntime_pybind11_state*.so",
}


def load_libraries() -> int:
    """Load what is installed of these libraries, from any thread; return how many. The import itself says what is
    wrong with one that cannot be loaded."""
    if os.name != "posix":
        return 0
    import ctypes  # takes time, and nothing needs it before the first search

    load = ctypes.CDLL(None).dlopen
    load.restype, load.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    return sum(bool(load(os.fsencode(path), os.RTLD_NOW)) for path in _find_libraries())


def _find_libraries() -> list[Path]:
    found = []
    for package, pattern in _LIBRARIES.items():
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            found += sorted(Path(folder).glob(pattern))
    return found
