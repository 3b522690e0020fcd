"""Attacks on the storage file: a real proxy serves whatever happens to it, says so, and loses no record."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from requirements import requirement
from served import Json, Served, lay_ranks, wait_until, write_config

from bench.servers import echo
from foretool.server.commands.group import run
from foretool.storage.opening import open_store

pytestmark = pytest.mark.slow

LOCKER = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN " + sys.argv[2])
print("locked", flush=True)
sys.stdin.read()
"""


class Place:
    """A config whose storage file stands in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        upstream = {"command": sys.executable, "args": ["-S", "-E", echo.__file__, "--name", "up"]}
        lay_ranks(folder / "kept")
        self.path = folder / "kept" / "store.sqlite3"
        self.config = write_config(
            folder, {"up": upstream}, record="full", policy="full", storage="kept/store.sqlite3", encoder="none"
        )

    def serve(self) -> Served:
        served = Served(self.config)
        served.initialize()
        return served

    def kept(self) -> list[int]:
        """The numbers of the calls on record."""
        try:
            store = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        except sqlite3.Error:
            return []
        try:
            return sorted(json.loads(row[0])["n"] for row in store.execute("SELECT arguments FROM calls"))
        except sqlite3.Error:
            return []
        finally:
            store.close()

    def change(self, *statements: str) -> None:
        """What another program, or another version of foretool, does to the file."""
        other = sqlite3.connect(self.path, isolation_level=None, timeout=5)
        for statement in statements:
            other.execute(statement)
        other.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def serve(place: Place) -> Iterator[Callable[[], Served]]:
    started: list[Served] = []

    def start() -> Served:
        started.append(place.serve())
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.kill()


def call(served: Served, *numbers: int) -> None:
    for number in numbers:
        assert str(number) in served.call("up__up_echo", {"n": number})


def warnings(served: Served) -> list[str]:
    """What the client was told."""
    found = [each["params"] for each in served.seen if each.get("method") == "notifications/message"]
    return [params["data"] for params in found if params["level"] == "warning" and params["logger"] == "foretool"]


def told(served: Served, part: str) -> bool:
    """Whether the client has heard it; asks something, since only then messages are read."""

    def holds() -> bool:
        served.ask("ping")
        return any(part in each for each in warnings(served))

    return wait_until(holds)


def say(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[int, str]:
    capsys.readouterr()
    status = run(command)
    return status, "".join(capsys.readouterr())


# What is wrong when the proxy starts, and how it is mended


def damage(place: Place) -> None:
    open_store(place.path).close()
    place.path.write_bytes(b"\0" * 100 + place.path.read_bytes()[100:])


def newer(place: Place) -> None:
    open_store(place.path).close()
    place.change("PRAGMA user_version = 9999")


def foreign(place: Place) -> None:
    place.change("CREATE TABLE theirs (id)")


def below_a_file(place: Place) -> None:
    shutil.rmtree(place.path.parent)
    place.path.parent.write_text("a file where the folder should be")


def folder_as_file(place: Place) -> None:
    place.path.mkdir()


def pipe_as_file(place: Place) -> None:
    os.mkfifo(place.path)


def folder_as_log(place: Place) -> None:
    open_store(place.path).close()
    place.path.with_name("store.sqlite3-wal").mkdir()


def start_afresh(place: Place) -> None:
    if place.path.parent.is_file():
        place.path.parent.unlink()
    elif place.path.is_dir():
        place.path.rmdir()
    else:
        shutil.rmtree(place.path.parent)
    place.path.parent.mkdir(exist_ok=True)


def remove_log_folder(place: Place) -> None:
    place.path.with_name("store.sqlite3-wal").rmdir()


def older_again(place: Place) -> None:
    with open_store(place.path.with_name("other.sqlite3")) as other:
        version = other._database.rows("PRAGMA user_version")[0][0]  # type: ignore[attr-defined]
    place.change(f"PRAGMA user_version = {version}")


@requirement("trust:storage:serves-without")
@pytest.mark.parametrize(
    ("harm", "mend", "said"),
    [
        (damage, start_afresh, "not a"),
        (newer, older_again, "newer foretool"),
        (foreign, start_afresh, "another program"),
        (below_a_file, start_afresh, "storage path"),
        (folder_as_file, start_afresh, "not a regular file"),
        (pipe_as_file, start_afresh, "not a regular file"),
        (folder_as_log, remove_log_folder, "unable to open"),
    ],
)
def test_a_proxy_starts_without_its_file_says_so_everywhere_and_takes_it_up_again(
    harm: Callable[[Place], None], mend: Callable[[Place], None], said: str, place: Place,
    serve: Callable[[], Served], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    harm(place)
    served = serve()
    assert "up__up_echo" in served.list_tools()
    call(served, 1, 2)
    assert told(served, said), served.errors
    status, printed = say(capsys, "status", "--config", str(place.config))
    assert status == 1
    assert f"proxy {served.process.pid} has served without its storage" in printed
    assert said in printed and "Traceback" not in printed
    status, printed = say(capsys, "doctor", "--config", str(place.config))
    assert status == 1 and "[FT50" in printed
    assert len([line for line in served.errors if "records are kept in memory" in line]) == 1, "\n".join(served.errors)
    mend(place)
    assert wait_until(lambda: place.kept() == [1, 2]), served.errors
    call(served, 3)
    assert wait_until(lambda: place.kept() == [1, 2, 3])
    assert wait_until(lambda: any("is in use again" in line for line in served.errors))

    def is_told() -> bool:  # the proxy writes its state in the next second
        printed = say(capsys, "status", "--config", str(place.config))[1]
        return f"proxy {served.process.pid}, up" in printed and "has served without" not in printed

    assert wait_until(is_told)
    assert served.leave() == 0
    assert list(tmp_path.rglob("*.trouble")) == []


@requirement("trust:storage:serves-without")
@pytest.mark.parametrize("kind", ["IMMEDIATE", "EXCLUSIVE"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_write_lock_of_another_process_neither_stops_a_start_nor_delays_it(
    kind: str, exists: bool, place: Place, serve: Callable[[], Served], capsys: pytest.CaptureFixture[str]
) -> None:
    if exists:
        first = serve()
        first.list_tools()
        assert first.leave() == 0
    locker = subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(place.path), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert locker.stdout is not None
    assert locker.stdout.readline() == b"locked\n"
    served = serve()
    assert "up__up_echo" in served.list_tools(), "while it is locked"
    call(served, 1, 2)
    assert told(served, "locked"), served.errors
    status, printed = say(capsys, "status", "--config", str(place.config))
    assert status == 1 and f"proxy {served.process.pid} has served without" in printed
    locker.communicate(b"")
    assert wait_until(lambda: place.kept() == [1, 2]), served.errors
    assert served.leave() == 0


# What goes wrong while it runs


def remove(place: Place) -> None:
    for each in place.path.parent.glob("store.*"):
        each.unlink()


def replace_by_noise(place: Place) -> None:
    noise = place.path.with_name("noise")
    noise.write_bytes(os.urandom(8192))
    for suffix in ("-wal", "-shm"):
        place.path.with_name(place.path.name + suffix).unlink(missing_ok=True)
    noise.replace(place.path)


def rename_table(place: Place) -> None:
    place.change("ALTER TABLE calls RENAME TO calls_of_old", "PRAGMA user_version = 9999")


def rename_column(place: Place) -> None:
    place.change("ALTER TABLE calls RENAME COLUMN arguments TO shape", "PRAGMA user_version = 9999")


def nothing(place: Place) -> None: ...


def name_table(place: Place) -> None:
    place.change("ALTER TABLE calls_of_old RENAME TO calls")
    older_again(place)


def name_column(place: Place) -> None:
    place.change("ALTER TABLE calls RENAME COLUMN shape TO arguments")
    older_again(place)


@requirement("trust:storage:no-record-lost")
@pytest.mark.parametrize(
    ("harm", "said", "mend", "expected"),
    [
        (remove, "removed", nothing, [2, 3]),
        (replace_by_noise, "another file took its place", remove, [2, 3]),
        (rename_table, "another version of foretool", name_table, [1, 2, 3]),
        (rename_column, "another version of foretool", name_column, [1, 2, 3]),
    ],
)
def test_whatever_happens_to_the_file_of_a_running_proxy_it_serves_on_and_later_calls_are_kept(
    harm: Callable[[Place], None], said: str, mend: Callable[[Place], None], expected: list[int], place: Place,
    serve: Callable[[], Served],
) -> None:  # fmt: skip
    served = serve()
    served.list_tools()
    call(served, 1)
    assert wait_until(lambda: place.kept() == [1])
    harm(place)
    assert wait_until(lambda: any(said in line for line in served.errors) or said == "another version of foretool")
    call(served, 2)
    assert wait_until(lambda: any(said in line for line in served.errors)), served.errors
    call(served, 3)
    mend(place)
    assert wait_until(lambda: place.kept() == expected), (place.kept(), served.errors)
    assert served.leave() == 0
    # What is known of servers is in the new file as well.
    with open_store(place.path) as store:
        assert store.statistics().tools
        assert store.sessions.recent()


@requirement("trust:storage:no-record-lost")
def test_a_newer_version_that_adds_columns_costs_no_record_and_is_named(
    place: Place, serve: Callable[[], Served]
) -> None:
    served = serve()
    served.list_tools()
    call(served, 1)
    place.change("ALTER TABLE calls ADD COLUMN mood TEXT NOT NULL DEFAULT ''", "PRAGMA user_version = 9999")
    call(served, 2)
    assert told(served, "changed by a newer foretool (schema 9999); restart the clients"), served.errors
    assert wait_until(lambda: place.kept() == [1, 2])


@requirement("trust:storage:serves-without")
def test_over_http_a_proxy_serves_without_its_file_too(place: Place) -> None:
    import httpx2

    damage(place)
    written = json.loads(place.config.read_text())
    written["foretool"]["insecure_loopback"] = True
    place.config.write_text(json.dumps(written))
    served = Served(place.config, "--http", "127.0.0.1:0")
    try:
        assert wait_until(lambda: any("serving on" in line for line in served.errors)), served.errors
        address = next(line for line in served.errors if "serving on" in line).split()[-1]
        info = {"name": "t", "version": "1"}
        greeting: Json = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}
        answer = httpx2.post(address, json=asked, headers={"Accept": "application/json, text/event-stream"})
        assert answer.status_code == 200
        start_afresh(place)
        assert wait_until(lambda: any("is in use again" in line for line in served.errors)), served.errors
    finally:
        served.process.terminate()
        served.ended()


@requirement("trust:storage:serves-without")
def test_values_that_foretool_did_not_write_are_said_in_one_line_and_a_proxy_serves(
    place: Place, serve: Callable[[], Served]
) -> None:
    first = serve()
    call(first, 1)
    first.reply(first.post("tools/call", {"name": "nothing__of_the_kind"}))
    first.call("discover_tools", {"task": "say something back"})
    first.leave()
    spoil(place)
    served = serve()
    assert "up__up_echo" in served.list_tools()
    call(served, 2)
    served.leave()
    for words in (["status"], ["misses"], ["tools"], ["search", "weather"], ["replay"], ["export", "misses"]):
        command = [sys.executable, "-P", "-m", "foretool", *words, "--config", str(place.config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        said = done.stdout + done.stderr
        assert "internal error" not in said and "\x1b" not in said
        assert not done.returncode or "did not write" in said


def spoil(place: Place) -> None:
    """Put something else in the place of every list that is kept as JSON."""
    with closing(sqlite3.connect(place.path)) as store, store:
        for (table,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for column in [row[1] for row in store.execute(f"PRAGMA table_info('{table}')") if row[2] == "TEXT"]:
                store.execute(f"UPDATE {table} SET {column} = ? WHERE {column} LIKE '[%'", ("\x1b[31m[NaN",))
