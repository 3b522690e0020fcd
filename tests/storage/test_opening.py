"""A store is created private, and opening one that is up to date is cheap."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

from stored_records import CALL

from foretool.storage.opening import examine_store, open_existing_store, open_store


def test_a_new_file_is_private_and_its_directory_too(path: Path) -> None:
    with open_store(path) as store:
        store.calls.record([CALL])
        modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert modes == {"foretool.db": 0o600, "foretool.db-wal": 0o600, "foretool.db-shm": 0o600}


def test_reading_a_store_that_does_not_exist_creates_no_file(path: Path) -> None:
    with open_existing_store(path) as empty:
        assert empty.calls.recent(-1) == [] and not path.exists()
    with open_store(path) as store:
        store.calls.record([CALL])
    with open_existing_store(path) as found:
        assert len(found.calls.recent(-1)) == 1


def test_opening_an_up_to_date_file_and_serving_from_it_imports_nothing_heavy(path: Path) -> None:
    open_store(path).close()
    code = (
        "import sys, pathlib; from foretool.storage.opening import open_store\n"
        "store = open_store(pathlib.Path(sys.argv[1])); store.catalog.load([('git', 'f1')]); print(*sys.modules)"
    )
    command = [sys.executable, "-c", code, str(path)]
    loaded = set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert not {"sqlite_utils", "click", "pydantic", "numpy", "asyncio"} & loaded


def test_examining_a_new_store_finds_no_problem(path: Path) -> None:
    open_store(path).close()
    health = examine_store(path, 5.0)
    assert (health.is_complete, health.is_writable, health.problems) == (True, True, ())
