"""Measures what pinned definitions add to a warm start.

    python -m bench.trust.pinning FOLDER [--repeat 15] [--foretool COMMAND]

FOLDER holds the `tools/list` of real servers, one file each. Two stores know all of their tools. In one they are
approved, in the other no approval is kept. Each is started `--repeat` times, in turns, and nothing of the servers is.
`list_ms` is the time from spawn to the answer of `tools/list`, `cpu_ms` the processor time of the proxy until then (of
Linux' scheduler); their `difference_ms` is the median of the differences in pairs. `first_sight_ms` is what it took to
approve everything once, `again_ms` what it takes to compare lists that have not changed, of all servers together. The
output is one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import processes
from bench.clients.messages import Json
from bench.clients.stdio import StdioClient
from bench.datasets import read_catalogs
from bench.options import add_foretool, make_parser
from foretool.server.catalog.catalog import Catalog, Gate
from foretool.server.config import loader
from foretool.server.config.loader import Config, LiveConfig
from foretool.server.config.servers import fingerprint
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.trust.gatekeeper import Gatekeeper, Listing
from foretool.storage.opening import open_store
from foretool.storage.records import ToolId, UpstreamRecord
from foretool.storage.stores import Store


def fill(config: Config, listed: dict[str, list[Raw]], *, pinned: bool) -> Json:
    """Write the tools of all servers into the storage of a config, and their approvals if they are `pinned`."""
    with open_store(config.storage) as store:

        def keep(names: Mapping[ToolId, tuple[str, str]]) -> None:
            store.catalog.save_exposed_names(names)

        catalog = Catalog(list(config.servers.values()), on_fixed=keep)
        gatekeeper = Gatekeeper(lambda: store.approvals, LiveConfig(config))
        first = take_lists(catalog, gatekeeper, listed)
        again = take_lists(catalog, gatekeeper, listed)
        catalog.fix_names()
        for name in listed:
            save(store, config, catalog, name)
            if not pinned:
                store.approvals.forget(name)
        return {"tools": len(catalog), "servers": len(listed), "first_sight_ms": first, "again_ms": again}


def take_lists(catalog: Catalog, gatekeeper: Gatekeeper, listed: dict[str, list[Raw]]) -> float:
    """Take every server's list into the catalog. Returns the milliseconds that the gatekeeper took."""
    took = 0.0

    def gate_of(name: str) -> Gate:
        def gate(tools: Sequence[object], text: str) -> tuple[Sequence[object], str]:
            nonlocal took
            started = time.perf_counter()
            admitted = gatekeeper.admit(name, Listing(tools, text), Listing(()))  # type: ignore[arg-type]
            took += 1000 * (time.perf_counter() - started)
            return admitted.tools, admitted.text

        return gate  # type: ignore[return-value]

    for name, definitions in listed.items():
        catalog.replace(name, definitions, "", gate_of(name))
    return round(took, 1)


def save(store: Store, config: Config, catalog: Catalog, name: str) -> None:
    key = fingerprint(config.servers[name])
    record = UpstreamRecord(name, key, "legacy", "", "", '{"tools": {}}', time.time())
    store.catalog.save_upstream(record, catalog.of(name))


class Start(NamedTuple):
    """One start, until the first list."""

    list_ms: float
    cpu_ms: float


async def start(command: Sequence[str], path: Path) -> Start:
    async with StdioClient.serve(command, path) as client:
        await client.initialize()
        await client.tools()
        took = 1000 * client.age_s
        return Start(took, used_ms(client.pid))


def used_ms(pid: int) -> float:
    """The processor time of a process; 0 where the system does not tell."""
    stat = Path(f"/proc/{pid}/schedstat")
    return int(stat.read_text().split()[0]) / 1e6 if stat.exists() else 0.0


async def start_in_turns(command: Sequence[str], pinned: Path, plain: Path, repeat: int) -> list[tuple[Start, Start]]:
    """Start both proxies in turns, after one start each that does not count."""
    pairs = []
    for at in range(repeat + 1):
        order = (pinned, plain) if at % 2 else (plain, pinned)
        times = {path: await start(command, path) for path in order}
        pairs.append((times[pinned], times[plain]))
    return pairs[1:]


def measure(command: Sequence[str], catalogs: Sequence[tuple[str, Sequence[Json]]], repeat: int) -> Json:
    listed = {f"s{at}": [jsonrpc.raw(tool) for tool in tools] for at, (_, tools) in enumerate(catalogs)}
    with tempfile.TemporaryDirectory(prefix="bench-pinning-") as place:
        paths: list[Path] = []
        found: Json = {}
        for kind in ("pinned", "plain"):
            folder = Path(place) / kind
            folder.mkdir()
            paths.append(processes.write_config(folder, {name: {"command": "true"} for name in listed}, encoder="none"))
            told = fill(loader.load(paths[-1]), listed, pinned=kind == "pinned")
            found = found or told
        pairs = asyncio.run(start_in_turns(command, paths[0], paths[1], repeat))
    return {
        **found,
        "repeat": repeat,
        **{
            field: compare([(pinned[at], plain[at]) for pinned, plain in pairs])
            for at, field in enumerate(Start._fields)
        },
        "load": processes.load_average(),
    }


def compare(pairs: Sequence[tuple[float, float]]) -> Json:
    pinned, plain = zip(*pairs, strict=True)
    differences = [one - other for one, other in pairs]
    return {
        "pinned": round(median(pinned), 1),
        "plain": round(median(plain), 1),
        "difference_ms": round(median(differences), 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser("bench.trust.pinning", __doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeat", type=int, default=15)
    add_foretool(parser)
    options = parser.parse_args(arguments)
    print(json.dumps(measure(processes.installed(options.foretool), read_catalogs(options.folder), options.repeat)))


if __name__ == "__main__":
    main()
