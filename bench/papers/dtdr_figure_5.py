"""Figure 5 of DTDR: how many demonstrations there are (a), how much of the history is read (b), how many clusters (c).

    python -m bench.papers.dtdr_figure_5 DATA [--sets bfcl_multi_turn] [--parts a,b,c] [--cache FOLDER] [--json]

As `bench.papers dtdr` asks the published forms: MiniLM untrained, gold histories of the turn, the seed 7. DTDR-C and
DTDR-L have parts a and b, DTDR-C alone has clusters.

    demonstrations   how many of the training part are fitted on, the mean of three draws (seeds 0, 1, 2)
    last             how many of the latest calls choose the place in the graph (DTDR-C), or stand behind the task
                     (DTDR-L, which reads all of them where `last` is `all`)
    a cluster        how many demonstrations there are for each cluster (`all`: one cluster)

The paper takes l = 3 and 10 demonstrations a cluster.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from bench.options import add_json, make_parser, split_names
from bench.papers.__main__ import with_cost
from bench.papers.dtdr import (
    SEED,
    Predict,
    World,
    asked_vectors,
    figures,
    judged,
    published_c,
    published_l,
    without_earlier,
    worlds,
)
from bench.papers.published.dtdr import DEMONSTRATIONS_A_CLUSTER, LAST, DtdrC, fit_c
from bench.reports import Row, print_row

PARTS = ("a", "b", "c")
DEMONSTRATIONS = (25, 50, 100, 200, 400, 800, 1600)
DRAWS = (0, 1, 2)
"""Seeds of the draws of demonstrations."""
LASTS = (1, 2, 3, 4, 6)
LASTS_L = (0, 1, 2, 3, None)
"""None: all calls."""
A_CLUSTER = (2, 5, 10, 20, 50, 0)
"""0: one cluster for all."""
FORMS: dict[str, Callable[[World], Predict]] = {"DTDR-C": published_c, "DTDR-L": published_l}


def scored(world: World, model: DtdrC) -> Row:
    """How well this model ranks the next calls."""
    known = asked_vectors(world, world.frozen)
    return figures(judged(world.asked, world.end, lambda each, step: model.after(known[each.task], step.history)))


def rows(world: World, parts: Sequence[str] = PARTS) -> Iterator[Row]:
    """The rows of one set."""
    world = world._replace(train=without_earlier(world.train), asked=without_earlier(world.asked))
    for part, of in (("a", by_demonstrations), ("b", by_history), ("c", by_clusters)):
        if part in parts:
            yield from ({"set": world.name, "part": part, **row} for row in of(world))


def by_demonstrations(world: World) -> Iterator[Row]:
    """Both forms with fewer demonstrations: the mean over the draws, and each draw."""
    for size in (*(each for each in DEMONSTRATIONS if each < len(world.train)), len(world.train)):
        draws = DRAWS if size < len(world.train) else ()
        drawn = [world._replace(train=random.Random(seed).sample(list(world.train), size)) for seed in draws]
        drawn = drawn or [world]
        for form, fitted in FORMS.items():
            found = [figures(judged(world.asked, world.end, fitted(each))) for each in drawn]
            yield {
                "method": f"{form}: {size} demonstrations",
                "n": found[0]["n"],
                **{name: round(fmean(each[name] for each in found), 4) for name in ("mrr", "f1")},
                "mrr by draw": [each["mrr"] for each in found],
            }


def by_history(world: World) -> Iterator[Row]:
    """Both forms with more and less of the history."""
    for last in LASTS:
        yield {"method": f"DTDR-C: last {last}", **scored(world, fitted_c(world, last, DEMONSTRATIONS_A_CLUSTER))}
    for read_last in LASTS_L:
        found = figures(judged(world.asked, world.end, published_l(world, read_last)))
        yield {"method": f"DTDR-L: last {'all' if read_last is None else read_last}", **found}


def by_clusters(world: World) -> Iterator[Row]:
    """DTDR-C with more and fewer clusters."""
    for size in A_CLUSTER:
        model = fitted_c(world, LAST, size or len(world.train))
        method = f"DTDR-C: a cluster {size or 'all'}"
        yield {"method": method, "clusters": len(model.graphs), **scored(world, model)}


def fitted_c(world: World, last: int, a_cluster: int) -> DtdrC:
    """DTDR-C on all demonstrations."""
    assert world.frozen is not None
    vectors = world.frozen([each.task for each in world.train])
    return fit_c(vectors, world.train, world.end, SEED, last=last, a_cluster=a_cluster)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print a row for each cell."""
    parser = make_parser("bench.papers.dtdr_figure_5", __doc__)
    parser.add_argument("data", type=Path, help="the folder of data sets")
    parser.add_argument("--sets", default="bfcl_multi_turn,taskbench_multimedia,ultratool", help="default %(default)s")
    parser.add_argument("--parts", default=",".join(PARTS), help="of the figure; default %(default)s")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="keeps embeddings between runs")
    add_json(parser)
    arguments = parser.parse_args(argv)
    parts = split_names(parser, "--parts", arguments.parts, PARTS)
    for world in worlds(arguments.data, arguments.sets.split(","), arguments.cache):
        for row in with_cost(rows(world, parts)):
            print_row(row, arguments.json, width=44)


if __name__ == "__main__":
    main()
