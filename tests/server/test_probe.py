"""Probes: each upstream is really started, and nothing is left running."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_fakes import write_config

from foretool.server import doctor
from foretool.server.config import loader as configs
from foretool.server.doctor import Diagnosis, Finding


def diagnosis(folder: Path, servers: dict[str, Any], timeout_s: float = 20.0, **settings: Any) -> Diagnosis:
    return doctor.diagnose(configs.load(write_config(folder, servers, **settings)), timeout_s)


def wrong(found: Diagnosis) -> list[Finding]:
    return [finding for finding in found.findings if finding.severity in ("warning", "error")]


def test_a_silent_upstream_is_given_up_at_its_deadline_and_ended(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    script = f"import os, sys; open({str(marker)!r}, 'w').write(str(os.getpid())); sys.stdin.read()"
    started = time.monotonic()
    found = diagnosis(tmp_path, {"mute": {"command": sys.executable, "args": ["-c", script]}}, timeout_s=1.0)
    assert time.monotonic() - started < 10
    (error,) = wrong(found)
    assert error.what == "mute: no answer to initialize within 1 s"
    assert "--timeout 120" in error.do
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)


def test_a_stubborn_upstream_is_ended_once_and_not_started_again(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}} '); time.sleep(60)"
    )
    found = diagnosis(tmp_path, {"mule": {"command": sys.executable, "args": ["-c", script]}}, timeout_s=1.0)
    assert [each.what for each in wrong(found)] == ["mule: no answer to initialize within 1 s"]
    (pid,) = pids.read_text().split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
