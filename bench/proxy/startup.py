"""Measures how long a client waits for its first list and for its first call.

    python -m bench.proxy.startup [--upstreams 30] [--repeat 5] [--foretool COMMAND]

There is one JSON object for each kind of upstream: `quick` starts at once, `slow` takes `--slow-s` seconds, `never`
does not start (its tools are known from a run in which it did). `cold_list_s` is the time from spawn to the answer of
`tools/list` without any storage, `warm_list_s` with the storage of the run before. `call_s` is the time of a call whose
upstream does not run yet; `call_over_own_start_s` subtracts what the same upstream needs without a proxy, from its
start to that answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import processes
from bench.clients.stdio import StdioClient
from bench.options import add_foretool, make_parser, split_names

KINDS = ("quick", "slow", "never")
HANG = "hang"
"""While this file exists, upstreams of the kind `never` do not start; their config does not change."""
READY_S = 60.0
"""The longest wait until the tools of all upstreams are known."""


def config(folder: Path, kind: str, count: int, slow_s: float) -> Path:
    """Write the config of `count` upstreams of a kind, on the storage in `folder`."""
    how = {"quick": (), "slow": ("--start-s", str(slow_s)), "never": ("--hang-if", str(folder / HANG))}[kind]
    return processes.write_config(
        folder, {name: processes.upstream(name, *how) for name in names(count)}, encoder="none"
    )


def names(count: int) -> list[str]:
    return [f"u{at:02d}" for at in range(count)]


async def alone(slow_s: float) -> float:
    """Seconds from the start of one upstream, without a proxy, to the answer of its first call."""
    entry = processes.upstream("u00", "--start-s", str(slow_s))
    client = await StdioClient.start([entry["command"], *entry["args"]])
    try:
        await client.initialize()
        await client.call("u00_echo", {"text": "x"})
        return client.age_s
    finally:
        await client.stop()


async def run(command: Sequence[str], path: Path, server: str | None, known: int = 0) -> dict[str, float]:
    """Start, list, call a tool of `server`, and wait until the catalog has `known` tools. All times in seconds."""
    async with StdioClient.serve(command, path) as client:
        list_s, _ = await client.first_list()
        times = {"list_s": list_s}
        if server is not None:
            asked_at = time.perf_counter()
            await client.call(f"{server}__{server}_echo", {"text": "x"})
            times["call_s"] = time.perf_counter() - asked_at
        if known:
            await until_known(client, known)
        times["rss_mib"], times["pss_mib"] = processes.memory_mib(client.pid)
        return times


async def until_known(client: StdioClient, known: int) -> None:
    """Wait until `discover_tools` says that it searches `known` tools. Raises `TimeoutError`."""
    async with asyncio.timeout(READY_S):
        while f"among {known} tools on " not in json.dumps(await client.tools()):
            await asyncio.sleep(0.1)


async def measure(command: Sequence[str], kind: str, count: int, repeat: int, slow_s: float) -> dict[str, Any]:
    """One cold run and `repeat` warm ones of a kind; each warm one calls another upstream, which does not run yet."""
    made = names(count)
    found: dict[str, Any] = {"test": "startup", "kind": kind, "upstreams": count}
    with tempfile.TemporaryDirectory(prefix="bench-startup-") as place:
        folder = Path(place)
        (folder / HANG).touch()
        path = config(folder, kind, count, slow_s)
        cold = await run(command, path, None, 0 if kind == "never" else 10 * count)
        found["cold_list_s"] = round(cold["list_s"], 3)
        found["cold_rss_mib"] = cold["rss_mib"]
        if kind == "never":
            (folder / HANG).unlink()
            await run(command, path, None, 10 * count)
            (folder / HANG).touch()
        warm = [await run(command, path, called(kind, made[at % count])) for at in range(repeat)]
    found["warm_list_s"] = processes.spread([each["list_s"] for each in warm])
    if kind != "never":
        own = [await alone(slow_s if kind == "slow" else 0.0) for _ in range(repeat)]
        found["upstream_alone_s"] = processes.spread(own)
        found["call_s"] = processes.spread([each["call_s"] for each in warm])
        over = found["call_s"]["median"] - found["upstream_alone_s"]["median"]
        found["call_over_own_start_s"] = round(over, 3)
    for key in ("rss_mib", "pss_mib"):
        found[f"warm_{key}"] = processes.spread([each[key] for each in warm], 1)["median"]
    return {**found, "load": processes.load_average()}


def called(kind: str, server: str) -> str | None:
    """The server to call; none where upstreams never start, because the call would only wait for its deadline."""
    return None if kind == "never" else server


async def results(command: Sequence[str], arguments: argparse.Namespace) -> None:
    """Measure every kind, and print its row."""
    for kind in arguments.kinds:
        result = await measure(command, kind, arguments.upstreams, arguments.repeat, arguments.slow_s)
        print(json.dumps(result), flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.proxy.startup", __doc__)
    parser.add_argument("--upstreams", type=int, default=30, help="default %(default)s")
    parser.add_argument("--repeat", type=int, default=5, help="warm runs of each kind; default %(default)s")
    parser.add_argument("--slow-s", type=float, default=2.0, help="start of a slow upstream; default %(default)s")
    parser.add_argument("--kinds", default=",".join(KINDS), help="default %(default)s")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    arguments.kinds = split_names(parser, "--kinds", arguments.kinds, KINDS)
    command = processes.installed(arguments.foretool)
    # Read the files once, so that no kind pays for a cold disk.
    subprocess.run([*command, "--version"], check=True, stdout=subprocess.DEVNULL)
    asyncio.run(results(command, arguments))


if __name__ == "__main__":
    main()
