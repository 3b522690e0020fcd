"""MassTool as published on ToolLens, on an encoder that was fine-tuned first, and what each of its parts adds.

    python -m bench.papers.masstool_parts DATA --cache FOLDER [--encoder tuned] [--forms FORMS] [--past 4096] [--json]

The authors' code fine-tunes the encoder, queries and tools, on the set by multiple negatives ranking, for ten epochs,
before it trains MassTool on its frozen vectors. Here MiniLM is fine-tuned by thin matrices of rank 16, one pass over
`--tasks` of the past in batches of 64; `--encoder frozen` takes MiniLM as it is. The forms:

    alone                    the encoder by itself, by cosine
    full                     all of MassTool
    AdaKT, SUIM, DF, CL      without this part (section 6.5, appendix C.4)
    detection                without the loss of detection; the gate stays
    attention, concatenation, addition   with another transfer function (section 6.4, appendix B.2)

`--past` leaves the past shorter, by a draw with seed 7: an epoch over all of it takes four times as long as over a
quarter. All are trained on the same vectors with seed 7 and scored on the same queries. A key that ends in `_over` is
the mean difference to `full` on the same queries, with its 95 % interval; it needs `full` among the forms.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

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
    measured,
    published_answer,
    read,
    said,
)
from bench.papers.ports_set import InTorch
from bench.reports import Row, difference, print_row
from foretool.retrieval import encoders
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.papers.masstool import Settings
from foretool.retrieval.papers.ports import PublishedPlan, PublishedTrainer
from foretool.retrieval.training.ports_trainer import Example
from foretool.storage.stores import VectorStore

FORMS: Mapping[str, Mapping[str, Any]] = {
    "full": {},
    **{part: {"without": (part,)} for part in ("AdaKT", "SUIM", "DF", "CL")},
    "detection": {"detection": 0.0},
    **{kind: {"transfer": kind} for kind in ("attention", "concatenation", "addition")},
}
TASKS, BATCH = 16_384, 64
PAPER_TRANSFER = {
    "gating": ((0.9523, 0.9648), (0.9577, 0.9683), (0.9812, 0.9848), (0.9744, 0.9802)),
    "attention": ((0.9513, 0.9567), (0.9548, 0.9618), (0.9794, 0.9832), (0.9720, 0.9762)),
    "concatenation": ((0.9520, 0.9641), (0.9566, 0.9687), (0.9808, 0.9855), (0.9740, 0.9795)),
    "addition": ((0.9492, 0.9600), (0.9523, 0.9626), (0.9810, 0.9857), (0.9709, 0.9784)),
}
"""Table 2, ToolLens: R@3, N@3, R@5, N@5, each the worst and best of four encoders."""
NAMES = ("R@3", "N@3", "R@5", "N@5")


def examples(world: World, count: int) -> list[Example]:
    """Tasks of the past, drawn with a fixed seed, each with one of its tools; the others are no negatives."""
    place = {tool.id: at for at, tool in enumerate(world.tools)}
    found = []
    for number, task in enumerate(random.Random(SEED).sample(list(world.train), min(count, len(world.train)))):
        golds = sorted({place[min(need)] for need in task.gold})
        right = golds[number % len(golds)]
        found.append(Example(task.query, right, tuple(each for each in golds if each != right)))
    return found


def fine_tuned(weights: encoders.Weights, world: World, count: int, cache: Path, vectors: VectorStore) -> KeptEncoder:
    """The encoder after its fine-tuning on the past, both of its sides; its vectors are kept, and an interrupted
    training continues."""
    tasks = examples(world, count)
    plan = PublishedPlan(loss="contrastive", sides="both", batch=BATCH, seed=SEED, refresh=12)
    texts = [embedded_text(document(tool, "")) for tool in world.tools]
    key = f"{weights.key} {world.name} {len(world.train)} {len(tasks)} {plan.seed}"

    def trained() -> PublishedTrainer:
        checkpoint = cache / f"masstool-{world.name}-{len(world.train)}-{len(tasks)}.checkpoint"
        trainer = PublishedTrainer(weights, texts, tasks, plan, cache / "masstool", checkpoint)
        trainer.run()
        return trainer

    return KeptEncoder(InTorch(weights, trained), vectors, key, f"queries {key}")


def alone(world: World, encoder: KeptEncoder) -> Answer:
    """The ranking by cosine."""
    documents = encoder.documents([embedded_text(document(tool, "")) for tool in world.tools])
    queries = [each.query for each in world.asked]
    best = np.argsort(-(encoder.queries(queries) @ documents.T), axis=1, kind="stable")
    found = dict(zip(queries, best.tolist(), strict=True))
    return lambda text: [world.tools[at].id for at in found[text]]


def figures(world: World, answer: Answer) -> dict[str, list[float]]:
    """The paper's four figures of every query."""
    found = [(answer(task.query), task.gold) for task in world.asked]
    by_letter = {"R": metrics.recall, "N": metrics.ndcg}
    return {name: [by_letter[name[0]](*each, int(name[2:])) for each in found] for name in NAMES}


def over_full(found: Mapping[str, Sequence[float]], full: Mapping[str, Sequence[float]]) -> Row:
    """The differences to the whole of MassTool on the same queries."""
    return {f"{name}_over": difference(found[name], full[name]) for name in NAMES}


def rows(
    world: World, encoder: KeptEncoder, without: Sequence[str], forms: Sequence[str], epochs: int, kind: str
) -> Iterator[Row]:
    """A row for each form on the vectors of one encoder; `without`: queries that need no tool."""
    full: dict[str, list[float]] = {}
    for form in forms:
        if form == "alone":
            yield measured(world, f"{kind}: alone", alone(world, encoder))
            continue
        answer, epoch_s = published_answer(world, encoder, without, Settings(epochs=epochs, **FORMS[form]))
        found = figures(world, answer)
        full = found if form == "full" else full
        yield {
            **measured(world, f"{kind}: {form}", answer),
            **(over_full(found, full) if full and form != "full" else {}),
            "past": len(world.train),
            "epochs": epochs,
            "without_tools": len(without),
            "epoch_s": epoch_s,
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
    parser.add_argument("--encoder", default="frozen,tuned", help="default %(default)s")
    parser.add_argument("--past", type=int, help="tasks of the past to train on; default: all")
    parser.add_argument("--tasks", type=int, default=TASKS, help="of the fine-tuning; default %(default)s")
    parser.add_argument("--forms", default=",".join(("alone", *FORMS)), help="default %(default)s")
    parser.add_argument("--epochs", type=int, default=20, help="of MassTool; default %(default)s")
    add_json(parser)
    arguments = parser.parse_args(argv)
    kinds = split_names(parser, "--encoder", arguments.encoder, ("frozen", "tuned"))
    forms = split_names(parser, "--forms", arguments.forms, ("alone", *FORMS))
    arguments.cache.mkdir(parents=True, exist_ok=True)
    world = read(arguments.data / "toollens", arguments.queries)
    if arguments.past:
        world = world._replace(train=random.Random(SEED).sample(list(world.train), arguments.past))
    without = said(arguments.data / WITHOUT_TOOLS / "train.jsonl")

    def every() -> Iterator[Row]:
        yield from papers_rows()
        with open_vectors(arguments.cache) as vectors:
            weights = encoders.find("auto")[0].untrained
            for kind in kinds:
                if kind == "frozen":
                    encoder = open_kept(weights, arguments.cache, vectors)
                else:
                    encoder = fine_tuned(weights, world, arguments.tasks, arguments.cache, vectors)
                yield from rows(world, encoder, without, forms, arguments.epochs, kind)

    for row in with_cost(every()):
        print_row(row, arguments.json, width=44)


if __name__ == "__main__":
    main()
