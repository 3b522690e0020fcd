"""An upstream that answers late, stdlib only: `python -S -E slow_upstream.py --name N [--count 10] [--announce 500]`.

It serves the made-up tools of `echo.py`. A call with `ms` is answered after so many milliseconds, and other calls go
on meanwhile. A call with a progress token gets one progress notification at once, which carries the call's text. A call
with `log` writes a log entry first. A cancelled call is not answered. After every `--announce` calls the upstream
announces that its tools have changed, although they have not.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import select
import sys
import time
from collections.abc import Sequence
from typing import Any

import echo  # type: ignore[import-not-found]  # beside this file, which is run as a script

Json = dict[str, Any]

READ_BYTES = 1 << 16


class SlowUpstream:
    """Reads requests, and answers each when it is due."""

    def __init__(self, name: str, count: int, announce: int) -> None:
        self.name = name
        self.tools = echo.made_up(name, count)
        self.announce = announce
        self.calls = 0
        self._due: list[tuple[float, int, Any, bytes]] = []
        self._order = itertools.count()
        self._open: set[Any] = set()
        """The ids of calls that are not answered yet."""

    def serve(self) -> None:
        """Serve until stdin closes."""
        rest = b""
        while True:
            patience = None if not self._due else max(0.0, self._due[0][0] - time.monotonic())
            if select.select([0], [], [], patience)[0]:
                data = os.read(0, READ_BYTES)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))
            self._answer_due()

    def _hear(self, message: Json) -> None:
        method = message.get("method")
        if method == "notifications/cancelled":
            self._open.discard(message["params"]["requestId"])
        elif method is not None and "id" in message:
            reply = {"jsonrpc": "2.0", "id": message["id"], **echo.answer(self.name, self.tools, message)}
            if method == "initialize":
                reply["result"]["capabilities"] = {"tools": {"listChanged": True}, "logging": {}}
            if method == "tools/call":
                self._call(message, reply)
            else:
                _say(reply)

    def _call(self, message: Json, reply: Json) -> None:
        params = message["params"]
        arguments = params.get("arguments") or {}
        self.calls += 1
        if arguments.get("log"):
            _say(_note("notifications/message", {"level": "info", "data": arguments["text"]}))
        token = (params.get("_meta") or {}).get("progressToken")
        if token is not None:
            progress = {"progressToken": token, "progress": 1, "total": 2, "message": arguments["text"]}
            _say(_note("notifications/progress", progress))
        self._open.add(message["id"])
        due = time.monotonic() + arguments.get("ms", 0) / 1000
        heapq.heappush(self._due, (due, next(self._order), message["id"], _written(reply)))
        if self.announce and self.calls % self.announce == 0:
            _say(_note("notifications/tools/list_changed", {}))

    def _answer_due(self) -> None:
        ready = []
        while self._due and self._due[0][0] <= time.monotonic():
            _, _, ident, line = heapq.heappop(self._due)
            if ident in self._open:
                self._open.discard(ident)
                ready.append(line)
        if ready:
            _write(b"".join(ready))


def _note(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def _written(message: Json) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _say(message: Json) -> None:
    _write(_written(message))


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def main(argv: Sequence[str] | None = None) -> None:
    """Run the upstream that the arguments describe."""
    parser = argparse.ArgumentParser(prog="slow_upstream.py", description=__doc__)
    parser.add_argument("--name", default="slow")
    parser.add_argument("--count", type=int, default=10, help="made-up tools; default %(default)s")
    parser.add_argument("--announce", type=int, default=500, help="calls between announcements; 0 for none")
    arguments = parser.parse_args(argv)
    SlowUpstream(arguments.name, arguments.count, arguments.announce).serve()


if __name__ == "__main__":
    main()
