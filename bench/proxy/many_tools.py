"""Measures one proxy with tens of thousands of tools: start, list, search and memory.

    python -m bench.proxy.many_tools FOLDER [--tools 500,5000,44000] [--encoder none,auto]

FOLDER holds the `tools/list` of real servers, one file each. When more tools are wanted than these servers have, tools
repeat under other names and with some of their words exchanged, so that no two are the same. Stand-in upstreams serve
them, `--per-server` tools each. For every size and encoder, new proxies measure: the cold start until the last tool is
known; after a warm start the first list, the first search, searches through `discover_tools` one after the other, and
the memory before and after; after another warm start a search right behind the first list, with pings meanwhile. The
load average says how quiet the machine was; `cpu_ms` is the processor time of a search, whatever else runs.

With an encoder, tools are embedded before the proxy starts, and kept in `--vectors`; a run in which no search was
ranked by meaning ends with an error. A repeated tool gets the vector of
its original with noise, which costs a search as much as a real vector. The output is one JSON object per line.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from bench import processes
from bench.clients.messages import Failed, Json
from bench.clients.stdio import StdioClient
from bench.datasets import opening_words, read_catalogs, read_rows, tool_of
from bench.kept_encoder import open_kept
from bench.metrics import quantile
from bench.options import add_foretool, make_parser
from bench.proxy.discovery import CALL_S, discover, measure_searches
from foretool.retrieval import encoders
from foretool.retrieval.corpus import Corpus, digest
from foretool.retrieval.document import embedded_text
from foretool.retrieval.known_tools import shipped_wordings
from foretool.storage.opening import open_store

EXCHANGED = 0.15
"""The share of the words of a repeated tool that are exchanged."""
NOISE = 0.35
"""The length of the noise that is added to a vector of length 1."""
READER = Corpus(shipped=shipped_wordings)
SEARCHES = 300
READY_S = 900.0
SETTLE_S = 5.0
PING_S = 0.005


def is_servable(tool: Json) -> bool:
    """Return whether a proxy carries a tool: it drops those that run only as a task, and would never know them all."""
    return (tool.get("execution") or {}).get("taskSupport") != "required"


def varied(tools: Sequence[tuple[str, Json]], size: int) -> Iterator[tuple[int, str, Json]]:
    """`size` tools: the number of the original, the server, and the definition of each."""
    draw = random.Random(7)
    words = [word for _, tool in tools for word in str(tool.get("description") or "").split()]
    for at in range(size):
        copy, original = divmod(at, len(tools))
        server, tool = tools[original]
        if not copy:
            yield original, server, tool
            continue
        told = str(tool.get("description") or "").split()
        other = [draw.choice(words) if draw.random() < EXCHANGED else word for word in told]
        name = f"{tool['name']}_{draw.choice(words)[:12]}_{copy}"
        name = "".join(letter if letter.isalnum() else "_" for letter in name)[:64]
        yield original, f"{server}-{copy}", {**tool, "name": name, "description": " ".join(other)}


def upstreams(tools: Sequence[tuple[int, str, Json]], per_server: int) -> dict[str, list[tuple[int, Json]]]:
    """By upstream, `per_server` tools each: the number of the original and the definition; names are unique in each."""
    found: dict[str, list[tuple[int, Json]]] = {}
    rest = iter(tools)
    while part := list(islice(rest, per_server)):
        name = f"s{len(found)}"
        seen: dict[str, Json] = {}
        found[name] = []
        for original, _, tool in part:
            unique = tool["name"] if tool["name"] not in seen else f"{tool['name'][:56]}_{len(seen)}"
            seen[unique] = tool
            found[name].append((original, {**tool, "name": unique}))
    return found


def embed(
    weights: encoders.Weights,
    originals: Sequence[tuple[str, Json]],
    served: Mapping[str, list[tuple[int, Json]]],
    folder: Path,
    kept: Path | None,
) -> Json:
    """Write the vectors of all tools into the proxy's storage, and prepare the model as the proxy's worker does."""
    import numpy as np

    texts: dict[bytes, tuple[int, bool]] = {}
    real: dict[int, str] = {}
    for name, tools in served.items():
        for original, tool in tools:
            texts[digest(said_by(name, tool))] = (original, original in real)
            # With the server's real name, as in other benchmarks, which may have embedded the text already.
            real.setdefault(original, said_by(*originals[original]))
    started = time.perf_counter()
    with open_store(kept or ":memory:") as cache:
        encoder = open_kept(weights, cache.vectors)
        known = dict(zip(real, encoder.documents(list(real.values())), strict=True))
    seconds = time.perf_counter() - started
    draw = np.random.default_rng(7)
    with open_store(folder / "foretool.sqlite3") as store:
        for start in range(0, len(texts), 1000):
            rows = {}
            for key, (original, is_copy) in islice(texts.items(), start, start + 1000):
                vector = known[original]
                if is_copy:
                    vector = vector + draw.standard_normal(len(vector)).astype(np.float32) * NOISE / len(vector) ** 0.5
                rows[key] = (vector / np.linalg.norm(vector)).astype(np.float32).tobytes()
            store.vectors.save(weights.key, rows)
    return {"encoder": weights.name, "embedded": len(real), "embed_s": round(seconds, 1), "vectors": len(texts)}


def said_by(server: str, tool: Json) -> str:
    """What encoders read of a tool, with the wordings that come with foretool."""
    return embedded_text(READER.read(tool_of(server, tool))[0])


async def until_known(client: StdioClient, path: Path, wanted: int) -> None:
    """Wait until the store has all tools. Raises `Failed`."""
    known = 0
    while client.age_s < READY_S:
        await asyncio.sleep(0.5)
        with open_store(path) as store:
            known = store.statistics().tools
        if known >= wanted:
            return
    raise Failed(f"{known} of {wanted} tools were known after {READY_S:.0f} s")


async def measure(command: Sequence[str], path: Path, wanted: int, asked: Mapping[str, list[str]]) -> Json:
    """The figures of a cold start, a warm one, and a hurried one."""
    async with StdioClient.serve(command, path) as client:
        await client.initialize()
        await until_known(client, path.with_name("foretool.sqlite3"), wanted)
        found: Json = {"cold_all_known_s": round(client.age_s, 1), "cold_rss_mib": processes.memory_mib(client.pid)[0]}
        await settled(client)
    async with StdioClient.serve(command, path) as client:
        seconds, listed = await client.first_list()
        await settled(client)
        searches = await measure_searches(client, asked, settled)
    found |= {"warm_list_s": seconds, "listed": len(listed), **searches}
    return found | {"hurried": await search_hurriedly(command, path, next(iter(asked.values()))[0])}


async def settled(client: StdioClient) -> None:
    """Wait for the background work."""
    await asyncio.sleep(SETTLE_S)


async def search_hurriedly(command: Sequence[str], path: Path, task: str) -> Json:
    """Searches right after the first list of a warm start, while the index of words is built, until no tool is missing;
    and the times of a `ping` every few milliseconds meanwhile."""
    times: list[float] = []
    async with StdioClient.serve(command, path) as client:
        await client.first_list()

        async def ping() -> None:
            while True:
                started = time.perf_counter()
                await client.ask("ping", {}, CALL_S)
                times.append(1e3 * (time.perf_counter() - started))
                await asyncio.sleep(PING_S)

        pinging = asyncio.create_task(ping())
        started, first, is_short = time.perf_counter(), 0.0, True
        while is_short and time.perf_counter() - started < READY_S:
            found = await discover(client, task)
            first = first or time.perf_counter() - started
            is_short = "not searched yet" in found["structuredContent"]["advice"]
        whole = time.perf_counter() - started
        pinging.cancel()
        await asyncio.gather(pinging, return_exceptions=True)
    pings = {f"ping_p{share:g}_ms": round(quantile(times, share / 100), 1) for share in (50, 99, 100) if times}
    return {"search_after_list_s": round(first, 2), "all_searched_s": round(whole, 2), **pings}


def scale(command: Sequence[str], originals: Sequence[tuple[str, Json]], size: int, encoder: str, more: Any) -> Json:
    """The row of one size under one encoder setting."""
    tools = list(varied(originals, size))
    served = upstreams(tools, more.per_server)
    spread = tools[:: max(len(tools) // SEARCHES, 1)][:SEARCHES]
    asked = {"own_words": opening_words(tool for _, _, tool in spread)}
    asked |= {path.parent.name: [row["query"] for row in read_rows(path)] for path in more.queries}
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as place:
        folder = Path(place)
        embedding = [embed(each, originals, served, folder, more.vectors) for each in encoders.resolve_weights(encoder)]
        catalogs = {name: [tool for _, tool in theirs] for name, theirs in served.items()}
        entries = processes.serve_tools(folder, catalogs)
        path = processes.write_config(folder, entries, policy="frozen", encoder=encoder)
        found = asyncio.run(measure(command, path, size, asked))
        size_mib = round((folder / "foretool.sqlite3").stat().st_size / 2**20, 1)
    if encoder != "none" and not any(each["with_matches_by_meaning"] for each in found["search"].values()):
        raise SystemExit(f"bench.proxy.many_tools: no search of {size} tools was ranked by meaning with {encoder}")
    head = {"test": "scale", "tools": size, "servers": len(served), "encoder": encoder, "embedding": embedding}
    return {**head, **found, "storage_mib": size_mib, "load": processes.load_average()}


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.proxy.many_tools", __doc__)
    parser.add_argument("folder", type=Path, help="catalogues, one file a server")
    parser.add_argument("--tools", default="500,5000,44000", help="sizes, comma-separated; default %(default)s")
    parser.add_argument("--encoder", default="none,auto", help="settings, comma-separated; default %(default)s")
    parser.add_argument("--per-server", type=int, default=250, help="tools an upstream; default %(default)s")
    parser.add_argument("--queries", type=Path, action="append", default=[], help="lines of JSON with `query`")
    parser.add_argument("--vectors", type=Path, help="SQLite file that keeps embeddings between runs")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    command = processes.installed(arguments.foretool)
    originals = [
        (server, tool) for server, tools in read_catalogs(arguments.folder) for tool in tools if is_servable(tool)
    ]
    for size in map(int, arguments.tools.split(",")):
        for encoder in arguments.encoder.split(","):
            print(json.dumps(scale(command, originals, size, encoder, arguments)), flush=True)


if __name__ == "__main__":
    main()
