"""A registry on loopback that answers what a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OFFICIAL = "io.modelcontextprotocol.registry/official"


def item(name: str = "io.github.ann/weather", *, latest: bool = True, **server: Any) -> dict[str, Any]:
    """Return one item of an answer."""
    known = {"name": name, "description": "Says the weather.", "version": "1.2.3"}
    return {"server": {**known, **server}, "_meta": {OFFICIAL: {"status": "active", "isLatest": latest}}}


def npm(identifier: str = "weather-mcp", version: str = "1.2.3", **more: Any) -> dict[str, Any]:
    """Return a package of npm."""
    known = {"registryType": "npm", "identifier": identifier, "version": version, "transport": {"type": "stdio"}}
    return {**known, **more}


class Answer:
    """What the registry answers, and which addresses it was asked for."""

    def __init__(self, items: list[dict[str, Any]]) -> None:
        self.body = json.dumps({"servers": items, "metadata": {"count": len(items)}}).encode()
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked: list[str] = []
        self.url = ""


@contextmanager
def registry(*items: dict[str, Any]) -> Iterator[Answer]:
    """Serve an answer on loopback; the test may change it."""
    answer = Answer(list(items))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer.asked.append(self.path)
            self.send_response(answer.status)
            self.send_header("content-length", str(len(answer.body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    answer.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield answer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
