"""How much of the published loss of PORTS to add to the contrastive one, where tasks say their calls with arguments.

    python -m bench.papers.ports_share DATA --cache FOLDER [--set sealtools] [--tasks 96] [--json]

`full` is the contrastive loss plus `share` times that of the paper (eq. 3, and .3 times eq. 5), with the temperature
`gamma` of eq. 1. All forms train on the same tasks of the training part, in batches of 16, from the untrained MiniLM,
queries alone, with the same answers of the language model (two hard negatives a task).

First each form is scored on tasks of the training part that none has seen ("kept back", seed 42). Then the form of
`full` that was best there, and `contrastive` with the epochs that were best for it there, are trained with three seeds
and compared on the queries of the file, all tools and gold tools, once. An interval is over the same queries.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from bench.kept_encoder import open_vectors
from bench.options import add_json, make_parser
from bench.papers.__main__ import with_cost
from bench.papers.ports_losses import BATCH, SEEDS, Found, answers, differences, mean, right
from bench.papers.ports_set import Bench, Recipe, World, gains, hits, ranks, read_world, recalls
from bench.reports import Row, print_row
from foretool.learning.language_models import open_scorer
from foretool.learning.training.ports import Answers
from foretool.retrieval.model_format import Floats

NEGATIVES = 2
EPOCHS = (1, 4)
MIXED = ((0.5, 0.3), (0.5, 10.0), (0.1, 3.0))
"""Temperatures of eq. 1 with shares; the first is what is served."""
KEPT_BACK = 250
"""Queries of the training part at most that choose."""


def forms(tasks: int) -> list[Recipe]:
    """The recipes that are tried."""
    seed = SEEDS[0]
    plain = [Recipe("contrastive", seed, tasks, epochs, BATCH) for epochs in EPOCHS]
    return plain + [
        Recipe("full", seed, tasks, epochs, BATCH, share=share, gamma=gamma)
        for epochs in EPOCHS
        for gamma, share in MIXED
    ]


def kept_back(bench: Bench, tasks: int) -> World:
    """The tasks of the training part that are not trained on, as queries among all tools."""
    trained = {each.query for each in bench.examples[:tasks]}
    left = [each for each in bench.examples[tasks:] if each.query not in trained][:KEPT_BACK]
    return bench.world._replace(
        queries=[each.query for each in left],
        gold=[bench.called[each.tool] for each in left],
        pools={"all": range(len(bench.world.tools))},
        misfits=frozenset(),
    )


def told(recipe: Recipe) -> Row:
    """What a row says of a recipe."""
    shared = {"share": recipe.share, "gamma": recipe.gamma} if recipe.loss == "full" else {}
    return {"tasks": recipe.tasks, "epochs": recipe.epochs, **shared}


def chosen(bench: Bench, asked: Answers, recipes: Sequence[Recipe]) -> Iterator[tuple[Row, Recipe, float]]:
    """Each recipe with its row and its figure on the tasks kept back: the mean of R@1 and NDCG@5."""
    world = kept_back(bench, recipes[0].tasks)
    for recipe in recipes:
        places = ranks(trained_scores(bench, recipe, asked, world), world, world.pools["all"])
        row: Row = {**recalls(hits(places)), **gains(places)}
        head = {"set": world.name, "method": f"kept back: {recipe.loss}", "n": len(places)}
        yield {**head, **told(recipe), **row}, recipe, (row["r@1"] + row["ndcg@5"]) / 2


def trained_scores(bench: Bench, recipe: Recipe, asked: Answers, world: World) -> Floats:
    """Cosines of the queries of a world by a training, which is kept."""
    return bench.scores(bench.trained(recipe, asked), world)


def best(found: Sequence[tuple[Row, Recipe, float]], loss: str) -> Recipe:
    """The recipe of a loss with the best figure; of equals the first."""
    return max((each for each in found if each[1].loss == loss), key=lambda each: each[2])[1]


def compared(bench: Bench, asked: Answers, recipes: Mapping[str, Recipe]) -> Iterator[Row]:
    """The best of both losses on the queries of the file, three seeds each, and their difference."""
    found: dict[str, Found] = {}
    for name, recipe in recipes.items():
        every: list[Found] = []
        for seed in SEEDS:
            scores = trained_scores(bench, recipe._replace(seed=seed), asked, bench.world)
            every.append({
                pool: hits(ranks(scores, bench.world, members)) for pool, members in bench.world.pools.items()
            })  # fmt: skip
        found[name] = {pool: mean([each[pool] for each in every]) for pool in bench.world.pools}
        for pool in bench.world.pools:
            yield {
                **bench.head, "method": name, "pool": pool, **told(recipe), **recalls(found[name][pool]),
                "seeds": list(SEEDS), "r@1 by seed": [round(fmean(each[pool][1]), 4) for each in every],
            }  # fmt: skip
    first, second = recipes
    for pool in bench.world.pools:
        ours, theirs = found[first][pool], found[second][pool]
        yield {**bench.head, "method": f"{first} over {second}", "pool": pool, **differences(ours, theirs)}


def rows(bench: Bench, tasks: int) -> Iterator[Row]:
    """The rows of the choice, then those of the comparison."""
    asked = answers(bench, open_scorer(os.environ.get("FORETOOL_LLM", "auto")), tasks, NEGATIVES)
    yield {
        **bench.head, "method": "language model", "scorer": asked.model, "tasks": tasks, "pairs": asked.pairs,
        "negatives": NEGATIVES, "right first": right(asked),
    }  # fmt: skip
    found = []
    for row, recipe, figure in chosen(bench, asked, forms(tasks)):
        found.append((row, recipe, figure))
        yield row
    yield from compared(bench, asked, {"full": best(found, "full"), "contrastive": best(found, "contrastive")})


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print rows as they come."""
    parser = make_parser("bench.papers.ports_share", __doc__)
    parser.add_argument("data", type=Path, help="the folder of data sets")
    parser.add_argument("--set", default="sealtools", help="default %(default)s")
    parser.add_argument("--queries", default="dev.jsonl", metavar="FILE", help="file of the set to score")
    parser.add_argument("--tasks", type=int, default=96, help="to train on; default %(default)s")
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER", help="keeps scores and trainings")
    add_json(parser)
    arguments = parser.parse_args(argv)
    arguments.cache.mkdir(parents=True, exist_ok=True)
    with open_vectors(arguments.cache) as vectors:
        bench = Bench(read_world(arguments.data / arguments.set, arguments.queries), arguments.cache, vectors)
        for row in with_cost(rows(bench, min(arguments.tasks, len(bench.examples)))):
            print_row(row, arguments.json, width=28)


if __name__ == "__main__":
    main()
