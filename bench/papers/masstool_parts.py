"""MassTool as published on ToolLens, on an encoder that was fine-tuned first, and what each of its parts adds.

    python -m bench.papers.masstool_parts DATA --cache FOLDER [--encoder centred] [--forms FORMS] [--past 4096] [--json]

The authors' code fine-tunes the encoder, queries and tools, on the set by multiple negatives ranking, for ten epochs,
before it trains MassTool on its frozen vectors. Here MiniLM is fine-tuned by thin matrices of rank 16, `--passes` over
`--tasks` of the past in batches of 64. The encoders:

    frozen     MiniLM as it is
    tuned      fine-tuned
    centred    fine-tuned, its vectors less the mean of those of the past's queries and of the tools, at length 1 again

The forms:

    alone                    the encoder by itself, by cosine
    full                     all of MassTool
    AdaKT, SUIM, DF, CL      without this part (section 6.5, appendix C.4)
    detection                without the loss of detection; the gate stays
    attention, concatenation, addition   with another transfer function (section 6.4, appendix B.2)

`--past` leaves the past shorter, by a draw with seed 7: an epoch over all of it takes four times as long as over a
quarter. All are trained on the same vectors with each of `--seeds` and scored on the same queries; a figure is the mean
over the seeds. A key that ends in `_over` is the mean difference to `full` with the same seeds on the same queries,
with its 95 % interval; it needs `full` among the forms. What was trained is kept in FOLDER, so a run in parts gives
the rows of one run. The row of an encoder says how like each other its vectors are, and how many of the neighbours that
SUIM looks up pass its filter (`--threshold`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from msgspec import to_builtins
from msgspec.json import decode, encode

from bench import metrics
from bench.kept_encoder import KeptEncoder, open_kept, open_vectors
from bench.options import add_json, make_parser, split_names
from bench.papers.__main__ import with_cost
from bench.papers.masstool import (
    PAPER,
    SEED,
    WITHOUT_TOOLS,
    Answer,
    World,
    published_answer,
    published_task,
    read,
    said,
)
from bench.papers.ports_set import InTorch
from bench.papers.published.masstool import Settings, nearest
from bench.papers.published.ports import PublishedPlan, PublishedTrainer
from bench.reports import Row, difference, mean_rows, print_row
from foretool.learning.training.ports_trainer import Example
from foretool.retrieval import encoders
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.encoders import Encoder
from foretool.retrieval.encoders.base import unit
from foretool.retrieval.model_format import Floats
from foretool.storage.sql.artifacts import VectorStore

FORMS: Mapping[str, Mapping[str, Any]] = {
    "full": {},
    **{part: {"without": (part,)} for part in ("AdaKT", "SUIM", "DF", "CL")},
    "detection": {"detection": 0.0},
    **{kind: {"transfer": kind} for kind in ("attention", "concatenation", "addition")},
}
TASKS, BATCH = 16_384, 64
Found = dict[str, list[float]]
"""By figure: that of each query."""


class Plan(NamedTuple):
    """How the forms are trained."""

    kind: str
    """Which encoder, for people."""
    kept: str
    """Which vectors, for the file names of what is kept."""
    epochs: int
    seeds: Sequence[int]
    threshold: float


PAPER_TRANSFER = {
    "gating": ((0.9523, 0.9648), (0.9577, 0.9683), (0.9812, 0.9848), (0.9744, 0.9802)),
    "attention": ((0.9513, 0.9567), (0.9548, 0.9618), (0.9794, 0.9832), (0.9720, 0.9762)),
    "concatenation": ((0.9520, 0.9641), (0.9566, 0.9687), (0.9808, 0.9855), (0.9740, 0.9795)),
    "addition": ((0.9492, 0.9600), (0.9523, 0.9626), (0.9810, 0.9857), (0.9709, 0.9784)),
}
"""Table 2, ToolLens: R@3, N@3, R@5, N@5, each the worst and best of four encoders."""
NAMES = ("R@3", "N@3", "R@5", "N@5")
KINDS = ("frozen", "tuned", "centred")


def examples(world: World, count: int) -> list[Example]:
    """Tasks of the past, drawn with a fixed seed, each with one of its tools; the others are no negatives."""
    place = {tool.id: at for at, tool in enumerate(world.tools)}
    found = []
    for number, task in enumerate(random.Random(SEED).sample(list(world.train), min(count, len(world.train)))):
        golds = sorted({place[min(need)] for need in task.gold})
        right = golds[number % len(golds)]
        found.append(Example(task.query, right, tuple(each for each in golds if each != right)))
    return found


def fine_tuned(
    weights: encoders.Weights, world: World, count: int, passes: int, cache: Path, vectors: VectorStore
) -> KeptEncoder:
    """The encoder after its fine-tuning on the past, both of its sides; its vectors are kept, and an interrupted
    training continues."""
    tasks = examples(world, count)
    plan = PublishedPlan(loss="contrastive", sides="both", batch=BATCH, seed=SEED, refresh=12, epochs=passes)
    texts = [embedded_text(document(tool, "")) for tool in world.tools]
    again = f" x{passes}" if passes > 1 else ""
    key = f"{weights.key} {world.name} {len(world.train)} {len(tasks)} {plan.seed}{again}"

    def trained() -> PublishedTrainer:
        checkpoint = cache / f"masstool-{world.name}-{len(world.train)}-{len(tasks)}{again.strip()}.checkpoint"
        trainer = PublishedTrainer(weights, texts, tasks, plan, cache / "masstool", checkpoint)
        trainer.run()
        return trainer

    return KeptEncoder(InTorch(weights, trained), vectors, key, f"queries {key}")


class Centred:
    """An encoder whose vectors are taken less their mean, and scaled to length 1 again."""

    def __init__(self, encoder: Encoder, mean: Floats) -> None:
        self.encoder, self.mean, self.name = encoder, mean, f"{encoder.name}, centred"

    def documents(self, texts: Sequence[str]) -> Floats:
        return unit(self.encoder.documents(texts) - self.mean)

    def queries(self, texts: Sequence[str]) -> Floats:
        return unit(self.encoder.queries(texts) - self.mean)


def centred(encoder: Encoder, world: World) -> Centred:
    """The encoder less the mean vector of the past's queries and of the tools."""
    task = published_task(world, encoder, ())
    return Centred(encoder, np.concatenate([task.queries, task.tools]).mean(0))


def alone(world: World, encoder: Encoder) -> Answer:
    """The ranking by cosine."""
    documents = encoder.documents([embedded_text(document(tool, "")) for tool in world.tools])
    queries = [each.query for each in world.asked]
    best = np.argsort(-(encoder.queries(queries) @ documents.T), axis=1, kind="stable")
    found = dict(zip(queries, best.tolist(), strict=True))
    return lambda text: [world.tools[at].id for at in found[text]]


def figures(world: World, answer: Answer) -> Found:
    """The paper's four figures of every query."""
    found = [(answer(task.query), task.gold) for task in world.asked]
    by_letter = {"R": metrics.recall, "N": metrics.ndcg}
    return {name: [by_letter[name[0]](*each, int(name[2:])) for each in found] for name in NAMES}


def over_full(found: Found, full: Found) -> Row:
    """The differences to the whole of MassTool on the same queries."""
    return {f"{name}_over": difference(found[name], full[name]) for name in NAMES}


def mean_of(every: Sequence[Found]) -> Found:
    """The mean over the seeds, query by query."""
    return {name: [fmean(values) for values in zip(*(each[name] for each in every), strict=True)] for name in NAMES}


def spread_row(world: World, encoder: Encoder, settings: Settings) -> Row:
    """How like each other the vectors are that MassTool begins with: mean cosines, and the share of neighbours that
    pass the filter of SUIM."""
    task = published_task(world, encoder, ())
    cosines = task.queries @ task.queries.T
    np.fill_diagonal(cosines, -1.0)
    _, kept = nearest(cosines, settings.neighbours, settings.threshold)
    own = [
        float((task.tools[list(golds)] @ query).mean()) for query, golds in zip(task.queries, task.golds, strict=True)
    ]
    return {
        "query_query": round(float(cosines[~np.eye(len(cosines), dtype=bool)].mean()), 3),
        "query_tool": round(float((task.queries @ task.tools.T).mean()), 3),
        "query_own_tool": round(fmean(own), 3),
        "pass_filter": round(float(kept.mean()), 3),
    }


def trained_figures(world: World, encoder: Encoder, without: Sequence[str], settings: Settings, kept: Path) -> Found:
    """The figures of one training, from the file where they are kept."""
    if kept.exists():
        return decode(kept.read_bytes(), type=dict[str, list[float]])
    answer, _ = published_answer(world, encoder, without, settings)
    found = figures(world, answer)
    kept.write_bytes(encode(found))
    return found


def rows(
    world: World, encoder: Encoder, without: Sequence[str], forms: Sequence[str], plan: Plan, folder: Path
) -> Iterator[Row]:
    """A row for each form on the vectors of one encoder; `without`: queries that need no tool; `folder` keeps what was
    trained."""
    head: Row = {"set": world.name, "n": len(world.asked)}
    base: dict[str, Any] = {"epochs": plan.epochs, "threshold": plan.threshold}
    full: Found = {}
    for form in forms:
        if form == "alone":
            found = figures(world, alone(world, encoder))
            spread = spread_row(world, encoder, Settings(**base))
            yield {**head, "method": f"{plan.kind}: alone", **mean_rows(found), **spread}
            continue
        every = []
        for seed in plan.seeds:
            settings = Settings(**{**base, **FORMS[form], "seed": seed})
            told = sha256(encode([plan.kept, len(world.train), len(without), to_builtins(settings)])).hexdigest()
            every.append(trained_figures(world, encoder, without, settings, folder / f"parts-{told[:16]}.json"))
        found = mean_of(every)
        full = found if form == "full" else full
        yield {
            **head,
            "method": f"{plan.kind}: {form}",
            **mean_rows(found),
            **(over_full(found, full) if full and form != "full" else {}),
            "past": len(world.train),
            **base,
            "seeds": list(plan.seeds),
            "R@5 by seed": [round(fmean(each["R@5"]), 4) for each in every],
        }


def papers_rows() -> Iterator[Row]:
    """The figures that the paper prints; it draws those of the parts that are left out, without numbers."""
    for method, (r3, n3, r5, n5) in PAPER.items():
        yield {"set": "toollens", "method": method, "n": 1877, "R@3": r3, "N@3": n3, "R@5": r5, "N@5": n5}
    for kind, spans in PAPER_TRANSFER.items():
        yield {"set": "toollens", "method": f"paper: {kind}, worst and best", "n": 1877,
               **dict(zip(NAMES, spans, strict=True))}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print rows as they come."""
    parser = make_parser("bench.papers.masstool_parts", __doc__)
    parser.add_argument("data", type=Path, help="the folder of data sets")
    parser.add_argument("--queries", default="dev.jsonl", metavar="FILE", help="file of ToolLens to score")
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER", help="keeps vectors and the fine-tuning")
    parser.add_argument("--encoder", default=",".join(KINDS), help="default %(default)s")
    parser.add_argument("--past", type=int, help="tasks of the past to train on; default: all")
    parser.add_argument("--tasks", type=int, default=TASKS, help="of the fine-tuning; default %(default)s")
    parser.add_argument("--passes", type=int, default=1, help="of the fine-tuning over them; default %(default)s")
    parser.add_argument("--forms", default=",".join(("alone", *FORMS)), help="default %(default)s")
    parser.add_argument("--epochs", type=int, default=20, help="of MassTool; default %(default)s")
    parser.add_argument("--seeds", default="7", help="of MassTool, comma-separated; default %(default)s")
    parser.add_argument(
        "--threshold", type=float, default=Settings().threshold, help="of SUIM's filter; default %(default)s"
    )
    add_json(parser)
    arguments = parser.parse_args(argv)
    kinds = split_names(parser, "--encoder", arguments.encoder, KINDS)
    forms = split_names(parser, "--forms", arguments.forms, ("alone", *FORMS))
    seeds = [int(each) for each in arguments.seeds.split(",")]
    arguments.cache.mkdir(parents=True, exist_ok=True)
    world = read(arguments.data / "toollens", arguments.queries)
    if arguments.past:
        world = world._replace(train=random.Random(SEED).sample(list(world.train), arguments.past))
    without = said(arguments.data / WITHOUT_TOOLS / "train.jsonl")

    def every() -> Iterator[Row]:
        yield from papers_rows()
        with open_vectors(arguments.cache) as vectors:
            weights = encoders.resolve_weights("auto")[0].untrained
            for kind in kinds:
                kept: KeptEncoder = (
                    open_kept(weights, vectors)
                    if kind == "frozen"
                    else fine_tuned(weights, world, arguments.tasks, arguments.passes, arguments.cache, vectors)
                )
                encoder: Encoder = centred(kept, world) if kind == "centred" else kept
                plan = Plan(kind, f"{kept.key} {kind}", arguments.epochs, seeds, arguments.threshold)
                yield from rows(world, encoder, without, forms, plan, arguments.cache)

    for row in with_cost(every()):
        print_row(row, arguments.json, width=44)


if __name__ == "__main__":
    main()
