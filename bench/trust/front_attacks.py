"""Measures one client's calls over HTTP while another one attacks the proxy.

    python -m bench.trust.front_attacks [--only NAMES] [--seconds 5] [--foretool COMMAND]

For each attack of `front_attackers.py` a `foretool serve --http` starts with its default limits, two tokens and two
upstreams that echo. The attacker runs in a process of its own at low priority, because a real one does not use our
processors: first without a token, then with the second one, as if it had leaked. Meanwhile a client calls the upstream
that the attacker leaves alone, with the first token, one call after the other: half of the calls on a connection that
is kept, half on a new one. A call that fails for a closed connection is made again, and its time counts from the first
try.

The output is one JSON object for each attack: calls, calls that had to be made again, p50, p99 and longest time in
ms, the proxy's peak of RSS in MiB, the load of the machine, and whether the bars hold (p99 under 100 ms, RSS under
200 MiB). The first line is the same without an attack.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from hashlib import sha256
from pathlib import Path

from bench import processes
from bench.clients.http import HttpClient
from bench.clients.messages import MODERN, Failed, said
from bench.metrics import quantile
from bench.options import add_foretool, make_parser, split_names
from bench.reports import Row, times_row
from bench.trust.front_attackers import ATTACKS

START_S = 60.0
TOOL = "up__up_echo"
CALM = "none"
BEGIN_S = 1.0
"""How long an attack runs before the calls are measured."""
PAUSE_S = 0.01
TRIES = 20
MOST_P99_MS = 100.0
MOST_RSS_MIB = 200.0


class Client:
    """The client that is served while another one attacks."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self._kept: HttpClient | None = None
        self.milliseconds: list[float] = []
        self.repeated = 0

    async def call(self, *, fresh: bool) -> None:
        """Make one call, again if its connection was closed, and note its time."""
        started = time.perf_counter()
        for _ in range(TRIES):
            try:
                await self._try(fresh=fresh)
                break
            except (OSError, EOFError, Failed) as error:
                await self.close()
                self.repeated += 1
                last = error
        else:
            raise SystemExit(f"a call failed {TRIES} times: {last}")
        self.milliseconds.append(1e3 * (time.perf_counter() - started))

    async def _try(self, *, fresh: bool) -> None:
        if fresh:
            await self.close()
        if self._kept is None:
            client = HttpClient(self._port, MODERN, token=self._token)
            await client.connect()
            self._kept = client
        answer = json.loads(said(await self._kept.call(TOOL, {"text": "hello"})))
        assert answer["arguments"] == {"text": "hello"}, answer

    async def close(self) -> None:
        """Close the connection that is kept."""
        client, self._kept = self._kept, None
        if client is not None:
            with contextlib.suppress(OSError):
                await client.close()


def entries(*tokens: str) -> list[dict[str, object]]:
    """The config entries of tokens."""
    return [
        {"name": f"t{at}", "sha256": sha256(token.encode()).hexdigest(), "profiles": ["*"]}
        for at, token in enumerate(tokens)
    ]


@contextlib.asynccontextmanager
async def served(folder: Path, foretool: Sequence[str], tokens: Sequence[str]) -> AsyncIterator[tuple[int, int]]:
    """Run a proxy as long as the block runs; its port and process id."""
    settings = {"tokens": entries(*tokens), "insecure_loopback": False, "encoder": "none"}
    config = processes.write_config(folder, {name: processes.upstream(name) for name in ("up", "busy")}, **settings)
    port = processes.free_port()
    command = [*foretool, "serve", "--config", str(config), "--http", f"127.0.0.1:{port}"]
    with (folder / "log").open("wb") as log:
        proxy = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
    try:
        await processes.wait_until_listening(port, proxy, START_S)
        yield port, proxy.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            proxy.terminate()
        await proxy.wait()


def peak_rss_mib(pid: int) -> float:
    """The most memory that a process ever had in RAM."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024, 1)


async def measure(name: str, seconds: float, folder: Path, foretool: Sequence[str]) -> Row:
    """Serve, attack, call, and return the row of an attack."""
    own, leaked = (secrets.token_urlsafe(32) for _ in range(2))
    async with served(folder, foretool, (own, leaked)) as (port, pid):
        client = Client(port, own)
        for _ in range(5):
            await client.call(fresh=False)
        client.milliseconds.clear()
        command = [sys.executable, "-m", "bench.trust.front_attackers", name, str(port), leaked]
        attacker = await asyncio.create_subprocess_exec(*command) if name != CALM else None
        try:
            await asyncio.sleep(BEGIN_S)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await client.call(fresh=len(client.milliseconds) % 2 == 1)
                await asyncio.sleep(PAUSE_S)
            if attacker is not None and attacker.returncode is not None:
                raise SystemExit(f"the attacker {name} has ended with status {attacker.returncode}")
        finally:
            if attacker is not None:
                with contextlib.suppress(ProcessLookupError):
                    attacker.kill()
                await attacker.wait()
        await client.close()
        peak = peak_rss_mib(pid)
    return row_of(name, client, peak)


def row_of(name: str, client: Client, peak: float) -> Row:
    """The row of an attack."""
    p99 = quantile(client.milliseconds, 0.99)
    return {
        "test": "front-attack",
        "attack": name,
        "calls": len(client.milliseconds),
        "repeated": client.repeated,
        **times_row(client.milliseconds, (50, 99), 1),
        "max_ms": round(max(client.milliseconds), 1),
        "peak_rss_mib": peak,
        "load": processes.load_average(),
        "holds": p99 < MOST_P99_MS and peak < MOST_RSS_MIB,
    }


async def measure_all(arguments: argparse.Namespace) -> None:
    """Measure each attack with a proxy of its own."""
    for name in arguments.only:
        with tempfile.TemporaryDirectory(prefix="bench-front-") as folder:
            found = await measure(name, arguments.seconds, Path(folder), processes.installed(arguments.foretool))
        print(json.dumps(found), flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    names = (CALM, *ATTACKS)
    parser = make_parser("bench.trust.front_attacks", __doc__)
    parser.add_argument("--only", default=",".join(names), help="default %(default)s")
    parser.add_argument("--seconds", type=float, default=5.0, help="of calls during each attack; default %(default)s")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    arguments.only = split_names(parser, "--only", arguments.only, names)
    asyncio.run(measure_all(arguments))


if __name__ == "__main__":
    main()
