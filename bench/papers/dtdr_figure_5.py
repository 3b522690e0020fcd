"""How much of the history DTDR-C reads, and how many clusters it has: figure 5 (b, c) of the paper.

    python -m bench.papers.dtdr_figure_5 DATA [--sets bfcl_multi_turn] [--cache FOLDER] [--json]

As `bench.papers dtdr` asks the published form: MiniLM untrained, gold histories of the turn, the seed 7. `last` is how
many of the latest calls choose the place in the graph, `a cluster` how many demonstrations there are for each cluster
(`all`: one cluster). The paper takes 3 and 10.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.kept_encoder import open_kept, open_vectors
from bench.options import add_json, make_parser
from bench.papers.dtdr import SEED, World, asked_vectors, figures, judged, read, without_earlier
from bench.reports import Row, print_row
from foretool.retrieval import encoders
from foretool.retrieval.papers.dtdr import DEMONSTRATIONS_A_CLUSTER, LAST, DtdrC, fit_c

LASTS = (1, 2, 3, 4, 6)
A_CLUSTER = (2, 5, 10, 20, 50, 0)
"""0: one cluster for all."""


def scored(world: World, model: DtdrC) -> Row:
    """How well this model ranks the next calls."""
    known = asked_vectors(world, world.frozen)
    return figures(judged(world.asked, world.end, lambda each, step: model.after(known[each.task], step.history)))


def rows(world: World) -> Iterator[Row]:
    """The rows of one set."""
    world = world._replace(train=without_earlier(world.train), asked=without_earlier(world.asked))
    assert world.frozen is not None
    vectors = world.frozen([each.task for each in world.train])
    cells = [(last, DEMONSTRATIONS_A_CLUSTER) for last in LASTS]
    cells += [(LAST, size) for size in A_CLUSTER if size != DEMONSTRATIONS_A_CLUSTER]
    for last, size in cells:
        model = fit_c(vectors, world.train, world.end, SEED, last=last, a_cluster=size or len(world.train))
        told = f"last {last}, a cluster {size or 'all'}"
        yield {"set": world.name, "method": f"DTDR-C: {told}", "clusters": len(model.graphs), **scored(world, model)}


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print a row for each cell."""
    parser = make_parser("bench.papers.dtdr_figure_5", __doc__)
    parser.add_argument("data", type=Path, help="the folder of data sets")
    parser.add_argument("--sets", default="bfcl_multi_turn,taskbench_multimedia,ultratool", help="default %(default)s")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="keeps embeddings between runs")
    add_json(parser)
    arguments = parser.parse_args(argv)
    with open_vectors(arguments.cache) as vectors:
        weights = encoders.find("auto")
        untrained = open_kept(weights[0].untrained, arguments.cache, vectors)
        for name in arguments.sets.split(","):
            world = read(arguments.data / name, "dev.jsonl", [], untrained)
            for row in rows(world):
                print_row(row, arguments.json, width=44)


if __name__ == "__main__":
    main()
