"""Learning runs when it is due, in a process of its own, and is ended with the proxy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from command_fakes import fill, write_config
from requirements import requirement

from foretool.server.config import loader as configs
from foretool.server.learning_schedule import LEARNING, LEAST_CALLS, LOOK_S, SETTLED_S, Schedule, is_due
from foretool.storage.opening import open_store
from foretool.storage.records import Call, ToolId
from foretool.storage.sqlite.leads import FileLead as Lead

pytestmark = pytest.mark.anyio


def call(at: float) -> Call:
    return Call("s", at, ToolId("calc__add"), "calc", "name", False, "ok", 1.0, True, "")


@requirement("learn:schedule")
def test_a_run_is_due_when_enough_was_called_since_the_last_one() -> None:
    with open_store(":memory:") as store:
        assert not is_due(store, 100.0, 1000.0)
        store.calls.record([call(500.0 + at) for at in range(LEAST_CALLS)])
        assert is_due(store, 100.0, 1000.0)
        store.artifacts.add("run", b"", {}, promote=False, at=1000.0)
        assert not is_due(store, 100.0, 1099.0)
        assert not is_due(store, 100.0, 1101.0)  # nothing was called since
        store.calls.record([call(1050.0 + at) for at in range(LEAST_CALLS)])
        assert is_due(store, 100.0, 1101.0)


@pytest.mark.slow
@requirement("learn:schedule")
async def test_a_due_run_is_a_process_of_its_own_that_leaves_its_report(tmp_path: Path) -> None:
    path = write_config(tmp_path, encoder="none")
    fill(path).close()
    now = [0.0]
    with open_store(configs.load(path).storage, busy_ms=5000) as store:
        store.calls.record([call(500.0 + at) for at in range(LEAST_CALLS)])
        schedule = Schedule(store, path, lambda: now[0])
        schedule.tick(100.0)
        now[0] = SETTLED_S + 1000.0
        schedule.tick(0.0)
        assert schedule._task is None
        schedule.tick(100.0)
        assert schedule._task is not None
        async with asyncio.timeout(60):
            await schedule._task
        assert store.artifacts.history("run")[0].report["imported"] == 0
        now[0] += LOOK_S / 2
        before = schedule._task
        schedule.tick(100.0)
        assert schedule._task is before


@pytest.mark.slow
@requirement("learn:one")
async def test_no_process_starts_while_another_one_learns_nor_again_and_again_where_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    now = [0.0]
    with open_store(tmp_path / "s.sqlite3") as store:
        store.calls.record([call(500.0 + at) for at in range(LEAST_CALLS)])
        path.write_text("{ no JSON")  # which ends a learner
        schedule = Schedule(store, path, lambda: now[0])
        now[0] = SETTLED_S + 1e5
        with Lead(store.path, LEARNING) as lead:
            assert lead.take()
            schedule.tick(1e4)
            assert schedule._task is None
        now[0] += LOOK_S
        for pause in (4 * LOOK_S, 16 * LOOK_S):
            schedule.tick(1e4)
            assert schedule.is_working
            async with asyncio.timeout(60):
                await schedule.finish()
            before = schedule._task
            now[0] += pause - 1
            schedule.tick(1e4)
            assert schedule._task is before
            now[0] += 2


@requirement("learn:ended")
def test_a_clock_that_was_set_back_keeps_no_run_waiting() -> None:
    with open_store(":memory:") as store:
        store.calls.record([call(5e8 + at) for at in range(LEAST_CALLS)])
        store.artifacts.add("run", b"", {}, promote=False, at=1e9)  # by a clock that was a year ahead
        assert is_due(store, 100.0, 5e8 + 30)
        store.artifacts.add("run", b"", {}, promote=False, at=5e8 + 30)
        assert not is_due(store, 100.0, 5e8 + 200)


async def test_a_run_ends_with_the_proxy(tmp_path: Path) -> None:
    path = write_config(tmp_path, encoder="none")
    fill(path).close()
    with open_store(configs.load(path).storage) as store:
        store.calls.record([call(500.0 + at) for at in range(LEAST_CALLS)])
        now = [0.0]
        schedule = Schedule(store, path, lambda: now[0])
        now[0] = SETTLED_S + 1000.0
        schedule.tick(100.0)
        await asyncio.sleep(0)
        await schedule.stop()
        assert schedule._task is not None and schedule._task.cancelled()
    await Schedule(store, path).stop()


def test_the_learner_gets_the_variables_that_the_config_names_and_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NAMED", "UNNAMED", "FORETOOL_LLM"):
        monkeypatch.setenv(name, "x")
    config = tmp_path / "mcp.json"
    config.write_text('{"mcpServers": {"a": {"command": "x", "env": {"A": "${NAMED}"}}}}')
    with open_store(tmp_path / "s.sqlite3") as store:
        found = Schedule(store, config)._environment()
    assert found["FORETOOL_STORAGE"] == str(tmp_path / "s.sqlite3")
    assert found.keys() & {"NAMED", "UNNAMED", "FORETOOL_LLM"} == {"NAMED", "FORETOOL_LLM"}
