"""The outbox: first the records, then what goes to clients, in its order."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from fakes import Failed, FakeUpstream, proxy_over, said

from foretool.server.clients.exchange import Outbox


class Told:
    """A channel that takes notes."""

    def __init__(self, log: list[object]) -> None:
        self.log = log

    def send(self, data: bytes) -> None:
        self.log.append(("send", data))

    def finish(self, data: bytes, code: int | None) -> None:
        self.log.append(("finish", data, code))

    def end(self) -> None:
        self.log.append("end")


def test_records_are_committed_once_before_anything_is_sent_and_the_order_is_kept() -> None:
    log: list[object] = []
    soon: list[Callable[[], None]] = []
    outbox = Outbox(lambda: log.append("commit"), soon.append)
    channel = Told(log)
    outbox.send(channel, b"1")
    outbox.finish(channel, b"2", -32602)
    outbox.end(channel)
    assert (log, len(soon)) == ([], 1)
    soon.pop()()
    assert log == ["commit", ("send", b"1"), ("finish", b"2", -32602), "end"]


@pytest.mark.anyio
async def test_after_an_upgrade_a_request_that_needs_more_code_says_to_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "foretool.server.catalog.server_words", None)  # as if its file were gone
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        await stage.client.initialize()
        with pytest.raises(Failed, match="foretool was upgraded or removed while it runs; restart this client"):
            await stage.client.call_tool("discover_tools", {"task": "add two numbers"})
        assert said(await stage.client.call_tool("calc__add", {})) == "add"
