"""The page as a process: loopback alone, the link on the terminal alone."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from command_fakes import fill, write_config

pytestmark = pytest.mark.slow


def test_the_command_prints_a_link_that_works_once_and_stands_in_no_process_list(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    command = [sys.executable, "-m", "foretool", "page", "--config", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            link = running.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{16}/open\?key=[\w-]{43}", link)
            with urllib.request.urlopen(link, timeout=20) as answer:
                assert answer.status == 200
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(link, timeout=20)
            refused.value.close()
            assert refused.value.code == 403
            if sys.platform == "linux":
                said = (
                    Path(f"/proc/{running.pid}/cmdline").read_bytes()
                    + Path(f"/proc/{running.pid}/environ").read_bytes()
                )
                assert link.rpartition("=")[2].encode() not in said
        finally:
            running.terminate()
