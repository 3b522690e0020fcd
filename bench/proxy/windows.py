"""What windows cost that share a proxy: processes of servers, memory, and the time until each has listed its tools.

    python -m bench.proxy.windows [--windows 10] [--servers 30] [--rounds 5] [--idle 30] [--foretool COMMAND]

The servers are echo servers without delay. Memory is the resident memory (RSS) of all windows and of the proxy, without
the servers. Times are from the start of a window to its first list, from a warm store: of windows that join a running
proxy, and in turns with them of a window on its own (`--alone`). CPU time is that of the window and what it has started
and waited for. Wake-ups are the times that a thread of a window or of the proxy gave up the processor by itself, in
`--idle` seconds in which nobody asks for anything. Measure an ordinary installation: an editable one makes every window
2 MiB larger.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.processes import cpu_s, installed, upstream, write_config

SETTLE_S = 12.0
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=10)
    parser.add_argument("--servers", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle", type=float, default=30.0)
    parser.add_argument("--foretool")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), installed(options.foretool), options)


class Sharing(NamedTuple):
    """Windows that share a proxy."""

    config: Path
    serve: list[str]
    """The command of a window."""
    environ: dict[str, str]
    windows: list[Window]
    proxies: list[int]
    servers: list[int]
    """The processes of the servers, all of which run."""


def open_windows(folder: Path, command: Sequence[str], windows: int, servers: int) -> Sharing:
    """Open so many windows over so many echo servers, each of which the first window calls."""
    config = write_config(folder, {f"s{at}": upstream(f"s{at}") for at in range(servers)}, linger_s=1, share=True)
    environ = {**os.environ, "FORETOOL_SOCKETS": str(folder / "run")}
    serve = [*command, "serve", "--config", str(config)]
    opened = [Window(serve, environ) for _ in range(windows)]
    proxies = [pid for pid in processes(str(config)) if pid not in [each.process.pid for each in opened]]
    for at in range(servers):
        opened[0].ask("tools/call", {"name": f"s{at}__{opened[0].tool(f's{at}')}", "arguments": {}})
    return Sharing(config, serve, environ, opened, proxies, [pid for proxy in proxies for pid in children_of(proxy)])


def measure(folder: Path, command: list[str], options: argparse.Namespace) -> None:
    windows, servers, rounds = options.windows, options.servers, options.rounds
    config, serve, environ, opened, proxies, children = open_windows(folder, command, windows, servers)
    relays, proxy = [rss(each.process.pid) for each in opened], [rss(pid) for pid in proxies]
    print(f"{windows} windows, {servers} servers: {len(proxies)} proxy, {len(children)} server processes")
    print(f"RSS: {sum(relays) + sum(proxy):.1f} MiB (proxy {sum(proxy):.1f}, a window {median(relays):.1f})")
    print_wake_ups([each.process.pid for each in opened], proxies, options.idle)
    first = [each.listed_s for each in opened[1:]]
    print(f"first list of window 2 to {windows}: median {median(first):.3f} s, longest {max(first):.3f} s")
    shared: list[tuple[float, float]] = []
    alone: list[tuple[float, float]] = []
    for _ in range(rounds):
        for found, words in ((shared, []), (alone, ["--alone"])):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            window = Window([*serve, *words], environ)
            window.leave()
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found.append((window.listed_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    for name, found in (("one more window", shared), ("a window alone", alone)):
        wall, cpu = zip(*found, strict=True)
        print(f"{name}: first list after {median(wall):.3f} s, CPU time {median(cpu):.3f} s ({rounds} rounds)")
    for each in opened:
        each.leave()
    deadline = time.monotonic() + 20
    while processes(str(config)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in processes(str(config)):
        os.kill(pid, signal.SIGTERM)


def print_wake_ups(windows: list[int], proxies: list[int], idle_s: float) -> None:
    """Count wake-ups while nobody asks for anything."""
    time.sleep(SETTLE_S)
    before = {pid: (wake_ups(pid), cpu_s(pid)) for pid in (*windows, *proxies)}
    time.sleep(idle_s)
    rates = {pid: (wake_ups(pid) - woken) / idle_s for pid, (woken, _) in before.items()}
    cpu_ms = 1e3 * sum(cpu_s(pid) - cpu for pid, (_, cpu) in before.items()) / idle_s
    shares = f"proxy {sum(rates[pid] for pid in proxies):.2f}, a window {median(rates[pid] for pid in windows):.2f}"
    print(f"idle: {sum(rates.values()):.2f} wake-ups a second in all ({shares}), {cpu_ms:.1f} ms of CPU a second")


def wake_ups(pid: int) -> int:
    """How often threads of a process have given up the processor by themselves."""
    found = 0
    for path in Path(f"/proc/{pid}/task").glob("*/status"):
        lines = path.read_text("ascii").splitlines()
        found += next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return found


class Window:
    """A client on stdio that has listed its tools."""

    def __init__(self, command: list[str], environ: dict[str, str]) -> None:
        started = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ
        )
        self._ids = 0
        self.ask("initialize", HELLO)
        self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.tools = [each["name"] for each in self.ask("tools/list", {})["tools"]]
        self.listed_s = time.perf_counter() - started

    def tell(self, message: Mapping[str, object]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: Mapping[str, object]) -> dict[str, list[dict[str, str]]]:
        self._ids += 1
        self.tell({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params})
        assert self.process.stdout is not None
        while True:
            message = json.loads(self.process.stdout.readline())
            if message.get("id") == self._ids and "method" not in message:
                found: dict[str, list[dict[str, str]]] = message.get("result", {})
                return found

    def tool(self, server: str) -> str:
        names = [name.partition("__")[2] for name in self.tools if name.startswith(f"{server}__")]
        return names[0] if names else "echo"

    def leave(self) -> None:
        self.process.communicate(timeout=60)


def processes(words: str) -> list[int]:
    """The processes whose command line names this. A child that is about to start another program still has the
    command line of its parent, and is left out."""
    found: dict[int, tuple[int, bytes]] = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if words.encode() in (text := path.read_bytes()):
                parent = int(path.with_name("stat").read_text("utf-8").rpartition(")")[2].split()[1])
                found[int(path.parent.name)] = parent, text
    begun = {pid for pid, (parent, text) in found.items() if parent in found and found[parent][1] == text}
    return [pid for pid in found if pid not in begun and pid != os.getpid()]


def children_of(pid: int) -> list[int]:
    """The children of a process that are echo servers."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(each) for each in path.read_text().split()]
    return [each for each in found if b"echo.py" in Path(f"/proc/{each}/cmdline").read_bytes()]


def rss(pid: int) -> float:
    """Resident memory in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


if __name__ == "__main__":
    main()
