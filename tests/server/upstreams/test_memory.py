"""What is remembered of upstreams, and whose states are forgotten."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import pytest
from fakes import FakeUpstream, failing_store, proxy_over, tool
from msgspec.structs import replace

from foretool.server.upstreams.memory import find_proxies, states_by_upstream
from foretool.storage.records import UpstreamState

pytestmark = pytest.mark.anyio


def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        return process.pid


async def test_a_proxy_that_starts_forgets_those_that_were_killed_and_no_other() -> None:
    store, _ = failing_store()
    here, long_ago = time.time(), time.time() - 30 * 86_400
    for pid, began, name in ((dead_pid(), here, "killed"), (os.getppid(), here, "other"), (os.getpid(), long_ago, "a")):
        store.serving.save_state(UpstreamState(pid, began, name, "ready", began, "legacy", 1, 0, 0, "", ()))
    async with proxy_over(FakeUpstream("calc", ["add"]), store=store):
        await asyncio.sleep(5)
        assert {state.upstream for state in store.serving.states()} == {"other", "calc"}


async def test_tools_are_on_record_as_known_when_a_list_has_them_however_long_they_take_to_save() -> None:
    many = [tool(f"t{number}", f"Does {number}. " * 30) for number in range(1500)]
    slow = FakeUpstream("sky", many, gate=asyncio.Event())
    async with proxy_over(slow) as stage:
        await stage.client.initialize()
        listing = asyncio.create_task(stage.client.list_tools())
        assert slow.gate is not None
        await asyncio.sleep(0)
        slow.gate.set()
        await listing
        await asyncio.sleep(1)
        (session,) = stage.store.sessions.recent(1)
        (shown, *_) = stage.store.sessions.exposures(session.key)
        assert stage.store.catalog.versions("sky", "t0")[0].first_seen <= shown.at


def a_state(upstream: str, state: str = "ready", *, pid: int = 0, started_at: float = 0.0) -> UpstreamState:
    return UpstreamState(
        pid=pid or os.getpid(), started_at=started_at or time.time(), upstream=upstream, state=state, since=0.0,
        era=None, tools=1, restarts=0, skipped_lines=0, last_error="", stderr=(),
    )  # fmt: skip


def test_of_several_states_the_one_that_fails_counts_and_else_the_last_one() -> None:
    at = time.time()
    early = [a_state("a", "retrying", started_at=at), a_state("b", "ready", started_at=at)]
    late = [a_state("a", "ready", started_at=at + 1), a_state("b", "starting", started_at=at + 1)]
    found = states_by_upstream(find_proxies([*late, *early]))
    assert {name: state.state for name, state in found.items()} == {"a": "retrying", "b": "starting"}


def test_a_proxy_of_another_machine_runs_as_long_as_it_says_so_also_where_clocks_differ() -> None:
    now = time.time()
    other = replace(a_state("git"), machine="far", seen_at=now - 100)
    silent = replace(other, machine="farther", seen_at=now - 1000)
    ahead = replace(other, machine="ahead", seen_at=now + 60)
    found = {each.machine: each.is_running for each in find_proxies([other, silent, ahead])}
    assert found == {"far": True, "farther": False, "ahead": True}
