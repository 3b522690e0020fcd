"""Processes that print where they listen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

URL = r"http://127\.0\.0\.1:\d+/mcp"


@contextmanager
def printing(command: list[str], wanted: str = URL) -> Iterator[str]:
    """A process, while it runs; the part of its output that matches."""
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=quiet)
    try:
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if found := re.search(wanted, line):
                break
        else:
            pytest.fail(f"{command} ended without a URL: {''.join(seen)}")
        yield found[0]
    finally:
        process.terminate()
        process.communicate(timeout=30)


@contextmanager
def over_http(config: Path) -> Iterator[str]:
    """`foretool serve --http` on a free port; its URL."""
    arguments = ["serve", "--config", str(config), "--http", "127.0.0.1:0"]
    with printing([sys.executable, "-m", "foretool", *arguments]) as url:
        yield url
