"""Measures what a served model adds to a call: two proxies, one with a model, called in turn.

    python -m bench.growth.prediction [--tasks 100,1000,4000] [--calls 2000] [--policy frozen] [--call-ms 0]

The model predicts the next call (DTDR) and has the size that training gives it after so many tasks over 260 tools;
its weights are drawn at random, which costs a prediction as much as learned ones. Every call goes to one of 12 tools in
turn, by name or through `call_tool`. `added` is the time of a call less that of the upstream alone; `cpu` is the
processor time of the proxy's loop. Both proxies and the upstream alone are called in turn, so that a busy machine hits
all alike.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from bench import processes
from bench.clients.stdio import StdioClient
from bench.datasets import Json
from bench.growth import tables
from bench.metrics import quantile
from bench.options import add_foretool, make_parser
from bench.servers.echo import made_up
from foretool.retrieval.linear_maps import Lsa, no_next_text
from foretool.retrieval.rankers.dtdr_model import PARTS, Calls, Model, Network, rows_of
from foretool.storage.opening import open_store
from foretool.storage.records import ToolId

TOOLS: Final = 260
CALLED: Final = 12
HIDDEN, WIDTH, LENGTH = 256, 128, 22
WARM: Final = 200


def make_model(tools: Sequence[str], tasks: int) -> bytes:
    """Return a model of the size that training gives it, by words alone."""
    draw = np.random.default_rng(7)

    def some(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return (draw.standard_normal(shape) / 16).astype(np.float32)

    classes = len(tools)
    weights = dict.fromkeys(PARTS, 0.1) | {"network": 1.0, "neighbours": 1.0, "graph": 1.0}
    return Model(
        tools=tuple(map(ToolId, tools)),
        idle=(),
        network=Network(
            some(WIDTH, HIDDEN), some(rows_of(classes), HIDDEN), some(HIDDEN), some(HIDDEN), some(HIDDEN, classes + 1),
            some(classes + 1),
        ),
        lsa=Lsa(("read", "write"), some(2, WIDTH)),
        dimension=0,
        next_text=no_next_text(0),
        lens=some(WIDTH, 64),
        tasks=some(min(tasks, 4000), 64),
        calls=Calls(
            draw.integers(0, classes, (min(tasks, 4000), LENGTH)).astype(np.int32),
            np.full(min(tasks, 4000), LENGTH, np.int32),
            np.ones(min(tasks, 4000), np.bool_),
        ),
        asked=tuple(weights[part] for part in PARTS),
        unasked=tuple(weights[part] for part in PARTS),
    ).dumps()  # fmt: skip


def loop_s(pid: int) -> float:
    """The processor time of the first thread of a process, which runs its loop."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text("ascii").split()[0]) / 1e9


class Served:
    """A proxy with or without a model, or the upstream alone, and the times of its calls."""

    def __init__(self, client: StdioClient, prefix: str) -> None:
        self.client = client
        self.prefix = prefix
        self.times: list[float] = []
        self.cpu = 0.0

    async def call(self, at: int, through: str) -> None:
        name = f"{self.prefix}t{at % CALLED + 1}"
        named = not self.prefix.startswith("s0__") or through == "name"
        asked = (name, {"text": "a"}) if named else ("call_tool", {"name": name, "arguments": {"text": "a"}})
        cpu, started = loop_s(self.client.pid), time.perf_counter()
        await self.client.call(*asked)
        self.times.append(1e3 * (time.perf_counter() - started))
        self.cpu += loop_s(self.client.pid) - cpu


async def measure(command: Sequence[str], tasks: int, calls: int, policy: str, call_ms: float = 0.0) -> Json:
    """Return the figures of one size of model."""
    found: dict[str, float | str] = {}
    takes = ("--call-ms", str(call_ms))
    with tempfile.TemporaryDirectory(prefix="bench-prediction-") as place:
        configs = []
        for name in ("without", "with"):
            folder = Path(place) / name
            folder.mkdir()
            made = [{**each, "annotations": {"readOnlyHint": True}} for each in made_up("s0", TOOLS)]
            pins = [f"s0_t{at + 1}" for at in range(CALLED)]
            entry = {**processes.serve_tools(folder, {"s0": made})["s0"], "pin": pins}
            entry["args"] = [*entry["args"], *takes]
            configs.append(processes.write_config(folder, {"s0": entry}, policy=policy, encoder="none", learn_s=0))
            tools = [f"s0__s0_t{at}" for at in range(1, TOOLS)]
            with open_store(folder / "foretool.sqlite3") as store:
                if name == "with":
                    store.artifacts.add("dtdr", make_model(tools, tasks), {}, promote=True)
                    store.artifacts.bump_version()
        clients = [await StdioClient.start([*command, "serve", "--config", str(each), "--alone"]) for each in configs]
        alone = await StdioClient.start(
            [sys.executable, *processes.upstream("s0", "--count", str(TOOLS), *takes)["args"]]
        )
        try:
            await alone.initialize()
            for client in clients:
                await client.first_list()
            await asyncio.sleep(6.0)  # a proxy looks for models about once a second
            for through in ("name", "bridge"):
                direct = Served(alone, "s0_")
                served = [Served(client, "s0__s0_") for client in clients]
                for at in range(calls + WARM):
                    if at == WARM:
                        for each in (direct, *served):
                            each.times, each.cpu = [], 0.0
                    for each in (direct, *served):
                        await each.call(at, through)
                base = quantile(direct.times, 0.5)
                without, with_model = (quantile(each.times, 0.5) - base for each in served)
                found |= {
                    f"{through}: added p50 ms without": without, f"{through}: with": with_model,
                    f"{through}: times": with_model / without,
                    f"{through}: cpu us without": 1e6 * served[0].cpu / calls,
                    f"{through}: cpu us with": 1e6 * served[1].cpu / calls,
                }  # fmt: skip
            rss = [processes.memory_mib(client.pid)[0] for client in clients]
            found |= {"RSS MiB without": rss[0], "RSS MiB with": rss[1]}
        finally:
            for client in (*clients, alone):
                await client.stop()
    return found


def rows(
    sizes: Sequence[int], command: Sequence[str], calls: int, policy: str, call_ms: float = 0.0
) -> Iterator[tuple[int, Json]]:
    """Yield the row of each size."""
    for tasks in sizes:
        yield tasks, asyncio.run(measure(command, tasks, calls, policy, call_ms))


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.growth.prediction", __doc__)
    parser.add_argument("--tasks", default="100,1000,4000", help="tasks learned from; default %(default)s")
    parser.add_argument("--calls", type=int, default=2000, help="calls of each kind; default %(default)s")
    parser.add_argument("--policy", default="frozen", help="default %(default)s")
    parser.add_argument("--call-ms", type=float, default=0.0, help="how long the upstream takes for a call")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    sizes = [int(each) for each in arguments.tasks.split(",")]
    command = processes.installed(arguments.foretool)
    print(tables.table("tasks", list(rows(sizes, command, arguments.calls, arguments.policy, arguments.call_ms))))


if __name__ == "__main__":
    main()
