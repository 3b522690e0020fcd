"""Open pages hear that something has changed."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from foretool.desk.page.events import MOST, RETRY, FileChanges, files_of, look

pytestmark = pytest.mark.anyio


async def test_a_change_of_a_file_is_told_once(tmp_path: Path) -> None:
    config, storage = tmp_path / "mcp.json", tmp_path / "store"
    config.write_text("{}")
    asked = threading.Event()
    changes = FileChanges(lambda: files_of(config, storage), asked.set)
    heard = changes.follow(look_s=0.001, least_s=0.0)
    assert await anext(heard) == RETRY
    waiting = asyncio.ensure_future(anext(heard))
    assert await asyncio.to_thread(asked.wait, 5)
    storage.with_name("store-wal").write_bytes(b"x")
    async with asyncio.timeout(5):
        assert await waiting == told(changes)
    assert changes.open == 1
    await heard.aclose()  # type: ignore[attr-defined]
    assert changes.open == 0


def told(changes: FileChanges) -> bytes:
    return f"event: changed\nid: {changes.mark()}\ndata: 1\n\n".encode()


async def test_a_change_between_a_page_and_its_events_is_told(tmp_path: Path) -> None:
    storage = tmp_path / "store"
    changes = FileChanges(lambda: [storage])
    mark = changes.mark()
    storage.write_bytes(b"written before the browser follows the events")
    heard = changes.follow(mark, look_s=0.001, least_s=30.0)
    async with asyncio.timeout(5):
        assert [await anext(heard), await anext(heard)] == [RETRY, told(changes)]
    await heard.aclose()  # type: ignore[attr-defined]


def test_files_that_are_not_there_are_looked_at_too(tmp_path: Path) -> None:
    files = files_of(tmp_path / "a", tmp_path / "b")
    assert look(lambda: files) == (None, None, None)
    files[2].write_bytes(b"xy")
    assert [each and each[1] for each in look(lambda: files)] == [None, None, 2]


def test_only_so_many_pages_are_told(tmp_path: Path) -> None:
    changes = FileChanges(list)
    assert not changes.is_full
    changes.open = MOST
    assert changes.is_full
