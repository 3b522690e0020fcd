"""Reads what the operating system says of a process (memory, files, threads), and configures the measured proxy."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from foretool.server.config.settings import FROM_FILE, Limits


class ProcessEnded(Exception):
    """A server ended before it could be asked."""


ECHO = str(Path(__file__).with_name("servers") / "echo.py")


def upstream(name: str, *arguments: str) -> dict[str, Any]:
    """The config entry of an echo upstream; `arguments` as in `echo.py`."""
    return {"command": sys.executable, "args": ["-S", "-E", ECHO, "--name", name, *arguments]}


def serve_tools(folder: Path, catalogs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The config entries of upstreams that serve these tools, which are written into `folder`."""
    entries = {}
    for at, (name, tools) in enumerate(catalogs.items()):
        path = folder / f"tools-{at}.json"
        path.write_text(json.dumps(tools), "utf-8")
        entries[name] = upstream(name, "--tools", str(path))
    return entries


def write_config(folder: Path, servers: Mapping[str, Any], **settings: Any) -> Path:
    """Write a config into `folder`, with its storage beside it. Over HTTP no token is asked for. Without `share=True`
    a client on stdio gets a proxy of its own, so that what is measured is the proxy and not the window before it."""
    path = folder / "mcp.json"
    own = {"storage": str(folder / "foretool.sqlite3"), "insecure_loopback": True, "share": False, **settings}
    if own["share"]:
        del own["share"]  # which is the default; a window does not parse a file that says nothing of it
    limits = {key: own.pop(key) for key in Limits.__struct_fields__ if key in own}
    if limits:
        os.environ[FROM_FILE] = "file"  # a measurement may set what is a constant for users
        own["limits"] = limits
    path.write_text(json.dumps({"mcpServers": servers, "foretool": own}), "utf-8")
    return path


def installed(command: str | None) -> list[str]:
    """The command of the foretool to measure: the given one, the one beside this Python, or the one on PATH."""
    if command:
        return command.split()
    beside = Path(sys.executable).with_name("foretool")
    found = str(beside) if beside.exists() else shutil.which("foretool")
    if found is None:
        raise SystemExit("foretool is not installed beside this Python nor on PATH; name its command with --foretool")
    return [found]


def compiled_environment(folder: Path) -> dict[str, str]:
    """Our environment with the bytecode of all modules kept in a folder. pip compiles what it installs, but a checkout
    whose bytecode is kept nowhere is compiled at every start, which takes longer than everything else."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**environ, "PYTHONPYCACHEPREFIX": str(folder)}


def free_port() -> int:
    """A free port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def wait_until_listening(port: int, process: asyncio.subprocess.Process, patience_s: float) -> None:
    """Raises `ProcessEnded` if the process ends before it listens on the port, and `TimeoutError`."""
    async with asyncio.timeout(patience_s):
        while True:
            if process.returncode is not None:
                raise ProcessEnded(f"it ended with status {process.returncode}")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


def memory_mib(pid: int) -> tuple[float, float]:
    """The memory of a process in RAM, and the same with only its share of what it shares (RSS and PSS)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()[1:]
    sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return round(sizes["Rss"] / 1024, 1), round(sizes["Pss"] / 1024, 1)


def private_mib(pid: int) -> float:
    """The memory of a process that no other process has too: what one more process of its kind takes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()[1:]
    sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return round((sizes["Private_Clean"] + sizes["Private_Dirty"]) / 1024, 1)


def cpu_s(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def open_files(pid: int) -> int:
    """The number of open descriptors of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def threads(pid: int) -> int:
    """The number of threads of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def children(pid: int) -> int:
    """The number of processes that a process has started and that still run."""
    return len(Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split())


def spread(values: Sequence[float], digits: int = 3) -> dict[str, Any]:
    """Median, least and all of a few repeated measurements."""
    return {
        "median": round(median(values), digits),
        "least": round(min(values), digits),
        "all": [round(value, digits) for value in values],
    }


def load_average() -> float:
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 2)
