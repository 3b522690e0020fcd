"""Finds the command that starts this installation of foretool, for the entries that clients get."""

import os
import shutil
import sys
from pathlib import Path


def launcher() -> list[str]:
    """Return the command with its full path, because clients rarely have the PATH of this shell."""
    started = Path(sys.argv[0])
    if started.name == "foretool" and started.is_file() and os.access(started, os.X_OK):
        return [str(started.absolute())]
    beside = Path(sys.executable).with_name("foretool")
    if beside.is_file():
        return [str(beside)]
    installed = shutil.which("foretool")
    return [installed] if installed else [sys.executable, "-m", "foretool"]
