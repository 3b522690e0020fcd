"""One process at a time does a kind of work for a storage file, and its end lets the next one begin."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from requirements import requirement

from foretool.storage.engine import StorageError
from foretool.storage.sqlite.leads import FileLead as Lead

HOLD = """
import sys
from pathlib import Path
from foretool.storage.sqlite.leads import FileLead as Lead
lead = Lead(Path(sys.argv[1]), "work")
print(lead.take(), flush=True)
lead.beat("counting")
print(flush=True)
sys.stdin.read()
"""


@requirement("learn:one")
def test_one_process_has_the_lead_until_it_is_killed(tmp_path: Path) -> None:
    storage = tmp_path / "s.sqlite3"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD, str(storage)], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout
        assert child.stdout.readline() == "True\n"
        child.stdout.readline()
        lead = Lead(storage, "work")
        holder = lead.holder()
        assert holder is not None and (holder.pid, holder.doing) == (child.pid, "counting")
        assert not lead.take() and not lead.is_held
        assert Lead(storage, "other work").take()
        child.kill()
        child.wait()
    assert lead.holder() is None
    assert lead.take() and lead.take()
    assert not Lead(storage, "work").take()
    lead.release()
    assert Lead(storage, "work").take()


def test_the_same_store_by_another_path_is_the_same_store(tmp_path: Path) -> None:
    real = tmp_path / "s.sqlite3"
    real.touch()
    (tmp_path / "link").symlink_to(real)
    with Lead(tmp_path / "link", "work") as lead:
        assert lead.take()
        assert not Lead(real, "work").take()


def test_what_a_holder_does_is_written_now_and_then(tmp_path: Path) -> None:
    with Lead(tmp_path / "s", "work") as lead:
        assert lead.take()
        assert lead.path is not None and stat.S_IMODE(lead.path.stat().st_mode) == 0o600
        lead.beat("one")
        lead.beat("two")
        holder = lead.holder()
        assert holder is not None and holder.doing == "one"
    lead.beat("nothing")


def test_a_store_in_memory_has_one_process() -> None:
    lead = Lead(":memory:", "work")
    assert lead.take() and lead.holder() is None
    lead.release()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_somebody_else_put_there_is_refused(tmp_path: Path, kind: str) -> None:
    place, other = tmp_path / "s.work", tmp_path / "precious"
    other.write_text("kept")
    if kind == "link":
        place.symlink_to(other)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    lead = Lead(tmp_path / "s", "work")
    with pytest.raises(StorageError, match=r"s\.work"):
        lead.take()
    assert lead.holder() is None
    assert other.read_text() == "kept"


def test_a_file_that_says_nonsense_is_taken(tmp_path: Path) -> None:
    (tmp_path / "s.work").write_bytes(b"\xff" * 10_000)
    lead = Lead(tmp_path / "s", "work")
    assert lead.holder() is None
    assert lead.take()
