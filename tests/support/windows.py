"""Windows that share a proxy: real `foretool serve` processes with a folder of sockets of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from served import PATIENCE_S, Served, is_alive, wait_until, write_config

from foretool.server.local.caller import ask_all
from foretool.server.local.places import ProxyIdentity

UPSTREAM = str(Path(__file__).with_name("unruly_upstream.py"))


class Desk:
    """One user with a config, and the windows that this user opens."""

    def __init__(self, folder: Path, servers: int = 2, **settings: Any) -> None:
        self.folder = folder
        self.sockets = folder / "run"
        self.pid_file = folder / "pids"
        entry = {"command": sys.executable, "args": [UPSTREAM, "--pids", str(self.pid_file)]}
        settings = {"linger_s": 0, "policy": "full", **settings}
        self.config = write_config(folder, {f"s{number}": entry for number in range(servers)}, **settings)
        self.windows: list[Served] = []
        self.proxies: set[int] = set()

    def open(self, *arguments: str, cwd: Path | None = None, **environ: str) -> Served:
        """Start a window without waiting for it."""
        env = {**os.environ, "FORETOOL_SOCKETS": str(self.sockets), **environ}
        window = Served(self.config, *arguments, cwd=cwd or self.folder, env=env)
        self.windows.append(window)
        return window

    def opened(self, *arguments: str, cwd: Path | None = None, **environ: str) -> Served:
        """Start a window that has listed its tools."""
        window = self.open(*arguments, cwd=cwd, **environ)
        window.initialize()
        window.list_tools()
        return window

    def status(self) -> list[dict[str, Any]]:
        """What each running proxy says of its windows, by the names of their sockets."""
        wanted = ProxyIdentity(os.path.realpath(self.config), "", os.path.realpath(self.folder))
        found = ask_all(str(self.sockets), wanted, "windows", {}, PATIENCE_S)
        self.proxies |= {each["pid"] for each in found}
        return found

    def proxy(self) -> int:
        """The process that serves all windows."""
        (one,) = self.status()
        return int(one["pid"])

    def servers(self) -> list[int]:
        """The processes of servers that run."""
        if not self.pid_file.exists():
            return []
        return [pid for pid in map(int, self.pid_file.read_text().split()) if is_alive(pid)]

    def close(self) -> None:
        self.status()
        for window in self.windows:
            if window.process.poll() is None:
                window.kill()
        for pid in self.proxies:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not any(map(is_alive, self.proxies)))
