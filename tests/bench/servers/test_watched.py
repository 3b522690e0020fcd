"""The clock on the steps of an event loop."""

import asyncio
import time
from pathlib import Path

import pytest

from bench.growth.tables import read_steps
from bench.servers import watched


def spend(ms: float) -> None:
    until = time.thread_time() + ms / 1e3
    while time.thread_time() < until:
        pass


def test_long_steps_are_noted_with_what_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.Handle, "_run", asyncio.Handle._run)

    async def work() -> None:
        asyncio.get_running_loop().call_soon(spend, 2 * watched.LEAST_MS)
        await asyncio.sleep(0)
        spend(3 * watched.LEAST_MS)

    with (tmp_path / "steps").open("w") as file:
        watched.watch(file)
        asyncio.run(work())
    found = {what: took for took, what in read_steps(tmp_path / "steps")}
    assert found["spend"] >= 2 * watched.LEAST_MS
    assert any("work" in what and took >= 3 * watched.LEAST_MS for what, took in found.items())
