"""Compares the calls a second of one replica with those of three, over one PostgreSQL on the same machine.

    python -m bench.fleet.scaling [--replicas 3] [--clients 48] [--seconds 5] [--rounds 4] [--cores 0.2] [--json]

Each replica of `foretool serve --http` and its echo server share `--cores` of a processor (a control group of Linux,
which takes root), as a container's limit does; otherwise the machine is the limit, whose cores they share with the
database and the clients. `--cores 0` sets none. Half of the clients speak the legacy era, half 2026-07-28. In each
round they call the first replica alone, and then, spread evenly, all of them. The rows: calls/s (median of the
rounds), how many times those of one replica that is, the processor time of a call in the replicas (without their
servers) and in the database, and how many cores of the machine both had in all.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bench.clients.http import HttpClient
from bench.clients.messages import LEGACY, MODERN, said
from bench.fleet.database import DatabaseServer
from bench.fleet.replicas import TOOL, Replica
from bench.options import add_foretool, add_json, make_parser
from bench.processes import cpu_s, installed, load_average
from bench.reports import Row, print_row

PERIOD_US = 20_000
"""Of a limit: the shorter, the more evenly its share comes."""
GROUPS = Path("/sys/fs/cgroup")
END_S = 10.0


@contextmanager
def limited(name: str, cores: float) -> Iterator[Path | None]:
    """Make a control group with a share of a processor; give the file that takes its processes."""
    if not cores:
        yield None
        return
    first = GROUPS / "cpu"
    folder = (first if first.is_dir() else GROUPS) / name
    quota = int(cores * PERIOD_US)
    try:
        folder.mkdir()
        if first.is_dir():
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        raise SystemExit(f"{folder}: no limit can be set ({error.strerror}); give --cores 0, or run as root") from None
    try:
        yield folder / "cgroup.procs"
    finally:
        # The servers of a replica end a moment after it.
        deadline = time.monotonic() + END_S
        while folder.exists() and time.monotonic() < deadline:
            with suppress(OSError):
                folder.rmdir()
            time.sleep(0.05)


async def open_clients(ports: Sequence[int], count: int) -> list[HttpClient]:
    """Connect clients, evenly spread over eras and ports."""
    clients = [
        HttpClient(ports[place % len(ports)], (LEGACY, MODERN)[place // len(ports) % 2]) for place in range(count)
    ]
    for client in clients:
        await client.connect()
        await client.initialize()
        said(await client.call(TOOL, {"text": "warm"}))
    return clients


async def call_for(clients: Sequence[HttpClient], seconds: float) -> tuple[int, float]:
    """Call with all clients at a time; return how many calls were answered, and how long that took."""
    begun = time.perf_counter()

    async def work(client: HttpClient) -> int:
        done = 0
        while time.perf_counter() - begun < seconds:
            said(await client.call(TOOL, {"text": "hello"}))
            done += 1
        return done

    counts = await asyncio.gather(*map(work, clients))
    return sum(counts), time.perf_counter() - begun


def database_cpu_s(folder: Path) -> float:
    """The processor time of a PostgreSQL server and all its processes."""
    server = int((folder / "postmaster.pid").read_text("utf-8").split()[0])
    spent = 0.0
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((each / "stat").read_text("utf-8").rpartition(")")[2].split()[1])
            if server in (int(each.name), parent):
                spent += cpu_s(int(each.name))
    return spent


async def measure(replicas: Sequence[Replica], database: Path, clients: int, seconds: float, rounds: int) -> list[Row]:
    """Call one replica, then all of them, in turns; return a row for each."""
    everyone = [replica.port for replica in replicas]
    pids = [replica.process.pid for replica in replicas if replica.process is not None]
    teams = {1: await open_clients(everyone[:1], clients), len(everyone): await open_clients(everyone, clients)}
    rates: dict[int, list[float]] = {count: [] for count in teams}
    calls, own, behind, took = (dict.fromkeys(teams, 0.0) for _ in range(4))
    for _ in range(rounds):
        for count, team in teams.items():
            before = sum(map(cpu_s, pids)), database_cpu_s(database)
            done, wall = await call_for(team, seconds)
            own[count] += sum(map(cpu_s, pids)) - before[0]
            behind[count] += database_cpu_s(database) - before[1]
            rates[count].append(done / wall)
            calls[count] += done
            took[count] += wall
    for team in teams.values():
        for client in team:
            await client.close()
    one = statistics.median(rates[1])
    return [
        {"replicas": count, "calls_per_s": round(statistics.median(rates[count])),
         "ratio": round(statistics.median(rates[count]) / one, 2),
         "replica_cpu_ms": round(1000 * own[count] / calls[count], 3),
         "database_cpu_ms": round(1000 * behind[count] / calls[count], 3),
         "cores": round((own[count] + behind[count]) / took[count], 2), "load": load_average()}
        for count in teams
    ]  # fmt: skip


async def run(
    folder: Path, command: Sequence[str], address: str, groups: Sequence[Path | None], clients: int, seconds: float,
    rounds: int,
) -> list[Row]:  # fmt: skip
    """Start a replica in each of the control groups, and measure."""
    replicas = [Replica(folder / f"replica-{place}", command, address, 0.0) for place in range(len(groups))]
    try:
        for replica, group in zip(replicas, groups, strict=True):
            await replica.start()
            await replica.wait_ready()
            if group is not None and replica.process is not None:
                # Started without the limit, which would make the start a long one.
                for pid in (replica.process.pid, *children_of(replica.process.pid)):
                    group.write_text(str(pid))
        return await measure(replicas, folder / "database", clients, seconds, rounds)
    finally:
        for replica in replicas:
            if replica.process is not None and replica.process.returncode is None:
                await replica.end(signal.SIGTERM)


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in found for child in each.read_text("utf-8").split()]


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the rows."""
    parser = make_parser("bench.fleet.scaling", __doc__)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--clients", type=int, default=48)
    parser.add_argument("--seconds", type=float, default=5.0, help="of one round; default %(default)s")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument(
        "--cores", type=float, default=0.2, help="limit of each replica; default %(default)s, 0 for none"
    )
    add_foretool(parser)
    add_json(parser)
    arguments = parser.parse_args(argv)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scaling-")))
        server = DatabaseServer(folder / "database")
        stack.callback(server.close)
        names = [f"foretool-scaling-{os.getpid()}-{place}" for place in range(arguments.replicas)]
        groups = [stack.enter_context(limited(name, arguments.cores)) for name in names]
        rows = asyncio.run(
            run(
                folder,
                installed(arguments.foretool),
                server.address,
                groups,
                arguments.clients,
                arguments.seconds,
                arguments.rounds,
            )
        )
    for row in rows:
        print_row(row, arguments.json)


if __name__ == "__main__":
    main()
