"""What servers that nobody uses cost, and what it costs to bring one back: `python -m bench.proxy.unused CONFIG`.

A window that shares the proxy calls one tool of each server of the config, and another window stays open. Then the
first one leaves. With `unused_stop_s` of a second every server ends. The table has the resident memory of each server,
with its children, the time of its first call, of a call while it runs, and of the call that starts it again.

`CALLS` has a call without effects for the servers of `make demo`; another server is called with no arguments, and its
refusal counts as an answer.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.options import add_foretool, make_parser
from bench.processes import installed, write_config
from bench.proxy.windows import Window, processes, rss
from bench.reports import Row, print_row

Servers = Mapping[str, Mapping[str, Any]]
CALLS: dict[str, tuple[str, dict[str, object]]] = {
    "time": ("get_current_time", {"timezone": "UTC"}),
    "calculator": ("calculate", {"expression": "1+1"}),
    "everything": ("echo", {"message": "a"}),
    "files": ("list_allowed_directories", {}),
    "git": ("git_status", {"repo_path": "."}),
    "fetch": ("fetch", {"url": "http://127.0.0.1:9/"}),
}
STOP_S = 1.0
PATIENCE_S = 30.0


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.proxy.unused", __doc__)
    parser.add_argument("config", type=Path, help="the config whose servers are measured")
    add_foretool(parser)
    options = parser.parse_args(argv)
    servers = json.loads(options.config.read_text("utf-8"))["mcpServers"]
    with tempfile.TemporaryDirectory() as folder:
        for row in measure(Path(folder), installed(options.foretool), servers):
            print_row(row, False)


def measure(folder: Path, command: Sequence[str], servers: Servers) -> list[Row]:
    """Call each server, leave, and call each again from another window."""
    config = write_config(folder, servers, unused_stop_s=STOP_S, linger_s=1, policy="full", share=True)
    environ = {**os.environ, "FORETOOL_SOCKETS": str(folder / "run")}
    serve = [*command, "serve", "--config", str(config)]
    leaves = Window(serve, environ)
    proxy = next(pid for pid in processes(str(config)) if pid != leaves.process.pid)
    first = {name: call(leaves, name) for name in servers}
    running = {name: call(leaves, name) for name in servers}
    memory = {name: sum(map(rss, tree_of(proxy, entry))) for name, entry in servers.items()}
    stays = Window(serve, environ)
    leaves.leave()
    wait_until_none_runs(proxy, servers)
    again = {name: call(stays, name) for name in servers}
    stays.leave()
    rows: list[Row] = [
        {
            "server": name,
            "RSS MiB": round(memory[name], 1),
            "first call s": round(first[name], 3),
            "running s": round(running[name], 3),
            "started again s": round(again[name], 3),
        }
        for name in servers
    ]
    return [*rows, {"server": "all", "RSS MiB": round(sum(memory.values()), 1)}]


def call(window: Window, server: str) -> float:
    """The seconds that one call takes."""
    tool, arguments = CALLS.get(server) or (window.tool(server), {})
    began = time.perf_counter()
    window.ask("tools/call", {"name": f"{server}__{tool}", "arguments": arguments})
    return time.perf_counter() - began


def tree_of(proxy: int, entry: Mapping[str, Any]) -> list[int]:
    """The processes of a server: the one that the proxy has started, and what that has started."""
    words = b"\0".join(str(word).encode() for word in (entry["command"], *(entry.get("args") or [])))
    return [each for pid in children_of(proxy) if words in words_of(pid) for each in (pid, *below(pid))]


def below(pid: int) -> Iterator[int]:
    """The processes below a process."""
    for child in children_of(pid):
        yield child
        yield from below(child)


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(each) for path in Path(f"/proc/{pid}/task").glob("*/children") for each in path.read_text().split()]


def words_of(pid: int) -> bytes:
    """The command line of a process, empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def wait_until_none_runs(proxy: int, servers: Servers) -> None:
    """Wait until the proxy has ended every server. Raises `TimeoutError`."""
    end = time.monotonic() + PATIENCE_S
    while left := [name for name, entry in servers.items() if tree_of(proxy, entry)]:
        if time.monotonic() > end:
            raise TimeoutError(f"these still run: {', '.join(left)}")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
