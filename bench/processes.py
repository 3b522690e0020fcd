"""Reads what the operating system says of a process (memory, files, threads), and configures the measured proxy."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ECHO = str(Path(__file__).with_name("servers") / "echo.py")


def upstream(name: str, *arguments: str) -> dict[str, Any]:
    """The config of an echo upstream; `arguments` as in `echo.py`."""
    return {"command": sys.executable, "args": ["-S", "-E", ECHO, "--name", name, *arguments]}


def write_config(folder: Path, servers: Mapping[str, Any], **settings: Any) -> Path:
    """A config in `folder`, with its storage beside it."""
    path = folder / "mcp.json"
    own = {"storage": str(folder / "foretool.sqlite3"), **settings}
    path.write_text(json.dumps({"mcpServers": servers, "foretool": own}), "utf-8")
    return path


def installed(command: str | None) -> list[str]:
    """The command of the foretool to measure: as given, else the one beside this Python, else the one on PATH."""
    if command:
        return command.split()
    beside = Path(sys.executable).with_name("foretool")
    found = str(beside) if beside.exists() else shutil.which("foretool")
    if found is None:
        raise SystemExit("foretool is not installed here; name its command with --foretool")
    return [found]


def free_port() -> int:
    """A port that nobody listens on, on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def memory_mib(pid: int) -> tuple[float, float]:
    """What of the process is in RAM, and its fair share of what it shares (RSS and PSS)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()[1:]
    sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return round(sizes["Rss"] / 1024, 1), round(sizes["Pss"] / 1024, 1)


def cpu_s(pid: int) -> float:
    """Processor time it has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def open_files(pid: int) -> int:
    """Descriptors of the process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def threads(pid: int) -> int:
    """Threads of the process."""
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def children(pid: int) -> int:
    """Processes it has started that are still there."""
    return len(Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split())


def spread(values: Sequence[float], digits: int = 3) -> dict[str, Any]:
    """First, median, least and all of a few repeated measurements; the first is told apart since it is often cold."""
    return {
        "median": round(median(values), digits),
        "least": round(min(values), digits),
        "all": [round(value, digits) for value in values],
    }


def load_average() -> float:
    """How busy the machine was in the last minute."""
    return round(os.getloadavg()[0], 2)
