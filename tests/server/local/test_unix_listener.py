"""Callers are taken a few at a time, and a lack of files is waited out."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from local_fakes import HERE, ask_in_thread, listening

from foretool.server.local import server as local_server
from foretool.server.local.server import LocalListener

pytestmark = pytest.mark.anyio


async def test_closing_removes_the_socket(tmp_path: Path) -> None:
    listener = LocalListener(str(tmp_path / "run"), "a.sock", lambda: None)
    assert [each.name for each in (tmp_path / "run").iterdir()] == ["a.sock"]
    await listener.close()
    assert list((tmp_path / "run").iterdir()) == []


async def test_without_a_free_file_the_listener_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local_server, "PAUSE_S", 0.01)
    async with listening(tmp_path / "run") as server:
        assert server._listener is not None
        listener = server._listener
        real, refused = listener._socket, asyncio.Event()

        class Full:
            def accept(self) -> None:
                refused.set()
                listener._socket = real
                raise OSError(errno.EMFILE, "Too many open files")

            def fileno(self) -> int:
                return real.fileno()

        listener._socket = Full()  # type: ignore[assignment]
        assert await ask_in_thread(tmp_path / "run", {"n": 1}, HERE) == {"echo": {"n": 1}}
        assert refused.is_set()
    assert "takes no callers for a moment: [Errno 24] Too many open files" in caplog.text
