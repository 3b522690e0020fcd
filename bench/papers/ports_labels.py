"""What the language model of PORTS adds where few tasks have labels, by many small trainings.

    python -m bench.papers.ports_labels DATA --cache FOLDER [--set sealtools] [--labels 10,48] [--asked KINDS] [--json]

With few labels the contrastive loss has little to go by, so what a language model says of each task (eq. 2) should
weigh most. To try many forms, no weights of the encoder are trained but a map of rank 16 that is added to the vectors
of queries (MiniLM, untrained), from its beginning at zero, in batches of 16. The forms differ in:

    the loss       `contrastive`; `full`, that and a share of eq. 3 plus .3 times eq. 5; `soft`, that and a share of
                   KL(Q, P) in place of eq. 3 and 5, as the authors' code has it
    beta, gamma    the temperatures of eq. 2 and eq. 1
    asked about    `near`: the call beside the two tools nearest to the query of those called in training;
                   `twins`: beside the two tools whose texts are nearest to the right one's, of all;
                   `masked`: as `near`, with `arg1`, `arg2`, ... in place of the names of the call's arguments;
                   `nameless`: as `near`, with `call` in place of the name of the tool

Each form is trained on three draws of so many tasks of the training part, and scored on up to 1,600 tasks of that part
which no training sees ("kept back"). The best form with answers of the language model and the best without, by the mean
of R@1 and NDCG@5 there, are then compared on the queries of the file: the mean over the draws, query by query.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

import numpy as np

from bench.kept_encoder import open_vectors
from bench.options import add_json, make_parser, split_names
from bench.papers.__main__ import with_cost
from bench.papers.ports_losses import differences
from bench.papers.ports_set import RECALLS, Bench, World, gains, hits, ranks, read_world, recalls
from bench.reports import Row, print_row
from foretool.learning.language_models import open_scorer
from foretool.learning.training.continuation import Question, ScoreFile, ScorerError, score_all
from foretool.learning.training.ports import docstring
from foretool.learning.training.ports_trainer import (
    Example,
    TrainingPlan,
    contrastive,
    log_retrieval,
    log_usefulness,
    preference,
    replug,
)
from foretool.retrieval.encoders.base import unit
from foretool.retrieval.model_format import Floats

Asked = Literal["near", "twins", "masked", "nameless"]
KINDS: Sequence[Asked] = ("near", "twins", "masked", "nameless")
Answers = Mapping[int, Mapping[int, float]]
"""By task and tool, the mean log-probability of the right call; the right tool stands first."""
LABELS = (10, 48)
DRAWS = (0, 1, 2)
OTHERS = 2
"""Tools beside the right one that the language model is asked about, for each task."""
BATCH, RANK, RATE = 16, 16, 3e-3
KEPT_BACK = 1600
_NAME = re.compile(r"\b\w+(?==)")


class Form(NamedTuple):
    """How a map is trained."""

    loss: Literal["contrastive", "full", "soft"]
    epochs: int
    asked: Asked = "near"
    share: float = TrainingPlan().share
    gamma: float = TrainingPlan().gamma
    beta: float = TrainingPlan().beta

    @property
    def told(self) -> Row:
        """What a row says of it."""
        return {"loss": self.loss, "epochs": self.epochs} if self.loss == "contrastive" else self._asdict()


FORMS: Sequence[Form] = [
    form._replace(epochs=epochs)
    for epochs in (4, 16)
    for form in (
        Form("contrastive", 0),
        Form("full", 0),
        Form("full", 0, beta=0.1),
        Form("full", 0, beta=2.0),
        Form("full", 0, share=1.0, gamma=0.05),
        Form("full", 0, share=1.0, gamma=0.05, beta=2.0),
        Form("full", 0, "twins", share=1.0, gamma=0.05),
        Form("full", 0, "masked", share=1.0, gamma=0.05),
        Form("full", 0, "nameless", share=1.0, gamma=0.05),
        Form("soft", 0, share=1.0, gamma=0.05),
        Form("soft", 0, share=1.0, gamma=0.05, beta=2.0),
        Form("soft", 0, "twins", share=1.0, gamma=0.05, beta=2.0),
        Form("soft", 0, "masked", share=1.0, gamma=0.05, beta=2.0),
        Form("soft", 0, "nameless", share=1.0, gamma=0.05),
    )
]


class Room(NamedTuple):
    """Vectors and tasks of a set."""

    examples: Sequence[Example]
    queries: Floats
    """(examples, dimension)"""
    tools: Floats
    """(tools, dimension)"""


def mask(call: str, kind: Asked) -> str:
    """The call as the language model is asked about it."""
    if kind == "nameless":
        return f"call({call.partition('(')[2]}"
    numbers = itertools.count(1)
    return _NAME.sub(lambda found: f"arg{next(numbers)}", call) if kind == "masked" else call


def candidates(room: Room, at: int, asked: Asked, called: Sequence[int]) -> list[int]:
    """The right tool of a task, and the others that the language model is asked about."""
    example = room.examples[at]
    right = {example.tool, *example.also}
    if asked == "twins":
        order = np.argsort(-(room.tools @ room.tools[example.tool]), kind="stable").tolist()
    else:
        columns = np.asarray(called)
        order = columns[np.argsort(-(room.tools[columns] @ room.queries[at]), kind="stable")].tolist()
    return [example.tool, *[tool for tool in order if tool not in right][:OTHERS]]


def ask_all(bench: Bench, room: Room, tasks: int, kinds: Sequence[Asked] = KINDS) -> tuple[dict[Asked, Answers], str]:
    """Every answer about the first tasks, and the name of the model. Raises `ScorerError`."""
    scorer = open_scorer(os.environ.get("FORETOOL_LLM", "auto"))
    called = sorted({tool for each in room.examples for tool in (each.tool, *each.also)})
    asked: dict[Asked, dict[tuple[int, int], Question]] = {}
    for kind in kinds:
        asked[kind] = {
            (at, tool): Question(
                docstring(bench.world.tools[tool]),
                room.examples[at].query,
                mask(room.examples[at].call, kind),
            )
            for at in range(tasks)
            if room.examples[at].call
            for tool in candidates(room, at, kind, called)
        }
    with ScoreFile(bench.cache / "scores.txt") as kept:
        scores = score_all(scorer, [each for kind in asked.values() for each in kind.values()], kept)
    found: dict[Asked, Answers] = {}
    for kind, questions in asked.items():
        means: dict[int, dict[int, float]] = {}
        for (at, tool), question in questions.items():
            means.setdefault(at, {})[tool] = scores[question].mean
        found[kind] = means
    return found, scorer.model


def right_first(answers: Answers) -> float:
    """The share of tasks whose right call is the likeliest with the right tool."""
    return round(fmean(float(max(row.values()) == next(iter(row.values()))) for row in answers.values()), 3)


def train_map(room: Room, tasks: Sequence[int], form: Form, answers: Mapping[Asked, Answers], seed: int) -> Floats:
    """What is to be added to the vectors of queries: (dimension, dimension)."""
    torch: Any = import_module("torch")
    torch.manual_seed(seed)
    draw = np.random.default_rng(seed)
    size = room.tools.shape[1]
    left = (torch.randn(size, RANK) / size**0.5).requires_grad_()
    right = torch.zeros(RANK, size, requires_grad=True)
    optimizer = torch.optim.AdamW([left, right], lr=RATE, weight_decay=0.01)
    called = sorted({tool for at in tasks for tool in (room.examples[at].tool, *room.examples[at].also)})
    place = {tool: number for number, tool in enumerate(called)}
    total, done = form.epochs * -(-len(tasks) // BATCH), 0
    for _ in range(form.epochs):
        order = draw.permutation(np.asarray(tasks)).tolist()
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            vectors = torch.from_numpy(room.queries[batch])
            vectors = torch.nn.functional.normalize(vectors + vectors @ left @ right, dim=1)
            loss = _contrastive(torch, room, batch, vectors, called, place)
            if form.loss != "contrastive":
                loss = loss + form.share * _by_answers(torch, room, batch, vectors, form, answers[form.asked])
            for group in optimizer.param_groups:
                group["lr"] = RATE * 0.5 * (1 + np.cos(np.pi * done / total))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
    found: Floats = (left @ right).detach().numpy()
    return found


def _contrastive(
    torch: Any, room: Room, batch: Sequence[int], vectors: Any, called: Sequence[int], place: Mapping[int, int]
) -> Any:
    """The contrastive loss over the tools that were called in training; other right ones are no negatives."""
    cosines = vectors @ torch.from_numpy(room.tools[list(called)]).T
    hidden = torch.zeros_like(cosines, dtype=torch.bool)
    for row, at in enumerate(batch):
        example = room.examples[at]
        hidden[row, [place[tool] for tool in (example.tool, *example.also)]] = True
    own = torch.tensor([[place[room.examples[at].tool]] for at in batch])
    ordered = torch.cat([cosines.gather(1, own), cosines.masked_fill(hidden, -1e4)], 1)
    return contrastive(ordered, TrainingPlan().temperature, torch).mean()


def _by_answers(torch: Any, room: Room, batch: Sequence[int], vectors: Any, form: Form, answers: Answers) -> Any:
    """The part of the loss that reads the language model's answers, the mean over the batch."""
    rows = [(row, answers[at]) for row, at in enumerate(batch) if len(answers.get(at, ())) > OTHERS]
    if not rows:
        return vectors.sum() * 0.0
    tools = torch.from_numpy(np.stack([room.tools[list(means)] for _, means in rows]))
    cosines = (tools @ vectors[[row for row, _ in rows]][:, :, None])[:, :, 0]
    log_p = log_retrieval(cosines, form.gamma, torch)
    log_q = log_usefulness(torch.tensor([list(means.values()) for _, means in rows]), form.beta, torch)
    if form.loss == "soft":
        return replug(log_q, log_p, torch).sum() / len(batch)
    return (replug(log_p, log_q, torch) + TrainingPlan().weight * preference(log_p, torch)).sum() / len(batch)


def places_of(room: Room, queries: Floats, world: World, change: Floats) -> list[int]:
    """The rank of each query's tool among all, with the vectors of queries changed."""
    moved = unit(queries + queries @ change)
    return ranks(moved @ room.tools.T, world, range(len(room.tools)))


def figure(places: Sequence[Sequence[int]]) -> float:
    """What chooses: the mean of R@1 and NDCG@5 over the draws."""
    return fmean((fmean(hits(each)[1]) + gains(each)["ndcg@5"]) / 2 for each in places)


def mean_hits(places: Sequence[Sequence[int]]) -> dict[int, list[float]]:
    """For each k and query the share of the draws that have its tool among the first k."""
    every = [hits(each) for each in places]
    return {k: [fmean(values) for values in zip(*(each[k] for each in every), strict=True)] for k in RECALLS}


def kept_back(bench: Bench, seen: int) -> tuple[World, list[int]]:
    """Tasks of the training part that nothing is trained on, as queries among all tools, and their places."""
    trained = {each.query for each in bench.world.examples[:seen]}
    examples = bench.world.examples
    left = [at for at in range(seen, len(examples)) if examples[at].query not in trained][:KEPT_BACK]
    return bench.world._replace(
        queries=[examples[at].query for at in left], gold=[examples[at].tool for at in left], misfits=frozenset()
    ), left


def rows(bench: Bench, labels: Sequence[int], kinds: Sequence[Asked] = KINDS) -> Iterator[Row]:
    """The rows of the choice, then those of the comparison, for each number of labels."""
    encoder = bench.untrained[0]
    examples = bench.world.examples
    room = Room(examples, encoder.queries([each.query for each in examples]), encoder.documents(bench.world.texts))
    asked_queries = encoder.queries(bench.world.queries)
    most = max(labels)
    try:
        answers, model = ask_all(bench, room, most, kinds)
    except ScorerError as error:
        yield {**bench.head, "method": "labels", "skipped": str(error)}
        return
    for kind, means in answers.items():
        pairs = sum(map(len, means.values()))
        yield {
            **bench.head,
            "method": f"asked: {kind}",
            "scorer": model,
            "pairs": pairs,
            "right first": right_first(means),
        }
    world, left = kept_back(bench, most)
    still = np.zeros((room.tools.shape[1],) * 2, np.float32)
    untrained = places_of(room, room.queries[left], world, still)
    yield {
        "set": world.name,
        "n": len(left),
        "method": "kept back: untrained",
        **recalls(hits(untrained)),
        **gains(untrained),
    }
    for count in labels:
        draws = [np.random.default_rng(seed).permutation(most)[:count].tolist() for seed in DRAWS]
        changes = {
            form: [train_map(room, tasks, form, answers, seed) for seed, tasks in zip(DRAWS, draws, strict=True)]
            for form in FORMS
            if form.loss == "contrastive" or form.asked in kinds
        }
        found = {}
        for form, every in changes.items():
            places = [places_of(room, room.queries[left], world, change) for change in every]
            found[form] = figure(places)
            shown = {f"r@{k}": round(fmean(values), 4) for k, values in mean_hits(places).items()}
            ndcg = round(fmean(gains(each)["ndcg@5"] for each in places), 4)
            yield {
                "set": world.name,
                "n": len(left),
                "method": "kept back",
                "labels": count,
                **form.told,
                **shown,
                "ndcg@5": ndcg,
            }
        plain = max((form for form in found if form.loss == "contrastive"), key=lambda form: found[form])
        read = max((form for form in found if form.loss != "contrastive"), key=lambda form: found[form])
        scored = {
            form: mean_hits([places_of(room, asked_queries, bench.world, change) for change in changes[form]])
            for form in (plain, read)
        }
        for form in (plain, read):
            yield {**bench.head, "method": "chosen", "labels": count, **form.told, **recalls(scored[form])}
        yield {
            **bench.head, "method": "with answers over contrastive", "labels": count, "draws": list(DRAWS),
            **differences(scored[read], scored[plain]),
        }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print rows as they come."""
    parser = make_parser("bench.papers.ports_labels", __doc__)
    parser.add_argument("data", type=Path, help="the folder of data sets")
    parser.add_argument("--set", default="sealtools", help="default %(default)s")
    parser.add_argument("--queries", default="dev.jsonl", metavar="FILE", help="file of the set to score")
    parser.add_argument("--labels", default=",".join(map(str, LABELS)), help="numbers of tasks; default %(default)s")
    parser.add_argument("--asked", default=",".join(KINDS), help="default %(default)s")
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER", help="keeps vectors and scores")
    add_json(parser)
    arguments = parser.parse_args(argv)
    arguments.cache.mkdir(parents=True, exist_ok=True)
    named = split_names(parser, "--asked", arguments.asked, KINDS)
    kinds = [kind for kind in KINDS if kind in named]
    labels = [int(each) for each in arguments.labels.split(",")]
    with open_vectors(arguments.cache) as vectors:
        bench = Bench(read_world(arguments.data / arguments.set, arguments.queries), arguments.cache, vectors)
        for row in with_cost(rows(bench, labels, kinds)):
            print_row(row, arguments.json, width=34)


if __name__ == "__main__":
    main()
