"""How many notifications of one connection go on to clients.

A server may write a million log entries a second. The allowance of its link keeps it from taking the loop; this keeps
it from drowning the clients. Log entries over the limit are left out, and the next one says how many. Progress over the
limit is left out, as the specification allows. Changes over the limit are put off and told once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, Message

LOGS: Final = (500.0, 100.0)
PROGRESS: Final = (500.0, 200.0)
CHANGES: Final = (100.0, 20.0)
"""How many notifications of a kind may come at once, and how many a second."""
PUT_OFF_S: Final = 1.0
_MOST_PUT_OFF: Final = 1000
"""Changes that wait; more are left out."""
MOST_SIZE: Final = 1024 * 1024
"""Bytes of one notification's params. A longer one is left out: nobody writes such log entries, and to read it takes
time that belongs to the other upstreams."""
_MOST_KEY: Final = 4096
"""A change whose params are longer is left out over the limit, because it could not be told apart cheaply."""

Go = Callable[[Message], None]

log = logging.getLogger("foretool.connection")


class Bucket(Struct):
    """A token bucket: lets `most` through at once and `rate` a second."""

    most: float
    rate: float
    left: float
    at: float

    def take(self, now: float) -> bool:
        """Return whether one more may pass; counts it if so."""
        self.left = min(self.left + (now - self.at) * self.rate, self.most)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


def new_bucket(limit: tuple[float, float], now: float) -> Bucket:
    """Return a full bucket."""
    return Bucket(*limit, left=limit[0], at=now)


class NoticeLimit:
    """Limits how many notifications of one connection are passed on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        now = clock()
        self._logs, self._progress, self._changes = (new_bucket(limit, now) for limit in (LOGS, PROGRESS, CHANGES))
        self.left_out = 0
        """Log entries that were left out since the last one that passed."""
        self._put_off: dict[tuple[str, bytes], tuple[Message, Go]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def pass_notice(self, message: Message, go: Go) -> None:
        """Pass a notification on, unless there are too many of its kind."""
        if message.method == "notifications/progress":
            if self._progress.take(self._clock()):
                go(message)
        elif message.method == "notifications/message":
            self.pass_log(message, go)
        elif message.method == "notifications/tools/list_changed":
            go(message)  # the list is asked for only now and then
        else:
            self.pass_change(message, go)

    def pass_log(self, message: Message, go: Go) -> None:
        """Pass a log entry on, or count it."""
        if not self._logs.take(self._clock()):
            if not self.left_out:
                log.info("an upstream writes more than %g log entries a second; some are left out", LOGS[1])
            self.left_out += 1
            return
        if self.left_out:
            words = f"{self.left_out} log entries of this server were left out: it writes too many"
            params = {"level": "warning", "logger": "foretool", "data": words}
            self.left_out = 0
            go(Message(method=message.method, params=jsonrpc.raw(params)))
        go(message)

    def pass_change(self, message: Message, go: Go) -> None:
        """Pass any other notification on, now or within `PUT_OFF_S`; equal ones that are put off are told once."""
        if self._changes.take(self._clock()):
            go(message)
            return
        params = b"" if message.params is UNSET else bytes(message.params)
        if len(params) <= _MOST_KEY and len(self._put_off) < _MOST_PUT_OFF:
            self._put_off[str(message.method), params] = (message, go)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(PUT_OFF_S, self._pass_put_off)

    def _pass_put_off(self) -> None:
        self._timer = None
        waiting, self._put_off = self._put_off, {}
        for message, go in waiting.values():
            go(message)

    def close(self) -> None:
        """Forget what was put off: the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._put_off.clear()
