"""A real `serve --http` that is asked to end answers what it was asked before."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

import pytest
from requirements import requirement
from served import lay_ranks

from bench.clients.http import HttpClient
from bench.clients.messages import LEGACY, MODERN, Failed, said
from bench.fleet.replicas import TOOL, Replica
from bench.processes import installed
from foretool.storage.opening import open_store

pytestmark = pytest.mark.slow


async def status_of(port: int, path: str) -> tuple[int, bytes]:
    """The status of a GET, and the response's head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), head


@contextlib.asynccontextmanager
async def called(replica: Replica, version: str):  # type: ignore[no-untyped-def]
    """A call that is under way, for about a second."""
    client = HttpClient(replica.port, version)
    await client.connect()
    await client.initialize()
    await client.ask("tools/list")
    call = asyncio.create_task(client.call(TOOL, {"text": version}))
    await asyncio.sleep(0.3)
    yield call
    with contextlib.suppress(ConnectionError):
        await client.close()


async def begin(folder: Path, call_ms: float) -> Replica:
    lay_ranks(folder)
    replica = Replica(folder / "one", installed(None), str(folder / "records.sqlite3"), call_ms)
    await replica.start()
    await replica.wait_ready()
    return replica


@requirement("replicas:drained")
@pytest.mark.parametrize("version", [MODERN, LEGACY])
def test_on_sigterm_a_call_that_waits_is_answered_and_on_record(tmp_path: Path, version: str) -> None:
    async def run() -> None:
        replica = await begin(tmp_path, 2000.0)
        async with called(replica, version) as call:
            assert replica.process is not None
            replica.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                while (await status_of(replica.port, "/readyz"))[0] != 503:
                    await asyncio.sleep(0.01)
            status, head = await status_of(replica.port, "/healthz")
            # It lives, takes no probe for a failure, and sends who is connected to another replica.
            assert status == 200 and b"connection: close" in head.lower() and not call.done()
            assert version in said(await call)
        assert await replica.process.wait() == 0

    asyncio.run(run())
    with open_store(tmp_path / "records.sqlite3") as store:
        assert [version in each.arguments for each in store.calls.recent(5)] == [True]


@requirement("replicas:drained")
@pytest.mark.parametrize("signals", [(signal.SIGINT,), (signal.SIGTERM, signal.SIGTERM)], ids=["ctrl-c", "twice"])
def test_who_is_in_a_hurry_waits_for_no_call(tmp_path: Path, signals: tuple[signal.Signals, ...]) -> None:
    async def run() -> None:
        replica = await begin(tmp_path, 600_000.0)
        async with called(replica, MODERN) as call:
            assert replica.process is not None
            for each in signals:
                replica.process.send_signal(each)
                await asyncio.sleep(0.5)
            assert await replica.process.wait() == 0
            with pytest.raises((OSError, EOFError, Failed)):
                await call

    asyncio.run(run())


@requirement("replicas:drained")
def test_a_call_that_is_not_answered_in_time_has_failed(tmp_path: Path) -> None:
    async def run() -> None:
        replica = await begin(tmp_path, 600_000.0)
        async with called(replica, LEGACY) as call:
            assert replica.process is not None
            replica.process.send_signal(signal.SIGTERM)
            assert await replica.process.wait() == 0
            with pytest.raises((OSError, EOFError, Failed)):
                await call

    asyncio.run(run())
    with open_store(tmp_path / "records.sqlite3") as store:
        assert [each.outcome for each in store.calls.recent(5)] == ["lost"]
