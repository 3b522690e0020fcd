"""A real `foretool serve` over real pipes, and a raw client for it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from limits import write_settings

from foretool.retrieval.token_ranks import NAME
from foretool.server.catalog.workers import COMMAND
from foretool.server.config.settings import FROM_FILE

PATIENCE_S = 30.0
"""For one answer, or one deed, of a real process on a busy machine."""

PYTHON = sys.executable
"""What proxies are started with; the fixture `forked` sets another."""

Json = dict[str, Any]


RANKS = Path(__file__).parents[2] / ".tools" / NAME
"""Ranks of tokens, written once: each proxy would start a process that writes its own."""


def lay_ranks(folder: Path) -> None:
    """Let the proxies whose storage is in this folder count tokens from the first on."""
    if not RANKS.exists():
        RANKS.parent.mkdir(exist_ok=True)
        subprocess.run([*COMMAND, "count", RANKS], stdin=subprocess.DEVNULL, check=False)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "encoders").mkdir(mode=0o700, exist_ok=True)
    if RANKS.exists() and not (folder / "encoders" / NAME).exists():
        (folder / "encoders" / NAME).symlink_to(RANKS)


def write_config(folder: Path, servers: dict[str, Any], **settings: Any) -> Path:
    lay_ranks(folder)
    path = folder / "mcp.json"
    path.write_text(
        json.dumps(
            {
                "mcpServers": servers,
                "foretool": write_settings(**{"storage": "store.sqlite3", **settings}),
            }
        )
    )
    return path


def foretool(*arguments: str) -> list[str]:
    """A command line."""
    return [PYTHON, "-P", "-m", "foretool", *arguments]


class Served:
    """One process; every line on its stdout must be a JSON-RPC message."""

    def __init__(
        self,
        config: Path | None,
        *arguments: str,
        python: str | Path | None = None,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        """`config`: None lets foretool find the file itself. `env`: the whole environment, but for what lets the file
        set limits."""
        named = ["--config", str(config)] if config is not None else []
        command = [str(python or PYTHON), "-P", "-m", "foretool", "serve", *named, *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            cwd=cwd, env=env and {**env, FROM_FILE: "file"},
        )  # fmt: skip
        self.lines: list[bytes] = []
        self.errors: list[str] = []
        self.seen: list[Json] = []
        """Everything it sent, in order."""
        self._news: queue.Queue[Json | None] = queue.Queue()
        self._ids = 0
        self._readers = [threading.Thread(target=each, daemon=True) for each in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break  # it was ended while it wrote
            self.lines.append(line)
            self._news.put(json.loads(line))
        self._news.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line.decode(errors="replace").rstrip())

    def write(self, message: Json) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def post(self, method: str, params: Json | None = None) -> int:
        self._ids += 1
        self.write({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params or {}})
        return self._ids

    def next(self, patience: float = PATIENCE_S) -> Json:
        message = self._news.get(timeout=patience)
        if message is None:
            raise EOFError("\n".join(self.errors))
        self.seen.append(message)
        return message

    def reply(self, id: int) -> Json:
        for message in self.seen:
            if message.get("id") == id and "method" not in message:
                return message
        while True:
            message = self.next()
            if message.get("id") == id and "method" not in message:
                return message

    def ask(self, method: str, params: Json | None = None) -> Json:
        reply = self.reply(self.post(method, params))
        assert "result" in reply, reply
        result: Json = reply["result"]
        return result

    def initialize(self, name: str = "test", capabilities: Json | None = None) -> Json:
        info, can = {"name": name, "version": "1"}, capabilities or {}
        greeting = self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": can, "clientInfo": info})
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return greeting

    def list_tools(self) -> list[str]:
        return [tool["name"] for tool in self.ask("tools/list")["tools"]]

    def call(self, name: str, arguments: Json | None = None) -> str:
        result = self.ask("tools/call", {"name": name, "arguments": arguments or {}})
        return "\n".join(part["text"] for part in result["content"] if part["type"] == "text")

    def leave(self) -> int:
        """Close its input, as a client does that ends; its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.ended()

    def kill(self) -> None:
        self.process.kill()
        self.ended()

    def ended(self) -> int:
        """Wait for it to end, let go of its pipes; its exit status."""
        status = self.process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        return status


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:  # a zombie that nobody has waited for is dead
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return not Path("/proc/self").exists()


def wait_until(holds: Callable[[], bool], patience: float = PATIENCE_S) -> bool:
    """Processes end without telling us: look again and again."""
    end = time.monotonic() + patience
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
