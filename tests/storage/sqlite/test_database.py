"""Several processes share one SQLite file: a committed write is kept, a failed one leaves nothing, damage is found."""

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from stored_records import CALL, DISCOVERY, EXPOSURE, FAILURE, MISS, SESSION, STATE, UPSTREAM, fill_store, rows, tool

from foretool.storage.engine import StorageError
from foretool.storage.opening import open_store
from foretool.storage.records import ClientRecord, Tool, ToolId, WorkingSet
from foretool.storage.sqlite.database import SqliteDatabase
from foretool.storage.sqlite.migrations import BASE, NEWEST, migrate
from foretool.storage.steps import finish
from foretool.storage.store import Store


def test_a_file_of_a_newer_foretool_is_refused(path: Path) -> None:
    open_store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StorageError) as caught:
        open_store(path)
    assert str(caught.value) == (
        f"{path}: written by a newer foretool (schema 99, this one knows {NEWEST});"
        " upgrade foretool, or set another storage path"
    )


def test_a_file_from_before_the_first_release_is_refused_with_the_way_out_and_not_changed(path: Path) -> None:
    open_store(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {BASE - 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageError) as caught:
        open_store(path)
    assert str(caught.value) == (
        f"{path}: written before the first release (schema {BASE - 1}, the first is {BASE}); stop foretool, move the"
        f" file aside (mv {path} {path}.old), and start it again"
    )
    assert path.read_bytes() == before


def test_a_file_of_another_program_is_refused_and_not_changed(path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageError, match=r"made by another program \(schema 0\); set another storage path"):
        open_store(path)
    assert path.read_bytes() == before


def test_the_error_for_a_damaged_file_names_it_and_the_file_is_not_changed(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, " * 512)
    with pytest.raises(StorageError) as caught:
        open_store(path)
    assert str(caught.value).startswith(
        f"{path}: not a readable SQLite file (file is not a database); the file was not"
    )
    assert not caught.value.temporary
    assert path.read_bytes() == b"not a database, " * 512


def test_damage_found_after_opening_is_a_storage_error(path: Path) -> None:
    with open_store(path) as store:
        store.calls.record([CALL] * 5000)
    with path.open("r+b") as file:
        quarter = path.stat().st_size // 4  # the schema stands before it
        file.seek(3 * quarter)
        file.write(b"\xff" * quarter)
    with open_store(path) as store, pytest.raises(StorageError, match="not a readable SQLite file"):
        store.calls.recent(10_000)


def test_a_directory_that_cannot_be_created_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/foretool\.db: .*; check the storage path and its permissions"):
        open_store(tmp_path / "file" / "foretool.db")


def test_a_locked_file_is_a_temporary_error_and_the_batch_can_be_repeated(path: Path) -> None:
    with open_store(path, busy_ms=1) as store, open_store(path) as other:
        with other.atomic(), pytest.raises(StorageError) as caught:
            store.calls.record([CALL], [replace(MISS, call=1)])
        with other.atomic(), pytest.raises(StorageError):
            store.calls.record([CALL])
        assert caught.value.temporary
        assert (
            str(caught.value) == f"{path}: locked by another process for more than 1 ms; nothing was written, try again"
        )
        store.calls.record([CALL], [replace(MISS, call=1)])
        assert (len(other.calls.recent(9)), other.calls.misses(0)) == (1, [replace(MISS, id=1, call=1)])


def test_a_record_with_an_unpaired_surrogate_is_not_lost(store: Store) -> None:
    """JSON may hold them and UTF-8 cannot; a client that writes them must not be able to keep itself off the record."""
    odd, kept = ToolId("a\ud800"), ToolId("a?")
    store.calls.record([replace(CALL, tool=odd)])
    store.calls.record(
        [CALL, replace(CALL, tool=odd)], [replace(MISS, call=2, tool=odd, history=(odd,), parts={"\udc00": 1.0})]
    )
    store.sessions.begin(replace(SESSION, key="s9", client="\ud83d"))
    assert [call.tool for call in store.calls.recent(9)] == [kept, CALL.tool, kept]
    assert store.calls.misses(0) == [replace(MISS, id=1, call=3, tool=kept, history=(kept,), parts={"?": 1.0})]
    found = store.sessions.get("s9")
    assert found is not None
    assert found.client == "?"


def save_at_once(store: Store, tools: Sequence[Tool]) -> None:
    """Save a list whose steps are all in one transaction."""
    with store.atomic():
        finish(store.catalog.save_upstream(UPSTREAM, tools))


WRITES: dict[str, Callable[[Store], object]] = {
    "record one": lambda store: store.calls.record([CALL]),
    "record many": lambda store: store.calls.record([CALL, CALL], [replace(MISS, call=2), MISS]),
    "begin_session": lambda store: store.sessions.begin(replace(SESSION, key="s9")),
    "end_session": lambda store: store.sessions.end("s1", 50.0),
    "add_exposure": lambda store: store.sessions.add_exposure(replace(EXPOSURE, tools=(ToolId("x"),))),
    "add_discovery": lambda store: store.discoveries.add(DISCOVERY),
    "add_client_relist": lambda store: store.clients.add_relist(ClientRecord("c", "1", "legacy", 1, 1, 5.0, 1.0)),
    "save_upstream": lambda store: save_at_once(store, [tool("b", "new", tokens=3), tool("c")]),
    "set_tokens": lambda store: store.catalog.save_token_counts({"hash of a": 8}),
    "save_exposed_names": lambda store: store.catalog.save_exposed_names({ToolId("n"): ("git", "n")}),
    "save_working_set": lambda store: store.serving.save_working_set(WorkingSet("p", 1, (), b"[]", 1.0)),
    "save_state": lambda store: store.serving.save_state(STATE),
    "save_failure": lambda store: store.serving.save_failure(FAILURE),
    "clear_states": lambda store: store.serving.clear_states(78),
}


def content(connection: sqlite3.Connection) -> list[str]:
    # When the migrations ran is all that differs between two files.
    return [line for line in connection.iterdump() if not line.startswith('INSERT INTO "migrations"')]


class Failing(sqlite3.Connection):
    """Fails once, at the n-th statement or row of many from now on; 0 for never."""

    fails_in = 0

    def __del__(self) -> None:
        # Tests let go of their databases in memory; Python 3.13 warns of those not closed.
        self.close()

    def step(self) -> None:
        self.fails_in -= 1
        if self.fails_in == 0:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        self.step()
        return super().execute(sql, values)

    def executemany(self, sql: str, rows: Any, /) -> sqlite3.Cursor:
        return super().executemany(sql, (row for row in rows if not self.step()))


@cache
def filled() -> bytes:
    """A file with records, of which each test has a copy."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        fill_store(Store(SqliteDatabase(connection, ":memory:")))
        return connection.serialize()


def connect() -> Failing:
    # The collector may let go of it in another thread.
    connection = sqlite3.connect(":memory:", isolation_level=None, factory=Failing, check_same_thread=False)
    connection.deserialize(filled())
    connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")  # reads the schema, so that no write has to
    return connection


def written(write: str) -> list[str]:
    """The whole file after a write that nothing troubled."""
    connection = connect()
    WRITES[write](Store(SqliteDatabase(connection, ":memory:")))
    found = content(connection)
    connection.close()
    return found


@pytest.mark.parametrize("write", WRITES)
def test_a_write_with_any_failed_statement_leaves_nothing_and_can_be_repeated(write: str) -> None:
    connection = connect()
    store = Store(SqliteDatabase(connection, ":memory:"))
    before = content(connection)
    for step in count(1):
        connection.fails_in = step
        try:
            WRITES[write](store)
        except StorageError as error:
            assert error.temporary
            assert not connection.in_transaction
            assert content(connection) == before
        else:
            break
    assert step > 1
    connection.fails_in = 0
    assert content(connection) == written(write)
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("write", WRITES)
def test_a_write_interrupted_at_any_instruction_is_whole_or_absent(write: str) -> None:
    before, after = (content(connect()), written(write))
    for step in count(1):
        connection = connect()
        steps = count(1)
        # SQLite asks before every instruction of its machine whether to go on, and once more after the commit.
        connection.set_progress_handler(lambda: int(next(steps) == step), 1)  # noqa: B023  # used within this turn
        try:
            WRITES[write](Store(SqliteDatabase(connection, ":memory:")))
        except StorageError as error:
            assert error.temporary
            assert not connection.in_transaction
        else:
            break
        finally:
            connection.set_progress_handler(None, 0)
            found = content(connection)
            connection.close()
        assert found in (before, after)
    assert step > 5


def test_a_full_disk_is_a_temporary_error_and_no_write_is_partial(path: Path) -> None:
    open_store(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    store = Store(SqliteDatabase(connection, path))
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    batch = [CALL] * 400
    for room in count():
        connection.execute(f"PRAGMA max_page_count = {pages + room}")
        try:
            store.calls.record(batch, [MISS])
        except StorageError as error:
            assert str(error) == f"{path}: disk full; nothing was written, free some space"
            assert error.temporary
        else:
            break
        assert (store.calls.recent(1), store.calls.misses(0)) == ([], [])
    assert room > 5
    assert (len(store.calls.recent(1000)), len(store.calls.misses(0))) == (400, 1)
    store.close()


def test_a_failed_rollback_is_repeated_before_the_next_write(path: Path) -> None:
    open_store(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("DELETE FROM migrations")
    with Store(SqliteDatabase(connection, path)) as store:
        store.calls.record([CALL])
    counts = rows(path, "SELECT count(*) FROM calls UNION ALL SELECT count(*) FROM migrations")
    assert counts == [(1,), (1,)]


def test_a_record_outside_a_block_is_a_transaction_of_its_own_and_has_its_id(path: Path) -> None:
    with open_store(path) as store:
        ids = [store.discoveries.add(DISCOVERY), store.discoveries.add(DISCOVERY)]
        assert ids[1] == ids[0] + 1
        assert store.discoveries.get(ids[1]) == replace(DISCOVERY, id=ids[1])
        # Another process sees it before the store is closed.
        assert rows(path, "SELECT id FROM discoveries ORDER BY id") == [(each,) for each in ids]


RECORDER = """
import sys, pathlib
from foretool.storage.records import Call, Miss, ToolId
from foretool.storage.opening import open_store
from foretool.storage.store import Store
call = Call("s1", 11.0, ToolId("git__log"), "git", "name", False, "ok", 1.5, True, "x" * 300, 0)
miss = Miss("s1", 1.0, "a", "call", "budget", 3, 9, "", (), 0, 0, "", "called", 1, 10, call=2)
store = open_store(pathlib.Path(sys.argv[1]), busy_ms=5000)
written = 0
while True:
    store.calls.record([call])
    store.calls.record([call, call], [miss])
    written += 3
    print(written, flush=True)
"""


def test_a_killed_process_loses_no_committed_call(path: Path) -> None:
    open_store(path).close()
    command = [sys.executable, "-c", RECORDER, str(path)]
    recorders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for recorder in recorders:
        assert recorder.stdout is not None
        for _ in range(300):
            assert recorder.stdout.readline()
        recorder.send_signal(signal.SIGKILL)
    printed = 0
    for recorder in recorders:
        lines = recorder.communicate()[0].split("\n")
        # The last line may have been cut short by the kill.
        printed += int(lines[-2]) if len(lines) > 1 else 900
    calls, misses = rows(path, "SELECT (SELECT count(*) FROM calls), (SELECT count(*) FROM misses)")[0]
    assert printed <= calls <= printed + 6
    # A batch is whole: two of three calls, and the miss that the second revealed.
    assert misses == rows(path, "SELECT count(*) FROM misses JOIN calls ON calls.id = misses.call")[0][0]
    assert calls - 3 * misses in (0, 1, 2)
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_checkpoint_in_a_thread_moves_the_log_while_calls_are_recorded(path: Path) -> None:
    with open_store(path) as store:
        assert not store.is_checkpoint_due
        for _ in range(250):
            store.calls.record([CALL])
        assert store.is_checkpoint_due
        before = path.stat().st_size
        left: list[int] = []
        thread = threading.Thread(target=lambda: left.append(store.checkpoint()))
        thread.start()
        store.calls.record([CALL])
        thread.join()
        assert not store.is_checkpoint_due
        assert store.checkpoint() == 0
        assert left[0] < 20
        assert path.stat().st_size > before
    assert rows(path, "SELECT count(*) FROM calls") == [(251,)]


def test_a_checkpoint_is_due_once_many_rows_were_written_in_few_commits(path: Path) -> None:
    with open_store(path) as store:
        assert not store.is_checkpoint_due
        store.calls.record([CALL] * 1200)
        assert store.is_checkpoint_due
        thread = threading.Thread(target=store.checkpoint)
        thread.start()
        thread.join()
        assert not store.is_checkpoint_due
        store.calls.record([CALL])
        assert not store.is_checkpoint_due


def test_the_log_stays_bounded_without_a_checkpoint(path: Path) -> None:
    with open_store(path) as store:
        for _ in range(12_000):
            store.calls.record([CALL])
        log = path.with_name(path.name + "-wal").stat().st_size
    assert log < 20 * 2**20


def test_a_checkpoint_in_memory_does_nothing(store: Store) -> None:
    assert store.checkpoint() == 0


def test_rows_come_one_by_one_and_errors_are_storage_errors() -> None:
    database = SqliteDatabase.open(":memory:", 0)
    rows = database.each_row("SELECT value FROM json_each('[1, 2, 3]')")
    assert next(rows) == (1,)
    assert list(rows) == [(2,), (3,)]
    with pytest.raises(StorageError, match="no such table: gone"):
        list(database.each_row("SELECT * FROM gone"))
    database.close()
