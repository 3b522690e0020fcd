"""Trouble with the storage file is said once, noted where `status` finds it, and over when the file is back."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from command_fakes import fill, write_config
from fakes import live_config

from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.server.recording.notes import write_note
from foretool.server.recording.recorder import Recorder
from foretool.server.recording.store_watch import StoreWatch, TroubleNote, find_trouble
from foretool.storage.engine import NEWER_VERSION
from foretool.storage.opening import open_serving_store

pytestmark = pytest.mark.anyio


def test_a_note_is_read_while_its_proxy_runs_and_removed_after(tmp_path: Path) -> None:
    storage = tmp_path / "store.sqlite3"
    mine = TroubleNote(os.getpid(), time.time(), 5.0, "no room")
    (path,) = write_note(storage, "trouble", mine)
    assert path.stat().st_mode & 0o777 == 0o600
    assert find_trouble(storage) == [mine]
    write_note(storage, "trouble", TroubleNote(2**22 + 1, 1.0, 2.0, "dead"))
    assert find_trouble(storage) == [mine]
    assert len(list(tmp_path.glob("*.trouble"))) == 1


def test_a_note_goes_to_the_runtime_folder_where_the_other_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    storage = tmp_path / "missing" / "store.sqlite3"
    (path,) = write_note(storage, "trouble", TroubleNote(os.getpid(), time.time(), 5.0, "no room"))
    assert path.parent == runtime
    assert [note.trouble for note in find_trouble(storage)] == ["no room"]
    assert find_trouble(tmp_path / "other.sqlite3") == []


def test_a_link_in_place_of_a_note_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    storage = tmp_path / "store.sqlite3"
    (tmp_path / f"store.sqlite3.{os.getpid()}.trouble").symlink_to(victim)
    assert write_note(storage, "trouble", TroubleNote(os.getpid(), time.time(), 5.0, "no room")) == []
    assert victim.read_text() == "precious"


async def test_trouble_is_told_until_the_file_can_be_used(tmp_path: Path) -> None:
    blocker = tmp_path / "kept"
    blocker.write_text("a file")
    told: list[str] = []
    back: list[bool] = []
    with open_serving_store(blocker / "store.sqlite3") as store:
        recorder = Recorder(store, live_config(), time.time)
        watch = StoreWatch(store, recorder, told.append, lambda: back.append(True), time.time())
        watch.tick()
        assert "storage path" in told[-1] and "kept in memory" in told[-1]
        await watch.finish()
        assert not back
        blocker.unlink()
        async with asyncio.timeout(20):
            while not back:
                watch.tick()
                await asyncio.sleep(0.05)
        watch.tick()
        assert told[-1] == ""
        watch.close()


def test_a_proxy_of_an_older_version_is_named_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path)
    fill(config).close()
    storage = load(config).storage
    newer = f"{storage}: changed by a newer foretool (schema 99); {NEWER_VERSION}"
    write_note(storage, "trouble", TroubleNote(os.getpid(), time.time(), time.time(), newer))
    run(["status", "--config", str(config)])
    assert f"proxy {os.getpid()} has been older than its storage for" in capsys.readouterr().out
    run(["doctor", "--config", str(config)])
    said = " ".join(capsys.readouterr().out.split())
    assert f"proxy {os.getpid()} serves an older version: " in said and "mend the file" not in said
    assert f"[FT508] -> {NEWER_VERSION}" in said
