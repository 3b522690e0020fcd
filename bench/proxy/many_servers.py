"""Measures one proxy in front of many real servers: start, list, search and first calls.

    python -m bench.proxy.many_servers FOLDER [--limit N] [--add SET] [--queries FILE]

FOLDER holds one JSON file per server with its `tools/list` (`server`, `tools`). Each file becomes a stand-in upstream
that serves these tools. `--add` takes the `tools.jsonl` of a data set as more servers. Three proxies run one after the
other on the same storage: a cold start with the full list; a warm start with the full list; a warm start under the
policy `frozen` with searches through `discover_tools`, then one call to every server, none of which runs before its
call. The output is one JSON object; `no_proxy` has the tokens of the upstreams' own lists, and `saved` compares.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bench import processes
from bench.clients.messages import Failed, Json, said
from bench.clients.stdio import StdioClient
from bench.datasets import opening_words, read_catalogs, read_rows
from bench.metrics import quantile
from bench.options import add_foretool, make_parser
from bench.proxy.discovery import CALL_S, measure_searches
from foretool.retrieval import tokens

Catalogs = Mapping[str, list[Json]]

READY_S = 180.0
"""The longest wait for the tools of all upstreams; a process takes about 40 ms to start."""
IN_FLIGHT = 8
"""First calls that run at once; each starts its upstream."""
SETTLE_S = 5.0
"""Waited for the background work after a start: definitions are counted and kept, the index is built."""
OWN = ("discover_tools", "call_tool", "call_tool_write")


def read_set(folder: Path) -> dict[str, list[Json]]:
    """The tools of a data set, by server."""
    found: dict[str, list[Json]] = {}
    for row in read_rows(folder / "tools.jsonl"):
        schema = row.get("input_schema") or {"type": "object"}
        tool = {"name": row["name"], "description": row.get("description") or "", "inputSchema": schema}
        found.setdefault(f"{folder.name}-{row['server']}", []).append(tool)
    return found


async def all_listed(client: StdioClient, wanted: int) -> tuple[float, list[Json]]:
    """Seconds from the start until the full list has `wanted` tools, or as many as it ever gets, and the list."""
    listed: list[Json] = []
    while len(listed) < wanted + len(OWN) and client.age_s < READY_S:
        await asyncio.sleep(0.5)
        listed = await client.tools()
    return round(client.age_s, 1), listed


async def settled(client: StdioClient) -> None:
    """Wait until the background work is over, also that of the process which counts tokens."""
    await asyncio.sleep(SETTLE_S)
    while processes.children(client.pid) and client.age_s < READY_S:
        await asyncio.sleep(0.5)


def cost(listed: Sequence[Json]) -> int:
    """Tokens of a list as it is sent, counted tool by tool, because the tokenizer refuses texts of megabytes."""
    return sum(
        tokens.count_tokens([json.dumps(tool, ensure_ascii=False, separators=(",", ":")) + "," for tool in listed])
    )


def exposed_names(command: Sequence[str], path: Path) -> dict[str, list[str]]:
    """The exposed names of each server's tools."""
    shown = subprocess.run([*command, "tools", "--json", "--config", str(path)], check=True, capture_output=True)
    found: dict[str, list[str]] = {}
    for row in json.loads(shown.stdout)["tools"]:
        found.setdefault(row["upstream"], []).append(row["name"])
    return found


async def call_each(client: StdioClient, names: Mapping[str, Sequence[str]]) -> Json:
    """Call one tool of every server, a few at once; each answer must be its own server's."""
    turn = asyncio.Semaphore(IN_FLIGHT)
    times: list[float] = []
    wrong: list[str] = []

    async def call(server: str, name: str) -> None:
        async with turn:
            started = time.perf_counter()
            try:
                got = json.loads(said(await client.call(name, {"text": f"to {server}"}, CALL_S)))
            except (Failed, TimeoutError) as error:
                wrong.append(f"{server}: {error!r}"[:200])
                return
            times.append(time.perf_counter() - started)
            if (got["server"], got["arguments"]) != (server, {"text": f"to {server}"}):
                wrong.append(f"{server}: answered by {got['server']}")

    await asyncio.gather(*(call(server, exposed[0]) for server, exposed in names.items()))
    shares = {name: round(quantile(times, share), 3) for name, share in (("p50", 0.5), ("p95", 0.95))}
    return {"servers": len(names), "answered": len(times), "wrong": wrong, "start_and_call_s": shares}


async def replay(command: Sequence[str], folder: Path, catalogs: Catalogs, asked: Mapping[str, Sequence[str]]) -> Json:
    """The whole measurement; `asked`: lists of queries by their names."""
    total = sum(len(tools) for tools in catalogs.values())
    entries = processes.serve_tools(folder, catalogs)
    found: Json = {"test": "replay", "servers": len(catalogs), "tools": total}
    path = processes.write_config(folder, entries, policy="full", encoder="none")
    async with StdioClient.serve(command, path) as client:
        seconds, listed = await client.first_list()
        found["cold"] = {"list_s": seconds, "listed": len(listed)}
        seconds, listed = await all_listed(client, total)
        found["cold"] |= {
            "all_known_s": seconds,
            "listed_then": len(listed),
            "rss_mib": processes.memory_mib(client.pid)[0],
        }
        found["missing"] = total + len(OWN) - len(listed)
        await asyncio.sleep(SETTLE_S)
    async with StdioClient.serve(command, path) as client:
        seconds, listed = await client.first_list()
        found["full"] = {"warm_list_s": seconds, "listed": len(listed), "list_tokens": cost(listed)}
    upstream_tools = [tool for tools in catalogs.values() for tool in tools]
    found["no_proxy"] = {"listed": len(upstream_tools), "list_tokens": cost(upstream_tools)}
    path = processes.write_config(folder, entries, policy="frozen", encoder="none")
    async with StdioClient.serve(command, path) as client:
        seconds, listed = await client.first_list()
        own = {tool["name"]: cost([tool]) for tool in listed if tool["name"] in OWN}
        found["frozen"] = {
            "warm_list_s": seconds, "listed": len(listed), "list_tokens": cost(listed), "own_tokens": own,
            **await measure_searches(client, asked, settled),
        }  # fmt: skip
        found["called"] = await call_each(client, exposed_names(command, path))
        found["called"]["rss_mib"] = processes.memory_mib(client.pid)[0]
    saved = 1 - found["frozen"]["list_tokens"] / found["no_proxy"]["list_tokens"]
    return {**found, "saved": round(saved, 5), "load": processes.load_average()}


def queries_of(catalogs: Catalogs, files: Iterable[Path]) -> dict[str, list[str]]:
    """Lists of queries: the words of every tenth tool, and the queries of the files."""
    every_tenth = [tool for tools in catalogs.values() for tool in tools][::10]
    asked = {"own_words": opening_words(every_tenth)}
    return asked | {path.parent.name: [row["query"] for row in read_rows(path)] for path in files}


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and replay."""
    parser = make_parser("bench.proxy.many_servers", __doc__)
    parser.add_argument("folder", type=Path, help="catalogues, one file a server")
    parser.add_argument("--limit", type=int, help="only the first so many servers")
    parser.add_argument("--add", type=Path, action="append", default=[], help="a data set whose servers come on top")
    parser.add_argument("--queries", type=Path, action="append", default=[], help="lines of JSON with `query`")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    catalogs = dict(read_catalogs(arguments.folder, arguments.limit))
    for folder in arguments.add:
        catalogs |= read_set(folder)
    command = processes.installed(arguments.foretool)
    with tempfile.TemporaryDirectory(prefix="bench-replay-") as place:
        found = asyncio.run(replay(command, Path(place), catalogs, queries_of(catalogs, arguments.queries)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
