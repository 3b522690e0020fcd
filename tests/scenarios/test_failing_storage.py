"""Each call of the storage is made to fail: a real proxy answers whatever it is asked, and loses no record."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import pytest
from failing_storage import FULL, LOCKED, LOST, LOST_AFTER, Faults, Place, fail_postgres, fail_sqlite
from fakes import Stage, proxy_over
from morning import MORNING, calc
from postgres import SKIPPED, new_schema
from requirements import requirement
from stored_records import calls_of

from foretool.storage.engine import StorageError
from foretool.storage.opening import open_serving_store, open_store
from foretool.storage.places import StorePlace, read_place
from foretool.storage.records import AuditFilter, Prompt

pytestmark = pytest.mark.anyio

SPEED = 120
"""After the conversation a second of the loop counts as two minutes, so that every job is soon due."""
LATER_S = 8
PATIENCE_S = 400
"""Of the loop's time."""
RECORDS: dict[str, object] = {
    "sessions that ended": [True],
    "calls": ["calc__add", "calc__sub", "calc__sub", "calc__add"],
    "discoveries": 1,
    "misses": [("calc__sub", "discovery"), ("no__such", "unknown_name")],
    "audit": 4,
    "prompts": 1,
    "tools": 2,
}
READS = ("SELECT", "WITH", "PRAGMA", "rows of", "each row of")
"""Jobs ask again and again whether there is something new, every second some: the first time and the last one fail."""
SAMPLE, SAMPLE_OF_SERVER, MOST_OF_SERVER = 16, 3, 48
"""How many calls fail one after the other: kinds of statements of a file, and statements of a database server, whose
tables take a second to make, in a quick run and in a slow one."""


class Clocks:
    """The clocks of the process, which go on by what the loop's clock jumps, or faster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.speed = 1.0
        self._loop = asyncio.get_running_loop()
        self._at, self._ahead = self._loop.time(), 0.0
        wall, monotonic = time.time, time.monotonic
        monkeypatch.setattr(time, "time", lambda: wall() + self._jumped())
        monkeypatch.setattr(time, "monotonic", lambda: monotonic() + self._jumped())
        sleep = time.sleep
        monkeypatch.setattr(time, "sleep", lambda seconds: sleep(0))  # threads make pauses for other writers

    def _jumped(self) -> float:
        now = self._loop.time()
        self._ahead += (now - self._at) * self.speed
        self._at = now
        return self._ahead


async def converse(stage: Stage) -> list[str]:
    """Ask everything; return what was not answered as it should be."""
    wrong = []
    for number, (method, params) in enumerate(MORNING):
        ident = f"r{number}"
        stage.client.post(method, params, id=ident)
        reply = await stage.client.reply(ident, 200)
        result = reply.get("result", {})
        is_fine = "result" in reply and not result.get("isError") and (method != "tools/list" or result["tools"])
        if is_fine == (params.get("name") == "no__such"):
            wrong.append(f"{method} {params.get('name', '')}: {reply}")
    stage.app.recorder.add_prompt(Prompt(time.time(), "please subtract"))
    return wrong


async def wait_until_written(stage: Stage) -> bool:
    """Wait until nothing fails and nothing waits; a file is opened in a thread."""
    app = stage.app
    for _ in range(PATIENCE_S):
        await asyncio.sleep(1)
        if not (app.store.trouble or app.recorder.backlog.waiting or app.guard.failing() or app.store_watch.is_working):
            return True
    return False


def find_lost(place: StorePlace) -> list[str]:
    """Return which records of a conversation are not in the file as they should be."""
    with open_store(place) as store:
        sessions = [each for each in store.sessions.recent() if each.client == "t"]
        found: dict[str, object] = {
            "sessions that ended": [each.ended_at is not None for each in sessions],
            "calls": [call.tool for each in sessions for call in calls_of(store, each.key)],
            "discoveries": len(store.discoveries.recent(-1)),
            "misses": sorted({(miss.tool, miss.noticed) for miss in store.calls.misses(0.0)}),
            "audit": len(store.audit.find(AuditFilter(action="call"))),
            "prompts": len(store.tasks.prompts(0.0, 10)),
            "tools": store.statistics().tools,
        }
        return [f"{key}: {found[key]!r}" for key, wanted in RECORDS.items() if found[key] != wanted]


class Sweep(ABC):
    """Runs proxies over stores of one engine, each with another call of the storage that fails."""

    faulty: tuple[tuple[int, bool], ...]
    """What befalls calls in turn: the code, and whether the calls after it work again."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        self.faults = Faults()

    @abstractmethod
    def make_place(self) -> StorePlace:
        """Return where a new empty store is."""

    @abstractmethod
    def let_fail(self, patch: pytest.MonkeyPatch) -> None:
        """Let every connection ask `faults`."""

    async def count(self) -> Counter[str]:
        """Let a proxy serve while nothing fails; return what it asks of the storage, and how often."""
        assert await self.run(None) == []
        return self.faults.counts

    async def find_places(self) -> list[Place]:
        """Return every write, and of every way to read the first time and the last one."""
        return [
            Place(what, number)
            for what, count in (await self.count()).items()
            for number in range(1, count + 1)
            if number in (1, count) or not what.startswith(READS)
        ]

    async def run(self, place: Place | None, code: int = 0, *, once: bool = False) -> list[str]:
        """Let a proxy serve while a call of the storage fails; return what is wrong."""
        at = self.make_place()
        self.faults.arm(place, code, once=once)
        with self._monkeypatch.context() as patch:
            self.let_fail(patch)
            try:
                wrong = await self._serve(at, Clocks(patch))
            except Exception as error:  # noqa: BLE001 -- the others are tried as well
                wrong = [f"the proxy ended: {error!r}"]
        self.faults.mend()
        return wrong + find_lost(at)

    async def _serve(self, at: StorePlace, clocks: Clocks) -> list[str]:
        upstream = calc()
        with open_serving_store(at, busy_ms=0) as store:
            async with proxy_over(upstream, store=store, retention_days=3, audit=True) as stage:
                wrong = await converse(stage)
                with self.faults.paused(), suppress(StorageError):
                    # So much since the first look that the log is moved into the file.
                    assert isinstance(store.is_checkpoint_due, bool)
                    store.vectors.save("encoder", {b"%d" % number: b"vector" for number in range(1000)})
                clocks.speed = SPEED
                await asyncio.sleep(LATER_S)
                self.faults.mend()
                if not await wait_until_written(stage):
                    left = stage.app.recorder.backlog.waiting
                    wrong.append(f"not written: {store.trouble!r}, {left} records, {stage.app.guard.failing()}")
        return wrong

    async def run_each(self, places: Sequence[Place]) -> list[str]:
        """Let each of these calls fail; return what is wrong."""
        wrong = []
        for place, (code, once) in zip(places, cycle(self.faulty), strict=False):
            if found := await self.run(place, code, once=once):
                wrong.append(f"{place} code {code} once {once}: {found}")
        return wrong


class SqliteSweep(Sweep):
    """Over copies of one empty file."""

    faulty = tuple(
        (code, once)
        for once in (True, False)
        for code in (
            sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_NOTADB,
            sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PROTOCOL,
        )
    )  # fmt: skip

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        self._runs = 0
        open_store(folder / "template.sqlite3").close()

    def make_place(self) -> Path:
        # A folder for each: SQLite knows a file by its number, which the next one may get.
        self._runs += 1
        path = self._folder / str(self._runs) / "store.sqlite3"
        path.parent.mkdir()
        shutil.copy(self._folder / "template.sqlite3", path)
        return path

    def let_fail(self, patch: pytest.MonkeyPatch) -> None:
        fail_sqlite(self.faults, patch)


class PostgresSweep(Sweep):
    """Over new schemas of a server."""

    faulty = ((FULL, True), (LOST, False), (LOCKED, True), (LOST_AFTER, True), (LOST, True))

    def make_place(self) -> StorePlace:
        address = new_schema() or pytest.skip(SKIPPED)
        open_store(address).close()
        return read_place(address, self._folder)

    def let_fail(self, patch: pytest.MonkeyPatch) -> None:
        fail_postgres(self.faults, patch)


@requirement("anomaly:writes", "trust:storage:no-record-lost")
async def test_whatever_the_storage_is_asked_when_it_fails_each_answer_comes_and_no_record_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = SqliteSweep(tmp_path, monkeypatch)
    chosen = random.Random(1)
    places = [Place(what, chosen.randint(1, count)) for what, count in (await sweep.count()).items()]
    assert await sweep.run_each(chosen.sample(places, SAMPLE)) == []


@pytest.mark.slow
@requirement("anomaly:writes", "trust:storage:no-record-lost")
async def test_whenever_a_database_server_fails_each_answer_comes_and_no_record_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = PostgresSweep(tmp_path, monkeypatch)
    places = await sweep.find_places()
    assert await sweep.run_each(random.Random(1).sample(places, SAMPLE_OF_SERVER)) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
@requirement("anomaly:writes", "trust:storage:no-record-lost")
async def test_whichever_call_of_the_storage_fails_each_answer_comes_and_no_record_is_lost(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = (SqliteSweep if engine == "sqlite" else PostgresSweep)(tmp_path, monkeypatch)
    places = await sweep.find_places()
    if engine == "postgres":
        places = random.Random(2).sample(places, MOST_OF_SERVER)
    assert await sweep.run_each(places) == []
