"""Counts the processor instructions of a call, with a model served and without one; needs valgrind (Linux).

    python -m bench.proxy.instructions [--calls 300] [--kinds name,bridge] [--policy frozen]

A count does not depend on what else the machine does, so that versions can be compared on a busy one; it leaves out
what the kernel does. The proxy and the model are those of `bench.growth.prediction`, called one call after the other.
Valgrind makes everything some fifty times slower, so the proxy's pauses around predictions are a hundred times longer
there, and its work of every second is stopped once the model is open.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.clients.stdio import StdioClient
from bench.growth.prediction import Manner, draw_tools, write_configs
from bench.options import make_parser, split_names

KINDS: Final = ("name", "bridge")
TASKS: Final = 1_000
WARM: Final = 150
OPENING_S: Final = 15.0
"""Time for the model to be opened, before the work of every second is stopped."""
SETTLING_S: Final = 4.0
SLOWER: Final = 100
SLOWED: Final = f"""
import signal, sys
from foretool.server import app
from foretool.server.calls import runner
from foretool.server.hints import prediction
for module, name in ((runner, "PAUSE_S"), (runner, "READING_S"), (prediction, "QUIET_S")):
    setattr(module, name, {SLOWER} * getattr(module, name))
signal.signal(signal.SIGUSR1, lambda *_: setattr(app, "TICK_S", 1e6))
sys.argv = ["foretool", *sys.argv[1:]]
from foretool.server.cli import main
main()
"""
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


def read_total(path: Path) -> int:
    """Return the instructions that a file of callgrind tells of, 0 while it is not written."""
    found = _TOTAL.search(path.read_text("utf-8", "replace")) if path.exists() else None
    return int(found[1]) if found else 0


async def count(config: Path, calls: int, kind: str, folder: Path) -> float:
    """Return the thousands of instructions of a call."""
    out = folder / "callgrind"
    watched = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", sys.executable, "-c", SLOWED]
    client = await StdioClient.start([*watched, "serve", "--config", str(config), "--alone"])
    part = 0

    async def dump() -> int:
        """Return the instructions since the last time."""
        nonlocal part
        part += 1
        command = ["callgrind_control", "-d", str(client.pid)]
        await asyncio.to_thread(subprocess.run, command, stdout=subprocess.DEVNULL, check=True)
        written = Path(f"{out}.{part}")
        async with asyncio.timeout(60):
            while not (found := read_total(written)):
                await asyncio.sleep(0.1)
        return found

    async def call_all(number: int) -> None:
        for tool in draw_tools(kind, number):
            name = f"s0__s0_t{tool}"
            asked = (name, {"text": "a"}) if kind == "name" else (
                "call_tool", {"name": name, "arguments": {"text": "a"}}
            )  # fmt: skip
            await client.call(*asked)

    try:
        await client.first_list()
        await asyncio.sleep(OPENING_S)
        os.kill(client.pid, signal.SIGUSR1)
        await asyncio.sleep(SETTLING_S)
        await call_all(WARM)
        await dump()
        await call_all(calls)
        return await dump() / calls / 1e3
    finally:
        client.process.kill()  # it would take long to end
        await client.stop()


async def measure(kind: str, calls: int, policy: str) -> dict[str, float]:
    """Return the counts of one kind of call."""
    found: dict[str, float] = {}
    for number, which in enumerate(("without", "with")):
        with tempfile.TemporaryDirectory(prefix="bench-instructions-") as name:
            config = write_configs(Path(name), TASKS, Manner(policy), ())[number]
            found[which] = round(await count(config, calls, kind, Path(name)), 1)
    return {**found, "times": round(found["with"] / found["without"], 3)}


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and count."""
    parser = make_parser("bench.proxy.instructions", __doc__)
    parser.add_argument("--calls", type=int, default=300, help="calls that are counted; default %(default)s")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of calls; default %(default)s")
    parser.add_argument("--policy", default="frozen", help="default %(default)s")
    arguments = parser.parse_args(argv)
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed; on Debian: apt-get install valgrind")
    kinds = split_names(parser, "--kinds", arguments.kinds, KINDS)
    print(f"| thousands of instructions of {arguments.calls} calls, each | without a model | with | times |")
    print("|---|---|---|---|")
    for kind in kinds:
        row = asyncio.run(measure(kind, arguments.calls, arguments.policy))
        print(f"| {kind} | {row['without']} | {row['with']} | {row['times']} |", flush=True)


if __name__ == "__main__":
    main()
