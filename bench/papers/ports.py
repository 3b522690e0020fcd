"""Compares PORTS, which trains the encoder, with its paper (Table 2): as published, as served, with a larger encoder.

The figures are R@1, R@2 and R@3 of each query's one gold tool, and NDCG@1, @3 and @5. The paper does not say which
tools it ranks, so each figure stands for two pools: "all" tools of the set, and "test", the tools that the set's test
part is about (for toole_unseen and octopus_unseen the unseen tools, for others the gold tools of the file; left out
where these are all tools). Rows of encoders alone rank by cosine; rows that say "served" run the proxy's pipeline, with
names and words.

The rows come in three rounds over the sets, the quickest first:

1. the paper's rows; the installed encoders untrained, and as they are shipped; served without a past; with past tasks
   (MassTool); MiniLM trained on the set's own tasks, alone and served (needs torch, `foretool[train]`), and with both;
2. an encoder of the paper's size (`bench.papers.larger_encoder`), untrained, trained, and served (needs torch and the
   encoder's wheels);
3. the losses on the same tasks and seeds (`bench.papers.ports_losses`; needs torch and a language model,
   `foretool[llm]`).

Where something is not installed, one row says what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.datasets import is_there
from bench.kept_encoder import open_vectors
from bench.papers.larger_encoder import NoLarger, find_larger
from bench.papers.ports_losses import compared
from bench.papers.ports_set import MATERIAL_SEED, Bench, read_world, untrainable
from bench.reports import Row
from foretool.learning.rankers.ports import Ports
from foretool.retrieval import encoders

SETS = ("octopus", "octopus_unseen", "apibank", "apibench", "toole_unseen", "bfcl_ports", "toole", "sealtools")
PAPER = {
    "apibank": (0.5912, 0.7680, 0.8150),
    "apibench": (0.3064, 0.3720, 0.4106),
    "toole": (0.6735, 0.7948, 0.8375),
    "toole_unseen": (0.8987, 0.9220, 0.9404),
    "bfcl_ports": (0.6720, 0.7323, 0.7810),
    "octopus": (0.975, 1.0, 1.0),
    "octopus_unseen": (0.975, 1.0, 1.0),
}
"""Table 2, L_PORTS on BGE-base with the best of three language models."""
PAPER_GAINS = {
    "apibank": (0.5912, 0.7540, 0.7610),
    "apibench": (0.3064, 0.3390, 0.3520),
    "toole": (0.6735, 0.7700, 0.7800),
    "toole_unseen": (0.8987, 0.9110, 0.9235),
    "bfcl_ports": (0.6720, 0.7460, 0.7310),
    "octopus": (0.975, 1.0, 1.0),
    "octopus_unseen": (0.975, 1.0, 1.0),
}
"""NDCG@1, @3 and @5 of the same rows; octopus_unseen has four tools in the paper, so the last is NDCG@4."""
PAPER_REPLUG = {
    "apibank": (0.5629, 0.7500, 0.8000),
    "apibench": (0.1955, 0.2829, 0.3305),
    "toole": (0.6723, 0.7754, 0.8106),
    "toole_unseen": (0.7460, 0.8624, 0.9030),
    "bfcl_ports": (0.6617, 0.7320, 0.7782),
    "octopus": (0.95, 1.0, 1.0),
    "octopus_unseen": (0.95, 1.0, 1.0),
}
RECALLS = (1, 2, 3)
COMPARED_SETS = ("octopus", "sealtools", "toole_unseen")
"""Sets on which the losses are compared, the first two with calls that have arguments; on other sets only the served
loss is trained, without a language model."""
LARGER_SETS = ("toole_unseen", "bfcl_ports")
PAST_SETS = ("toole", "bfcl_ports", "octopus")
"""Sets whose tasks use tools that earlier tasks used."""
LARGER_MANY, LARGER_BATCH = 1024, 32
"""Tasks and batch in the training of the larger encoder; more tasks did not help on tools held out of training."""


def rows(data: Path, queries: str, sets: Sequence[str] | None, cache: Path | None) -> Iterator[Row]:
    """Every row, in three rounds over the sets."""
    with TemporaryDirectory() as scratch:
        kept = cache or Path(scratch)
        with open_vectors(kept) as vectors:
            names = [name for name in sets or SETS if is_there(data / name / queries)]
            benches = [Bench(read_world(data / name, queries), kept, vectors) for name in names]
            for each in benches:
                yield from rows_of(each)
            yield from with_larger(benches, kept)
            for each in benches:
                if each.world.name in COMPARED_SETS:
                    yield from compared(each)


def with_larger(benches: Sequence[Bench], cache: Path) -> Iterator[Row]:
    """The rows of the larger encoder, or a row for each set that says why it has none."""
    wanted = [each for each in benches if each.world.name in LARGER_SETS]
    why = f"{missing} not installed" if (missing := untrainable()) else ""
    try:
        weights = find_larger(cache)
    except NoLarger as error:
        why = why or str(error)
    if why:
        yield from ({**each.head, "method": "larger encoder", "skipped": why} for each in wanted)
        return
    for each in wanted:
        yield from larger_rows(each, weights)


def rows_of(bench: Bench) -> Iterator[Row]:
    """The rows of the paper, and ours with the installed encoders."""
    for method, told in (("paper: PORTS, BGE-base", PAPER), ("paper: REPLUG, BGE-base", PAPER_REPLUG)):
        if found := told.get(bench.world.name):
            figures = dict(zip(("r@1", "r@2", "r@3"), found, strict=True))
            if told is PAPER:
                figures |= dict(zip(("ndcg@1", "ndcg@3", "ndcg@5"), PAPER_GAINS[bench.world.name], strict=True))
            yield {**bench.head, "method": method, "pool": "not said", **figures}
    if not bench.encoders:
        yield from bench.served("served, without encoders", {})
        yield {**bench.head, "method": "trained", "skipped": f"no encoder installed; {encoders.INSTALL}"}
        return
    for encoder in bench.untrained:
        yield from bench.alone(f"{encoder.name}, untrained", encoder)
    if bench.base is not bench.weights[0]:
        yield from bench.served("served, encoders untrained", {}, bench.untrained)
        yield from bench.alone(f"{bench.weights[0].name}, as shipped", bench.encoders[0])
    yield from bench.served("served, nothing learned", {})
    past = bench.past() if bench.world.name in PAST_SETS else {}
    if past:
        yield from bench.served("served with past tasks", past, seed=MATERIAL_SEED)
    if missing := untrainable():
        yield {**bench.head, "method": "trained", "skipped": f"{missing} not installed"}
        return
    if not bench.examples:
        return
    recipe = bench.recipe("full")._replace(goes_on=bench.base is not bench.weights[0])
    model = bench.trained(recipe)
    yield from bench.ranked("full, this set's tasks", bench.scores(model), **recipe.told)
    learned = {"ports": Ports(bench.opened(model))}
    yield from bench.served("served with full", learned, **recipe.told)
    if past:
        yield from bench.served("served with past tasks and full", {**past, **learned}, **recipe.told)


def larger_rows(bench: Bench, weights: encoders.Weights) -> Iterator[Row]:
    """The rows of the larger encoder in place of all others: untrained, and with both sides trained."""
    recipe = bench.recipe("contrastive", LARGER_BATCH, LARGER_MANY)._replace(sides="both")
    name = Path(weights.name).name
    for encoder, done, told in (
        (bench.larger(weights), "untrained", {}),
        (bench.larger(weights, recipe), f"{recipe.loss}, both sides", recipe.told),
    ):
        yield from bench.alone(f"{name}, {done}", encoder, **told)
        yield from bench.served(f"served with {name}, {done}", {}, [encoder], **told)
