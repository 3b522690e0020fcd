"""Connections that hang, and processes that create the same tables."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from postgres import SKIPPED, new_database, new_schema

from foretool.fleet.postgres.connecting import connect
from foretool.storage.engine import StorageError
from foretool.storage.opening import open_store
from foretool.storage.places import ServerAddress

psycopg = pytest.importorskip("psycopg")

pytestmark = pytest.mark.slow


def test_a_server_that_does_not_answer_a_statement_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    address = ServerAddress(new_schema() or pytest.skip(SKIPPED))
    connection = connect(address, 250, 5, answer_s=0.2)
    with pytest.raises(psycopg.OperationalError, match=r"has not answered for 0\.2 s"):
        connection.execute("SELECT pg_sleep(30)")
    assert connection.closed
    connection.close()


def test_a_server_that_does_not_answer_at_all_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        with pytest.raises(StorageError, match="check that the server runs"):
            connect(ServerAddress(f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/x"), 250, 2)
        assert time.monotonic() - begun < 60


def test_many_that_open_a_new_database_at_once_create_its_schema_once() -> None:
    address = new_database("crowded") or pytest.skip(SKIPPED)
    start = threading.Barrier(4)

    def open_one(_: int) -> None:
        start.wait(30)
        open_store(address).close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(open_one, range(4)))
