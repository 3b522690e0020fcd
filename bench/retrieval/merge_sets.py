"""Merges data sets into a big one: `python -m bench.retrieval.merge_sets OUT.json FILE... --pool CATALOGS --size 5000`.

Each FILE is `{"servers": {name: [tool, ...]}, "queries": [{"query", "gold"}]}`, as `bench.retrieval.ranking` reads it.
Tools of the real servers in CATALOGS fill the set up to `--size`, server by server in the order of their names. Where
several tools have one name the first stays, because gold is given by name. Servers named b00, b01, ... are slices of a
list and mean nothing: their tools go under no server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.datasets import Json, read_catalogs
from bench.options import make_parser

_SLICE = re.compile(r"b\d\d")


def tools_of(paths: Sequence[Path], pool: Path | None) -> Iterator[tuple[str, Json]]:
    """Server and tool: those of the files first, then those of the pool."""
    for path in paths:
        for server, tools in json.loads(path.read_text("utf-8"))["servers"].items():
            yield from (("" if _SLICE.fullmatch(server) else server, tool) for tool in tools)
    for server, tools in read_catalogs(pool) if pool else ():
        yield from ((server, tool) for tool in tools)


def merge_sets(paths: Sequence[Path], pool: Path | None, size: int, each: int | None) -> Json:
    """The big set, of at most `size` tools and `each` queries per file."""
    servers: dict[str, list[Json]] = {}
    names: set[str] = set()
    for server, tool in tools_of(paths, pool):
        if tool["name"] not in names and len(names) < size:
            names.add(tool["name"])
            servers.setdefault(server, []).append(tool)
    read = (json.loads(path.read_text("utf-8"))["queries"] for path in paths)
    return {"servers": servers, "queries": [query for queries in read for query in queries[:each]]}


def main(argv: Sequence[str] | None = None) -> None:
    """Write the big set, and print what is in it."""
    parser = make_parser("bench.retrieval.merge_sets", __doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--pool", type=Path, help="folder of server catalogs")
    parser.add_argument("--size", type=int, default=5000, help="tools in all; default %(default)s")
    parser.add_argument("--each", type=int, help="only the first so many queries of each file")
    arguments = parser.parse_args(argv)
    found = merge_sets(arguments.files, arguments.pool, arguments.size, arguments.each)
    arguments.out.write_text(json.dumps(found), "utf-8")
    tools = sum(map(len, found["servers"].values()))
    print(f"{arguments.out}: {tools} tools of {len(found['servers'])} servers, {len(found['queries'])} queries")


if __name__ == "__main__":
    main()
