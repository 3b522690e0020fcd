"""Real processes that do not read what they are sent, or say more than anybody reads: memory stays bounded, and
whoever has nothing to do with it goes on."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from requirements import requirement
from served import PATIENCE_S, write_config

pytestmark = pytest.mark.slow

GREEDY = {
    "command": sys.executable,
    "args": ["-S", "-E", str(Path(__file__).parents[1] / "support" / "greedy_upstream.py")],
}
MIB = 1024 * 1024


class Reluctant:
    """A client of `foretool serve` that reads only when it is told to."""

    def __init__(self, config: Path) -> None:
        command = [sys.executable, "-m", "foretool", "serve", "--config", str(config)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        self._ids = 0

    def write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def post(self, method: str, params: dict[str, Any]) -> int:
        self._ids += 1
        self.write({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params})
        return self._ids

    def call(self, name: str, token: int | None = None, **arguments: Any) -> int:
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        return self.post("tools/call", {"name": name, "arguments": arguments, **meta})

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def until(self, *ids: int) -> dict[int, dict[str, Any]]:
        """Read until all of these are answered."""
        found: dict[int, dict[str, Any]] = {}
        while not found.keys() >= set(ids):
            message = self.read()
            if "method" not in message:
                assert message["id"] not in found
                found[message["id"]] = message
        return found

    def greet(self) -> None:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        self.until(self.post("initialize", hello))
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.until(self.post("tools/list", {}))

    @property
    def rss(self) -> int:
        """Bytes of the proxy in memory."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def most_rss(self, seconds: float) -> int:
        """The most of it in so many seconds."""
        end, most = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            most = max(most, self.rss)
            time.sleep(0.05)
        return most

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Reluctant]:
    made = Reluctant(write_config(tmp_path, {"loud": GREEDY, "other": GREEDY}, policy="full"))
    try:
        made.greet()
        yield made
    finally:
        made.end()


@requirement("backpressure:client")
def test_a_client_that_does_not_read_bounds_what_upstreams_may_say_and_loses_no_answer(client: Reluctant) -> None:
    before = client.rss
    floods = [client.call("loud__flood", token=at, kib=48 * 1024) for at in range(2)]
    asked = [*floods, client.call("other__echo")]
    assert client.most_rss(6) - before < 40 * MIB
    # Once it reads, everything goes on; the floods are cut short, for nobody wants to read them here.
    read = client.until(asked[-1])
    assert "result" in read[asked[-1]]


@requirement("backpressure:client")
def test_answers_to_a_client_that_does_not_read_wait_with_their_upstream(client: Reluctant) -> None:
    before = client.rss
    asked = [client.call("loud__big", kib=1024) for _ in range(150)]
    asked += [client.call("other__echo") for _ in range(50)]
    assert client.most_rss(6) - before < 60 * MIB
    answers = client.until(*asked)
    assert {len(answers[ident]["result"]["content"][0]["text"]) for ident in asked[:150]} == {MIB}


@requirement("backpressure:upstream")
def test_an_upstream_that_does_not_read_fails_its_own_calls_and_slows_no_other(client: Reluctant) -> None:
    client.until(client.call("loud__deaf"))
    before = client.rss
    asked = []

    def ask() -> None:
        asked.extend(client.call("loud__echo", text="x" * MIB) for _ in range(200))
        asked.append(client.call("other__echo"))

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join(PATIENCE_S)
    assert not asking.is_alive()
    other = client.until(asked[-1])
    assert "result" in other[asked[-1]]
    assert client.most_rss(2) - before < 80 * MIB
    refused = [reply for ident, reply in other.items() if ident != asked[-1]]
    assert len(refused) > 150
    for reply in refused:
        assert reply["result"]["isError"]
        assert "does not read" in reply["result"]["content"][0]["text"]
        assert "not been sent" in reply["result"]["content"][0]["text"]
