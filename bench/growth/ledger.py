"""Measures a proxy over longer and longer logs: what a call, a session and a hidden call take, and the longest step.

    python -m bench.growth.ledger [--calls 10000,100000,1000000] [--foretool COMMAND]

For each size a log is written with so many calls, a sixth as many discoveries and prompts, and the tools of 19 servers.
A proxy over it then makes a list, runs a hidden call and a search, with pings every few milliseconds, and then 500
hidden calls. `step` is the longest step of the event loop in processor time of its own thread
(`bench/servers/watched.py`), which a busy machine does not change; `gap` is the slowest ping by the clock, which it
changes. `own` is the processor time of the loop's thread meanwhile, in a ping and in the first hidden call. These pings
end after the search; `upkeep` are those of the 70 seconds after it, in which the proxy begins to add up its log.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from bench import processes
from bench.clients.stdio import StdioClient
from bench.growth import tables
from bench.metrics import quantile
from bench.options import add_foretool, make_parser
from foretool.storage.opening import open_store

WATCHED: Final = Path(__file__).parents[1] / "servers" / "watched.py"
SERVERS, TOOLS = 19, 14
CHUNK: Final = 50_000
PING_S: Final = 0.005
CALLS: Final = 500
CALL_S: Final = 120.0
UPKEEP_S: Final = 70.0
"""How long pings go on afterwards; a proxy begins to add up its log a minute after its start."""


def write_log(path: Path, calls: int, tools: Sequence[tuple[str, str]]) -> None:
    """Write so many calls of `tools` (exposed name, upstream), with what led to them, as a year's use leaves them."""
    with open_store(path):
        pass
    draw = random.Random(7)
    now, apart = time.time(), 365 * 86_400 / calls
    with closing(sqlite3.connect(path)) as file:
        for start in range(0, calls, CHUNK):
            numbers = range(start, min(start + CHUNK, calls))
            file.executemany(_CALL, (_call(at, now - (calls - at) * apart, draw, tools) for at in numbers))
            asked = [at for at in numbers if at % 6 == 0]
            for sql in (_DISCOVERY, _PROMPT):
                file.executemany(sql, ((now - (calls - at) * apart, _words(draw)) for at in asked))
            file.executemany(_MISS, ((now - (calls - at) * apart, draw.choice(tools)[0], at + 1) for at in asked[::5]))
            file.commit()


_CALL: Final = (
    "INSERT INTO calls (session, at, tool, upstream, via, hidden, outcome, took_ms, sent, arguments, discovery, handle)"
    " VALUES (?, ?, ?, ?, 'bridge', 1, 'ok', 5.0, 1, '{\"path\":\"string\"}', ?, '')"
)
_DISCOVERY: Final = (
    "INSERT INTO discoveries (session, at, task, names, level, matches, tokens, took_ms, handle, probability)"
    " VALUES ('old', ?, ?, '[]', 'high', '[{\"tool\":\"x\",\"rank\":1,\"score\":1.0,\"parts\":{}}]', 400, 2.0, '', 0.8)"
)
_PROMPT: Final = "INSERT INTO prompts (at, session, cwd, text) VALUES (?, 'old', '', ?)"
_MISS: Final = (
    "INSERT INTO misses (session, at, tool, noticed, cause, rank, of, query, history, exposure, discovery, change,"
    " recovered, turns, tokens, parts, call)"
    " VALUES ('old', ?, ?, 'call', 'rank', 0, 0, '', '[]', 0, 0, '', 'called', 1, 100, '{}', ?)"
)


def _call(at: int, when: float, draw: random.Random, tools: Sequence[tuple[str, str]]) -> tuple[Any, ...]:
    tool, upstream = tools[int(len(tools) * draw.random() ** 2)]
    return f"old{at // 40}", when, tool, upstream, at // 6 + 1 if at % 6 == 0 else 0


def _words(draw: random.Random) -> str:
    return " ".join(draw.choice(("read", "write", "the", "log", "of", "mail", "branch", "file")) for _ in range(8)) + (
        f" {draw.randrange(10_000)}"
    )


async def measure(command: Sequence[str], folder: Path, config: Path, upkeep_s: float) -> tables.Row:
    """Return the figures of one proxy over one log."""
    steps = folder / "steps.jsonl"
    gaps: list[tuple[float, float]] = []
    watched = [sys.executable, "-P", str(WATCHED), str(steps)] if not command else [*command]
    client = await StdioClient.start([*watched, "serve", "--config", str(config), "--alone"])
    try:
        listed_s, _ = await client.first_list()

        async def ping() -> None:
            while True:
                started, worked = time.perf_counter(), processes.loop_cpu_ms(client.pid)
                await client.ask("ping", {}, CALL_S)
                own_ms = processes.loop_cpu_ms(client.pid) - worked
                gaps.append((1e3 * (time.perf_counter() - started), own_ms))
                await asyncio.sleep(PING_S)

        pinging = asyncio.create_task(ping())
        started, worked = time.perf_counter(), processes.loop_cpu_ms(client.pid)
        await client.call("call_tool", {"name": "s1__t3", "arguments": {"text": "a"}}, CALL_S)
        hidden_s, hidden_ms = time.perf_counter() - started, processes.loop_cpu_ms(client.pid) - worked
        started = time.perf_counter()
        await client.call("discover_tools", {"task": "read the log of a branch"}, CALL_S)
        search_s = time.perf_counter() - started
        searched = len(gaps)
        await asyncio.sleep(upkeep_s)
        pinging.cancel()
        await asyncio.gather(pinging, return_exceptions=True)
        times = []
        cpu = processes.cpu_s(client.pid)
        for at in range(CALLS):
            started = time.perf_counter()
            await client.call("call_tool", {"name": f"s{at % SERVERS}__t{at % TOOLS}", "arguments": {"text": "a"}})
            times.append(1e3 * (time.perf_counter() - started))
        cpu = processes.cpu_s(client.pid) - cpu
        rss, _ = processes.memory_mib(client.pid)
    finally:
        await client.stop(60.0)
    longest = max(tables.read_steps(steps), default=(0.0, ""))
    return {
        "warm list s": listed_s,
        "hidden call s": hidden_s,
        "hidden call own ms": hidden_ms,
        "search s": search_s,
        "call p50 ms": quantile(times, 0.5),
        "call cpu ms": 1e3 * cpu / CALLS,
        "gap ms": max(gap for gap, _ in gaps[:searched]),
        "gap own ms": max(own for _, own in gaps[:searched]),
        "upkeep gap ms": max((gap for gap, _ in gaps[searched:]), default=0.0),
        "upkeep gap own ms": max((own for _, own in gaps[searched:]), default=0.0),
        "step ms": longest[0],
        "in": longest[1],
        "RSS MiB": rss,
    }


def rows(
    sizes: Sequence[int], command: Sequence[str], say: Callable[[str], None], upkeep_s: float = UPKEEP_S
) -> Iterator[tuple[int, tables.Row]]:
    """Yield the row of each size, the smallest first."""
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="bench-ledger-") as place:
            folder = Path(place)
            names = {f"s{server}": [f"t{tool}" for tool in range(TOOLS)] for server in range(SERVERS)}
            catalogs = {server: [_tool(name) for name in tools] for server, tools in names.items()}
            config = processes.write_config(folder, processes.serve_tools(folder, catalogs), encoder="none")
            tools = [(f"{server}__{name}", server) for server, every in names.items() for name in every]
            started = time.perf_counter()
            path = folder / "foretool.sqlite3"
            write_log(path, size, tools)
            say(f"wrote {size:,} calls in {time.perf_counter() - started:.0f} s")
            asyncio.run(_learn_tools(command, config))
            with closing(sqlite3.connect(path)) as file:
                file.execute("DELETE FROM working_sets")
                file.commit()
            yield (
                size,
                {"file MB": path.stat().st_size / 1e6, **asyncio.run(measure(command, folder, config, upkeep_s))},
            )


async def _learn_tools(command: Sequence[str], config: Path) -> None:
    """Let a proxy learn the tools of all servers, so that the measured one knows them."""
    watched = [sys.executable, "-P", str(WATCHED), str(config.with_name("first.jsonl"))] if not command else [*command]
    client = await StdioClient.start([*watched, "serve", "--config", str(config), "--alone"])
    try:
        await client.first_list()
        await client.call("discover_tools", {"task": "read"}, CALL_S)
        await asyncio.sleep(2.0)
    finally:
        await client.stop(60.0)


def _tool(name: str) -> dict[str, Any]:
    text = f"Does what {name} does with a file, a branch or the mail, and says what came of it."
    schema = {"type": "object", "properties": {"text": {"type": "string", "description": "what to write"}}}
    return {"name": name, "description": text, "inputSchema": schema, "annotations": {"readOnlyHint": True}}


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.growth.ledger", __doc__)
    parser.add_argument("--calls", default="10000,100000,1000000", help="sizes of the log; default %(default)s")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    found = []
    for size, row in rows(
        [int(each) for each in arguments.calls.split(",")], (arguments.foretool or "").split(), tables.say
    ):
        found.append((size, row))
        tables.say(json.dumps({"calls": size, **row}))
    if not arguments.json:
        print(tables.table("calls", found))


if __name__ == "__main__":
    main()
