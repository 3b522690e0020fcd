"""What it takes to bring the dependency graph (TGR) up to tens of thousands of tools, where a search waits for it.

    python -m bench.papers.tgr_alignment CATALOGS [--sizes 5000,44000] [--json]

CATALOGS: a folder of `tools/list` answers of real servers; sizes beyond them are reached by varied copies, as in
`bench.proxy.many_tools`. The graph is that of all schemas. A row has, for the models that a proxy serves:

    align cpu ms    processor time of the alignment alone, the best of five
    align MiB       the most memory that the alignment held (tracemalloc, a run of its own)
    raise cpu ms    processor time of lifting what the best 200 tools of a search need, the best of five
    of the matrix   the memory of the alignment as a share of one dense matrix of tools by tools, 4 bytes each

The published form (eq. 3) needs that matrix; it is not built here.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.datasets import read_catalogs, tool_of
from bench.options import add_json, make_parser
from bench.proxy.many_tools import is_servable, varied
from bench.reports import Row, print_row
from foretool.learning.rankers.tgr import Tgr, dumps
from foretool.retrieval.document import fields
from foretool.retrieval.graph import schema_edges
from foretool.retrieval.rankers.learned import LearnedModels
from foretool.storage.records import Tool

FOUND = 200
"""Tools that a search has found, which may need others."""
TIMES = 5


def catalogue(catalogs: Path, size: int) -> list[Tool]:
    """Real tools, and varied copies of them on copies of their servers."""
    originals = [(server, tool) for server, tools in read_catalogs(catalogs) for tool in tools if is_servable(tool)]
    made = {}
    for _, server, tool in varied(originals, size):
        each = tool_of(server, tool)
        made[each.id] = each
    return list(made.values())


def measure(tools: Sequence[Tool]) -> Row:
    """The figures of one size."""
    model = dumps(schema_edges([fields(tool) for tool in tools]))
    ids = [tool.id for tool in tools]
    served = LearnedModels({"tgr": Tgr.loads(model)})
    graph = served.graph
    assert graph is not None
    tracemalloc.start()
    served.align(ids, (0,), None)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    found = {tool: 1.0 for tool in ids[:: max(len(ids) // FOUND, 1)]}
    return {
        "set": f"{len(tools)} tools", "method": "tgr as served", "edges": len(list(graph)),
        "model MiB": round(len(model) / 2**20, 2),
        "align cpu ms": best_ms(lambda: served.align(ids, (1,), None)),
        "align MiB": round(held / 2**20, 3),
        "of the matrix": round(held / (4 * len(tools) ** 2), 6),
        "raise cpu ms": best_ms(lambda: graph.raised(found)),
    }  # fmt: skip


def best_ms(work: Callable[[], object]) -> float:
    """The processor milliseconds of the quickest of several runs."""
    spent = []
    for _ in range(TIMES):
        started = time.process_time()
        work()
        spent.append(1e3 * (time.process_time() - started))
    return round(min(spent), 3)


def rows(catalogs: Path, sizes: Sequence[int]) -> Iterator[Row]:
    """A row for each size."""
    for size in sizes:
        yield measure(catalogue(catalogs, size))


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print a row for each size."""
    parser = make_parser("bench.papers.tgr_alignment", __doc__)
    parser.add_argument("catalogs", type=Path, help="the folder of catalogues of real servers")
    parser.add_argument("--sizes", default="5000,44000", help="default %(default)s")
    add_json(parser)
    arguments = parser.parse_args(argv)
    for row in rows(arguments.catalogs, [int(size) for size in arguments.sizes.split(",")]):
        print_row(row, arguments.json, width=16)


if __name__ == "__main__":
    main()
