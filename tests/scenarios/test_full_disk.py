"""Commands over a storage file on a disk that is full, or that takes no writes: a real one, in a mount namespace."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_fakes import fill, write_config
from requirements import requirement

pytestmark = pytest.mark.slow

FORETOOL = f"{sys.executable} -P -m foretool"
MOUNT = "mount -t tmpfs -o size=2m tmpfs {folder} && cp {file} {folder}/"
STATES = {
    "full": ("dd if=/dev/zero of={folder}/fill bs=1k", "disk full", "is full: nothing more is recorded or learned"),
    "read-only": ("mount -o remount,ro {folder}", "its file system is read-only", "its file system is read-only"),
}
READS = {
    "search 'add two numbers'": "calc__add",
    "tools": "calc__add",
    "list": "calc",
    "misses": "1 miss",
    "export calls": "sky__forecast",
    "status --clients": "cursor",
}
WRITES = ("forget --all --yes", "learn", "review calc")


def run_on(state: str, tmp_path: Path, *commands: str) -> list[tuple[int, str]]:
    """Return what each command says with its store on such a disk, and its exit status."""
    folder, file = tmp_path / "disk", tmp_path / "foretool.sqlite3"
    folder.mkdir()
    with fill(write_config(tmp_path)):
        pass
    config = write_config(tmp_path, storage=str(folder / file.name))
    runs = [f"{FORETOOL} {each} --config {config} 2>&1; echo \"|$?\"; echo '<end>'" for each in commands]
    lines = [f"({MOUNT} && {STATES[state][0]} 2>{os.devnull}; true)".format(folder=folder, file=file), *runs]
    line = ["unshare", "-rm", "sh", "-c", "\n".join(lines)]
    if shutil.which("unshare") is None or subprocess.run([*line[:2], "true"], capture_output=True).returncode:
        pytest.skip("has no mount namespaces of its own")
    said = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False).stdout
    parts = [" ".join(part.split()).rpartition("|") for part in said.split("<end>")[:-1]]
    return [(int(status), text) for text, _, status in parts]


@requirement("trust:storage:serves-without")
@pytest.mark.parametrize("state", STATES)
def test_what_is_on_record_is_shown_and_searched_and_what_would_write_says_why_not(state: str, tmp_path: Path) -> None:
    _, error, told = STATES[state]
    shown = run_on(state, tmp_path, *READS, *WRITES, "status", "doctor", "")
    for (command, wanted), (status, said) in zip(READS.items(), shown, strict=False):
        assert wanted in said and status == 0, (command, said)
    for command, (status, said) in zip(WRITES, shown[len(READS) :], strict=False):
        assert error in said and status == 1, (command, said)
    for status, said in shown[-3:]:
        assert told in said and status == 1, said
