"""Measures what a served model adds to a call: two proxies, one with a model, called in turn.

    python -m bench.growth.prediction [--tasks 100,1000,4000] [--calls 2000] [--policy frozen] [--think-ms 0] [--joined]

The model predicts the next call (DTDR) and has the size that training gives it after so many tasks over 260 tools;
its weights are drawn at random, which costs a prediction as much as learned ones. `name`: calls of listed tools, drawn
from 12, never the same twice in a row. `bridge`: the same through `call_tool`. `again`: one tool through `call_tool`,
again and again. `task`: as `bridge`, after a search in words that the model knows. `added` is the time of a call less
that of the upstream alone; `cpu` is the processor time of the proxy's loop. Both proxies and the upstream alone are
called in turn, so that a busy machine hits all alike. `--think-ms` is the pause of the client before each call, as a
model makes it; without one only slow calls are predicted from. A process has a proxy of its own; with `--joined` it is
a window that joins a proxy, and the memory of both is told. With `--encoder minilm-tools`, which the default install
uses, both have searched and opened the encoder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from bench import processes
from bench.clients.stdio import StdioClient
from bench.datasets import Json
from bench.growth import tables
from bench.metrics import quantile
from bench.options import add_foretool, make_parser, split_names
from bench.proxy.windows import processes as processes_of
from bench.servers.echo import made_up
from foretool.learning.linear_maps import PLACES, Lsa, NextText
from foretool.learning.rankers.dtdr_model import PARTS, Model, Network, PastCalls, rows_of
from foretool.learning.training.linear_maps import MOST_TERMS
from foretool.storage.opening import open_store
from foretool.storage.records import ToolId

TOOLS: Final = 260
CALLED: Final = 12
HIDDEN, WIDTH, LENGTH = 256, 128, 22
WARM: Final = 200
OPENED_S: Final = 300.0
VECTOR: Final = 384
"""Numbers of a vector of `minilm-tools`."""
TASK: Final = "echo text twice"
"""Words that the tools have and the model knows."""
TERMS: Final = 4
"""Words and pairs of words that one more task brings, up to `MOST_TERMS`: 1,000 tasks of ultratool have 4,086."""
KINDS: Final = ("name", "bridge", "again", "task")


def make_model(tools: Sequence[str], tasks: int, dimension: int = 0) -> bytes:
    """Return a model of the size that training gives it, with vectors of so many numbers, or by words alone."""
    draw = np.random.default_rng(7)

    def some(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return (draw.standard_normal(shape) / 16).astype(np.float32)

    classes = len(tools)
    words = [*TASK.split(), *(f"term{at}" for at in range(min(TERMS * tasks, MOST_TERMS)))]
    weights = dict.fromkeys(PARTS, 0.1) | {"network": 1.0, "neighbours": 1.0, "graph": 1.0}
    return Model(
        tools=tuple(map(ToolId, tools)),
        idle=(),
        network=Network(
            some(dimension + WIDTH, HIDDEN), some(rows_of(classes), HIDDEN), some(HIDDEN), some(HIDDEN),
            some(HIDDEN, classes + 1), some(classes + 1),
        ),
        lsa=Lsa(words, some(len(words), WIDTH)),
        dimension=dimension,
        next_text=NextText(some(dimension, dimension), some(2 * dimension + PLACES, dimension), some(dimension)),
        lens=some(dimension + WIDTH, 64),
        tasks=some(min(tasks, 4000), 64),
        calls=PastCalls(
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

    def __init__(self, client: StdioClient, prefix: str, pid: int) -> None:
        """`pid`: the process that has the loop."""
        self.client = client
        self.prefix = prefix
        self.pid = pid
        self.times: list[float] = []
        self.cpu = 0.0

    async def call(self, tool: int, kind: str) -> None:
        name = f"{self.prefix}t{tool}"
        named = not self.prefix.startswith("s0__") or kind == "name"
        asked = (name, {"text": "a"}) if named else ("call_tool", {"name": name, "arguments": {"text": "a"}})
        cpu, started = loop_s(self.pid), time.perf_counter()
        await self.client.call(*asked)
        self.times.append(1e3 * (time.perf_counter() - started))
        self.cpu += loop_s(self.pid) - cpu


def draw_tools(kind: str, count: int) -> list[int]:
    """Return which tools are called."""
    draw, drawn = random.Random(11), [1]
    while len(drawn) < count:
        drawn.append(
            1 if kind == "again" else draw.choice([each for each in range(1, CALLED + 1) if each != drawn[-1]])
        )
    return drawn


def proxy_of(config: Path, window: int) -> int:
    """Return the process that serves a config: a window's own, or the one that it has joined."""
    found = [pid for pid in processes_of(str(config)) if pid != window]
    return found[0] if found else window


class Manner(NamedTuple):
    """How a proxy is called."""

    policy: str = "frozen"
    call_ms: float = 0.0
    """How long the upstream takes for a call."""
    think_ms: float = 0.0
    """How long the client waits before each call."""
    joined: bool = False
    kinds: Sequence[str] = KINDS
    encoder: str = "none"


def write_configs(place: Path, tasks: int, manner: Manner, takes: Sequence[str]) -> list[Path]:
    """Write the config of a proxy without a model, and of one whose store has one."""
    configs = []
    for name in ("without", "with"):
        folder = place / name
        folder.mkdir()
        made = [{**each, "annotations": {"readOnlyHint": True}} for each in made_up("s0", TOOLS)]
        entry = {**processes.serve_tools(folder, {"s0": made})["s0"], "pin": [f"s0_t{at + 1}" for at in range(CALLED)]}
        entry["args"] = [*entry["args"], *takes]
        own = {"policy": manner.policy, "encoder": manner.encoder, "learn_s": 0, "share": manner.joined}
        configs.append(processes.write_config(folder, {"s0": entry}, **own))
        with open_store(folder / "foretool.sqlite3") as store:
            if name == "with":
                dimension = 0 if manner.encoder == "none" else VECTOR
                model = make_model([f"s0__s0_t{at}" for at in range(1, TOOLS)], tasks, dimension)
                store.artifacts.add("dtdr", model, {"encoders": manner.encoder} if dimension else {}, promote=True)
                store.artifacts.bump_version()
    return configs


async def call_all(served: Sequence[Served], kind: str, calls: int, think_ms: float) -> Json:
    """Call all in turn; return what each kind of call takes. The first is the upstream alone."""
    if kind == "task":
        for each in served[1:]:
            await each.client.call("discover_tools", {"task": TASK})
    for at, tool in enumerate(draw_tools(kind, calls + WARM)):
        if at == WARM:
            for each in served:
                each.times, each.cpu = [], 0.0
        for each in served:
            if think_ms:
                await asyncio.sleep(think_ms / 1e3)
            await each.call(tool, kind)
    base, without, with_model = (quantile(each.times, 0.5) for each in served)
    return {
        f"{kind}: added p50 ms without": without - base, f"{kind}: with": with_model - base,
        f"{kind}: times": (with_model - base) / (without - base),
        f"{kind}: cpu us without": 1e6 * served[1].cpu / calls, f"{kind}: cpu us with": 1e6 * served[2].cpu / calls,
    }  # fmt: skip


async def open_encoder(clients: Sequence[StdioClient], proxies: Sequence[int]) -> None:
    """Search until every proxy has opened its encoder, which happens once all tools are embedded."""
    async with asyncio.timeout(OPENED_S):
        for client, pid in zip(clients, proxies, strict=True):
            while b"onnxruntime" not in Path(f"/proc/{pid}/maps").read_bytes():  # noqa: ASYNC240 (no disk is read)
                await client.call("discover_tools", {"task": TASK})
                await asyncio.sleep(2.0)


async def measure(command: Sequence[str], tasks: int, calls: int, manner: Manner) -> Json:
    """Return the figures of one size of model."""
    found: dict[str, float | str] = {}
    takes = ("--call-ms", str(manner.call_ms))
    with tempfile.TemporaryDirectory(prefix="bench-prediction-") as name:
        configs = write_configs(Path(name), tasks, manner, takes)
        own, environ = [] if manner.joined else ["--alone"], {"FORETOOL_SOCKETS": str(Path(name) / "run")}
        serve = [[*command, "serve", "--config", str(each), *own] for each in configs]
        clients = [await StdioClient.start(each, environ) for each in serve]
        alone = await StdioClient.start(
            [sys.executable, *processes.upstream("s0", "--count", str(TOOLS), *takes)["args"]]
        )
        proxies: list[int] = []
        try:
            await alone.initialize()
            for client in clients:
                await client.first_list()
            proxies = [proxy_of(config, client.pid) for config, client in zip(configs, clients, strict=True)]
            await asyncio.sleep(6.0)  # a proxy looks for models about once a second
            if manner.encoder != "none":
                await open_encoder(clients, proxies)
            for kind in manner.kinds:
                served = [Served(alone, "s0_", alone.pid)]
                served += [Served(client, "s0__s0_", pid) for client, pid in zip(clients, proxies, strict=True)]
                found |= await call_all(served, kind, calls, manner.think_ms)
            for which, pid, client in zip(("without", "with"), proxies, clients, strict=True):
                rss, _ = processes.memory_mib(pid)
                found |= {f"RSS MiB {which}": rss, f"private MiB {which}": processes.private_mib(pid)}
                if pid != client.pid:
                    found[f"window: private MiB {which}"] = processes.private_mib(client.pid)
                    found[f"window: RSS MiB {which}"] = processes.memory_mib(client.pid)[0]
        finally:
            for client in (*clients, alone):
                await client.stop()
            for pid, client in zip(proxies, clients, strict=False):
                if pid != client.pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
    return found


def rows(sizes: Sequence[int], command: Sequence[str], calls: int, manner: Manner) -> Iterator[tuple[int, Json]]:
    """Yield the row of each size."""
    for tasks in sizes:
        yield tasks, asyncio.run(measure(command, tasks, calls, manner))


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.growth.prediction", __doc__)
    parser.add_argument("--tasks", default="100,1000,4000", help="tasks learned from; default %(default)s")
    parser.add_argument("--calls", type=int, default=2000, help="calls of each kind; default %(default)s")
    parser.add_argument("--policy", default="frozen", help="default %(default)s")
    parser.add_argument("--call-ms", type=float, default=0.0, help="how long the upstream takes for a call")
    parser.add_argument("--think-ms", type=float, default=0.0, help="how long the client waits before each call")
    parser.add_argument("--joined", action="store_true", help="measure a window that joins a proxy")
    parser.add_argument("--encoder", choices=("none", "minilm-tools"), default="none", help="default %(default)s")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of calls; default %(default)s")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    sizes = [int(each) for each in arguments.tasks.split(",")]
    command = processes.installed(arguments.foretool)
    kinds = split_names(parser, "--kinds", arguments.kinds, KINDS)
    manner = Manner(arguments.policy, arguments.call_ms, arguments.think_ms, arguments.joined, kinds, arguments.encoder)
    print(tables.table("tasks", list(rows(sizes, command, arguments.calls, manner))))


if __name__ == "__main__":
    main()
