"""The proxy's end of windows: how much is read from each, what one that does not read gets, and when all have gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from requirements import requirement

from foretool.server.local import joined
from foretool.server.local.joined import MOST_LINES, MOST_OPEN, Window, Windows
from foretool.server.local.server import Hello
from foretool.server.protocol.jsonrpc import Message
from foretool.server.transports.client.base import Channel
from foretool.server.transports.pipes import Turn

pytestmark = pytest.mark.anyio


class FakeLink:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_reading = True
        self.end = ""

    def send(self, line: bytes) -> None:
        self.sent.append(line)

    def close(self) -> None:
        self.end = self.end or "closed"

    def drop(self) -> None:
        self.end = "dropped"

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


class FakeFront:
    """A client whose requests stay open until the test answers them."""

    era = "legacy"

    def __init__(self) -> None:
        self.open: list[Any] = []
        self.is_closed = False
        self.info = {"name": "test"}

    @property
    def in_flight(self) -> int:
        return len(self.open)

    def receive(self, message: Message, channel: Channel) -> None:
        self.open.append(message.id)

    def cancel(self, channel: Channel, reason: str) -> None: ...

    def close(self) -> None:
        self.is_closed = True


class Fronts:
    def __init__(self) -> None:
        self.opened: list[FakeFront] = []
        self.folders: list[str] = []

    def open(self, *_: Any, folder: str, **__: Any) -> FakeFront:
        self.opened.append(FakeFront())
        self.folders.append(folder)
        return self.opened[-1]


class FakeFile:
    """A config file that takes until `read` is set to be read again."""

    def __init__(self, changed: bool = False) -> None:
        self.changed = changed
        self.read = asyncio.Event()
        self.looks = 0
        self.refused = None

    def has_changed(self) -> bool:
        return self.changed

    async def look(self) -> None:
        self.looks += 1
        await self.read.wait()
        self.changed = False


def setting(
    linger_s: float = 0.0, refuse: Callable[[dict[str, Any]], str] = lambda hello: "", file: FakeFile | None = None
) -> Any:
    fronts: Any = Fronts()
    return Windows(fronts, "", 1_000_000, Turn(), lambda: linger_s, refuse, file or FakeFile()), fronts


def join(windows: Windows, folder: str = "/work") -> tuple[Window, FakeLink]:
    link = FakeLink()
    talk: Any = windows.service().open(link, Hello("", folder, {"pid": 7}))
    return talk, link


def calls(count: int) -> bytes:
    return b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"x"}\n' % each for each in range(count))


@requirement("trust:windows:floods")
async def test_a_few_lines_are_taken_in_each_turn_and_none_while_many_requests_are_open() -> None:
    windows, fronts = setting()
    window, link = join(windows)
    window.receive(calls(MOST_OPEN + 100))
    (front,) = fronts.opened
    assert front.in_flight == MOST_LINES and not link.is_reading
    for _ in range(MOST_OPEN // MOST_LINES + 2):
        await asyncio.sleep(0)
    assert front.in_flight == MOST_OPEN and not link.is_reading
    for ident in range(100):
        front.open.remove(ident)
        window.finish(b'{"jsonrpc":"2.0","id":%d,"result":{}}' % ident, None)
    for _ in range(10):
        await asyncio.sleep(0)
    assert front.in_flight == MOST_OPEN and front.open[-1] == MOST_OPEN + 99
    del front.open[:]
    window.end()
    assert link.is_reading
    window.lost()


@requirement("trust:windows:floods")
async def test_a_window_that_does_not_read_gets_no_progress_and_is_dropped_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joined, "MOST_UNREAD", 1_000)
    windows, fronts = setting()
    window, link = join(windows)
    window.hold(True)
    window.receive(calls(1))
    assert fronts.opened[0].in_flight == 0 and not link.is_reading
    window.send(b'{"jsonrpc":"2.0","method":"notifications/progress"}')
    window.finish(b"x" * 500, None)
    await asyncio.sleep(0)
    assert link.sent == [b"x" * 500 + b"\n"] and link.end == ""
    window.finish(b"y" * 600, None)
    await asyncio.sleep(0)
    assert link.end == "dropped"
    window.lost()


async def test_a_window_that_reads_again_goes_on() -> None:
    windows, fronts = setting()
    window, link = join(windows)
    window.hold(True)
    window.receive(calls(1))
    window.hold(False)
    await asyncio.sleep(0)
    assert fronts.opened[0].in_flight == 1 and link.is_reading
    window.lost()


async def test_what_is_no_message_and_what_is_too_long_is_answered() -> None:
    windows, _ = setting()
    window, link = join(windows)
    for data in (b"{\n", b"x" * 1_000_001, b"\n"):
        window.receive(data)
    await asyncio.sleep(0)
    codes = [json.loads(line)["error"]["code"] for line in b"".join(link.sent).splitlines()]
    assert sorted(codes) == [-32700, -32600]
    window.lost()


@requirement("windows:end")
async def test_all_have_gone_when_the_last_one_has_and_none_comes_in_time() -> None:
    windows, fronts = setting()
    one, two = join(windows, "/one")[0], join(windows, "/two")[0]
    assert fronts.folders == ["/one", "/two"]
    one.lost()
    await asyncio.sleep(0.01)
    assert not windows.gone.is_set() and fronts.opened[0].is_closed
    two.lost()
    three, _ = join(windows)
    await asyncio.sleep(0.01)
    assert not windows.gone.is_set()
    three.lost()
    await asyncio.wait_for(windows.gone.wait(), 10)
    assert windows.service().refuse({}) == "this proxy ends"


@requirement("windows:end")
async def test_a_window_that_opens_after_an_edit_begins_with_the_new_config() -> None:
    file = FakeFile(changed=True)
    windows, fronts = setting(file=file)
    (first, link), (second, _) = join(windows), join(windows)
    first.receive(calls(2))
    second.receive(calls(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [front.in_flight for front in fronts.opened] == [0, 0] and not link.is_reading
    assert file.looks == 1
    file.read.set()
    while [front.in_flight for front in fronts.opened] != [2, 1]:
        await asyncio.sleep(0)
    assert link.is_reading


async def test_a_window_does_not_wait_long_for_a_config_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined, "LOOK_S", 0.01)
    windows, fronts = setting(file=FakeFile(changed=True))
    window, _ = join(windows)
    window.receive(calls(1))
    while not fronts.opened[0].in_flight:
        await asyncio.sleep(0.001)


async def test_a_client_that_closes_its_output_still_gets_its_answers() -> None:
    windows, fronts = setting()
    window, link = join(windows)
    window.receive(calls(1))
    assert window.ended()
    await asyncio.sleep(0)
    assert link.end == ""
    fronts.opened[0].open.clear()
    window.finish(b'{"jsonrpc":"2.0","id":0,"result":{}}', None)
    await asyncio.sleep(0)
    assert link.sent and link.end == "closed"
    window.lost()


async def test_a_proxy_that_ends_closes_every_window() -> None:
    windows, _ = setting()
    window, link = join(windows)
    closing = asyncio.create_task(windows.close())
    await asyncio.sleep(0)
    assert link.end == "closed"
    window.lost()
    await asyncio.wait_for(closing, 10)


async def test_a_proxy_whose_first_window_was_killed_before_it_joined_ends() -> None:
    windows, _ = setting()
    windows.expect_first(0.0)
    await asyncio.wait_for(windows.gone.wait(), 10)
    windows, _ = setting()
    windows.expect_first(0.0)
    join(windows)
    await asyncio.sleep(0.01)
    assert not windows.gone.is_set()
