"""What the operating system says of a process, and how measurements are summed up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import processes


def test_what_the_system_says_of_this_process() -> None:
    rss, pss = processes.memory_mib(os.getpid())
    assert rss >= pss > 1
    assert processes.open_files(os.getpid()) >= 3
    assert processes.threads(os.getpid()) >= 1


def test_modules_stay_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code = [sys.executable, "-c", "import foretool.storage.records"]
    subprocess.run(code, check=True, env=processes.compiled_environment(tmp_path))
    assert list(tmp_path.rglob("records*.pyc"))


def test_spread() -> None:
    assert processes.spread([0.3, 0.1, 0.2]) == {"median": 0.2, "least": 0.1, "all": [0.3, 0.1, 0.2]}
