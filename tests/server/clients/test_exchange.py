"""The outbox: first the records, then what goes to clients, in its order."""

from __future__ import annotations

from collections.abc import Callable

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
