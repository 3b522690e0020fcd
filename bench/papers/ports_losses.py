"""Compares the losses of PORTS on the same tasks and seeds: the last round of `bench.papers ports`.

Each loss trains on `FEW` tasks of the training part, once or as `PASSES` says, in batches of 16. For each task the
language model is asked about the right tool and `NEGATIVES` hard ones. Only queries are trained, by matrices of rank 16
beside the weights of all-MiniLM-L6-v2. The paper trains both sides, all weights, in batches of 2, on 10,000 tasks,
twice, with RoBERTa or BGE of 110 million weights and language models of 8 to 22 billion.

All losses begin with the untrained encoder. The share of the published loss in the full one (`PublishedPlan.share`) was
chosen on tools that were held out of training, never on the queries that are scored here.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from statistics import fmean

from bench.papers.ports_set import RECALLS, Bench, Recipe, World, hits, ranks, recalls, untrainable
from bench.papers.published.ports import Loss
from bench.reports import Row, difference
from foretool.learning.language_models import open_scorer
from foretool.learning.training.continuation import ContinuationScorer, ScoreFile, ScorerError
from foretool.learning.training.ports import ModelAnswers, ask_preferences

FEW, BATCH, NEGATIVES = 200, 16, 3
LOSSES: tuple[Loss, ...] = ("contrastive", "replug", "ports", "full")
PASSES = {"octopus": 3}
"""Passes over the tasks, chosen from 1 and 3 on tasks of the training part that were kept back; 1 for other sets."""
SEEDS = (42, 0, 1)
QUERIES = 500
"""Queries of the file, drawn once; enough for paired differences of three points."""
Found = dict[str, dict[int, list[float]]]
"""By pool and k: for each query the share of the seeds with which its tool was among the first k."""


def compared(bench: Bench) -> Iterator[Row]:
    """The rows of each loss, and of the full loss against each of the others on the same queries."""
    if missing := untrainable():
        yield {**bench.head, "method": "losses", "skipped": f"{missing} not installed"}
        return
    try:
        scorer = open_scorer(os.environ.get("FORETOOL_LLM", "auto"))
    except ScorerError as error:
        yield {**bench.head, "method": "losses", "skipped": str(error)}
        return
    asked = answers(bench, scorer)
    head = {**bench.head, "tasks": min(FEW, len(bench.examples))}
    yield {**head, "method": "language model", "scorer": asked.model, "pairs": asked.pairs, "right first": right(asked)}
    world = drawn(bench.world)
    head["n"] = len(world.queries)
    found: dict[Loss, Found] = {}
    for loss in LOSSES:
        every = [hits_of(bench, world, loss, seed, asked) for seed in SEEDS]
        found[loss] = {pool: mean([each[pool] for each in every]) for pool in world.pools}
        for pool in world.pools:
            yield {
                **head,
                "method": f"{loss} alone" if loss in ("contrastive", "replug") else loss,
                "pool": pool,
                **recalls(found[loss][pool]),
                "seeds": list(SEEDS),
                "r@1 by seed": [round(fmean(each[pool][1]), 4) for each in every],
            }
    for loss in LOSSES[:-1]:
        for pool in world.pools:
            yield {
                **head,
                "method": f"full over {loss}",
                "pool": pool,
                **differences(found["full"][pool], found[loss][pool]),
            }


def answers(bench: Bench, scorer: ContinuationScorer, tasks: int = FEW, negatives: int = NEGATIVES) -> ModelAnswers:
    """The language model's answers about the tasks that all losses are trained on."""
    with ScoreFile(bench.cache / "scores.txt") as kept:
        trainer = bench.trainer(Recipe("full", SEEDS[0], tasks, 1, BATCH))
        tools = [bench.world.tools[at] for at in bench.called]
        return ask_preferences(trainer, tools, scorer, kept, most=(1 + negatives) * tasks, hard=negatives)


def right(asked: ModelAnswers) -> float:
    """The share of tasks whose right call is the likeliest of those that were asked about."""
    means = [[asked.means[at, each] for each in near] for at, near in asked.scored.items()]
    return round(fmean(max(row) == row[0] for row in means), 3)


def drawn(world: World) -> World:
    """The set with fewer queries."""
    few = sorted(random.Random(7).sample(range(len(world.queries)), min(QUERIES, len(world.queries))))
    return world._replace(queries=[world.queries[at] for at in few], gold=[world.gold[at] for at in few])


def hits_of(bench: Bench, world: World, loss: Loss, seed: int, asked: ModelAnswers) -> Found:
    """Train with one loss and one seed."""
    scores = bench.scores(bench.trained(Recipe(loss, seed, FEW, PASSES.get(world.name, 1), BATCH), asked), world)
    return {pool: hits(ranks(scores, world, members)) for pool, members in world.pools.items()}


def mean(every: list[dict[int, list[float]]]) -> dict[int, list[float]]:
    """The mean over the seeds, query by query."""
    return {k: [fmean(values) for values in zip(*(each[k] for each in every), strict=True)] for k in RECALLS}


def differences(ours: Mapping[int, list[float]], theirs: Mapping[int, list[float]]) -> Row:
    """The mean differences on the same queries, the first with its interval."""
    found = {k: difference(ours[k], theirs[k]) for k in RECALLS}
    return {f"r@{k}": mean for k, (mean, *_) in found.items()} | {"r@1_interval": found[1][1:]}
