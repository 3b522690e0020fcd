"""Records that wait for the database outlive the proxy that is killed meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fakes import config_of
from msgspec.structs import replace
from postgres import SKIPPED, cut_off, new_schema

from foretool.server.config.loader import LiveConfig
from foretool.server.recording.recorder import Recorder, spool_folder
from foretool.server.recording.spool import Spool, Spooled, find_left
from foretool.storage.opening import open_serving_store
from foretool.storage.records import AuditEntry, AuditFilter, Call, Miss, Person, SessionRecord, ToolId

CALL = Call("s", 1_700_000_000.0, ToolId("git__log"), "git", "name", True, "ok", 12.5, True, "{}", 0)
MISS = Miss(
    "s", CALL.at, CALL.tool, "call", "budget", 3, 44, "", (ToolId("git__log"),), 0, 0, "pin it", "called", 0, 0, call=1
)  # fmt: skip
SESSION = SessionRecord("s", "c", "1", "legacy", "http", "", CALL.at)


def left_behind(folder: Path) -> list[Spooled] | None:
    left = find_left(folder)
    if left is None:
        return None
    try:
        return list(left.read())
    finally:
        left.close()


def test_a_file_is_found_once_its_proxy_has_ended(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert spool.add([Spooled(CALL, [MISS]), Spooled(session=SESSION)])
    assert left_behind(tmp_path) is None
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    os.close(spool._descriptor)  # as a kill does
    assert left_behind(tmp_path) == [Spooled(CALL, [MISS]), Spooled(session=SESSION)]


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.add([Spooled(CALL)])
    os.write(spool._descriptor, b'not json\n[]\n{"call": 1}\n\xff\n{"session": {"key": "s", "cl')
    os.close(spool._descriptor)
    assert left_behind(tmp_path) == [Spooled(CALL)]


def test_a_file_has_a_limit_and_is_used_again_once_it_was_emptied(tmp_path: Path) -> None:
    spool = Spool(tmp_path, most=100)
    assert spool.add([Spooled(CALL)])
    assert spool.is_full and not spool.add([Spooled(CALL)])
    spool.clear()
    assert not spool.is_full
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    spool = Spool(tmp_path / "file")
    assert not spool.add([Spooled(CALL)])
    assert "records wait in memory alone" in caplog.text
    spool.close()


def test_a_link_that_somebody_left_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b'{"session":{}}\n')
    (tmp_path / "spool-1-x.jsonl").symlink_to(tmp_path / "target")
    assert find_left(tmp_path) is None


@pytest.mark.anyio
async def test_what_a_killed_proxy_had_to_keep_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = new_schema() or pytest.skip(SKIPPED)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    private = replace(SESSION, profile="private")
    live = LiveConfig(config_of(profiles={"private": {"learn": False}}))
    with open_serving_store(address) as store, open_serving_store(address) as other:
        recorder: Any = Recorder(store, live, lambda: CALL.at)
        recorder.call(CALL)
        recorder.commit()  # is in the database
        cut_off(store, address)
        recorder.begin_session(private, Person("oauth:ann", "Ann"))
        recorder.backlog._entries[:] = []
        late = Call(**{**{name: getattr(CALL, name) for name in CALL.__struct_fields__}, "took_ms": 13.5, "id": 0})
        recorder.call(late, [MISS])
        recorder.backlog._entries[-1] = AuditEntry(CALL.at, "p", "n", "c", "", "call", CALL.tool, "ok", session="s")
        recorder.commit()
        recorder.backlog._spool.add([Spooled(CALL)])  # whose commit was made, which the proxy did not hear
        os.close(recorder.backlog._spool._descriptor)
        for _ in range(2):
            await Recorder(other, live, lambda: CALL.at).take_over()
        assert sorted(each.took_ms for each in other.calls.recent(-1)) == [12.5, 13.5]
        assert [each.tool for each in other.calls.misses()] == [CALL.tool]
        assert other.sessions.get("s") == private
        assert other.sessions.people() == {"s": ("oauth:ann", False)}  # who opted out is still not learned from
        assert len(list(other.audit.each(AuditFilter(until=CALL.at + 1)))) == 1
        assert find_left(spool_folder(other)) is None
