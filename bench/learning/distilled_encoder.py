"""Trains the queries of the shipped encoder towards what three encoders say together: tried, not shipped.

    python -m bench.learning.distilled_encoder train --data FOLDER --everyday SETS --head-to-head FILE
        --start FILE --out FILE --cache FOLDER
    python -m bench.learning.distilled_encoder report --data FOLDER --head-to-head FILE
        --start FILE --out FILE --cache FOLDER [--apart FILE]

The teachers are the shipped encoder, bge-small and all-mpnet-base-v2 (`bench.papers.larger_encoder` says how to get
it), which has five times the weights and finds tools for vague wishes that MiniLM does not. The target of a task is the
mean of what they say of every document, each on the scale of its deviation (`TEACHERS`); the loss is the KL divergence
from it plus `CONTRAST` times the contrastive loss of `wished_encoder`. Tools keep the vectors of the untrained encoder.

The tasks are those of `wished_encoder`, and the wishes and goals of three quarters of the train half of the invented
APIs (`invented_apis`); the other servers of that half are `held out` in the report, and its dev half is not read. A
quarter of the longer tasks of one tool is cut to a few of its words.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from bench.datasets import Task, read_rows, tool_from_row
from bench.kept_encoder import KeptEncoder, open_kept, open_vectors
from bench.learning.both_sides import divergence, shorten
from bench.learning.invented_apis import FILE, GOAL, part_of, task_rows, tool_rows
from bench.learning.shipped_encoder import PLAN, Material, base, material
from bench.learning.wished_encoder import (
    Servers,
    ServersApart,
    apart_from,
    folders_of,
    make_wished_parser,
    parts,
    queries_of,
    report,
    servers_of,
    with_queries_of,
    with_wishes,
)
from bench.papers.larger_encoder import find_larger
from bench.reports import print_row
from foretool.learning.training.ports_trainer import Example, TrainingBatch
from foretool.retrieval import adapters, encoders
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.model_format import Floats
from foretool.storage.records import Tool, ToolId

RECIPE = (
    ("toole_unseen", 2000), ("sealtools", 700), ("ultratool", 1400), ("apibench", 300), ("octopus_unseen", 160),
    ("clinc", 1200), ("nl2bash", 500), ("callnavi", 726), ("nestful", 169), ("hwu", 1000),
)  # fmt: skip
"""Training parts, and how many tasks of each at most."""
STRUNG = 0.2
"""Tasks that are strung together, as a share of a set's tasks."""
SHORT, LONG = 0.25, 8
"""The share of tasks of one tool and more words than `LONG` that is cut to a few words."""
TEACHERS = (0.25, 0.25, 0.5)
"""What the shipped encoder, bge-small and the larger one count in the target."""
SHARPNESS = 0.035
"""The temperature of the divergence: what stands first decides."""
CONTRAST = 0.2
"""What the contrastive loss counts beside the divergence."""
BATCHES = replace(PLAN, batch=96, epochs=3, rate=7e-4, tokens=(56, 64))
STEPS = 450
"""So many batches are read at most."""
WISHED_TWICE, GOALS = 2, 3
"""How often the wishes and the goals of the invented servers are read."""
Teacher = tuple[Floats, Floats, float]
"""What an encoder makes of the tasks and of the documents, and its weight."""


class Invented(NamedTuple):
    """The invented APIs."""

    tools: list[Tool]
    trained: list[Task]
    """Wishes and goals, as often as they are read."""
    held_out: list[Task]


def is_held_out(server: str) -> bool:
    """Whether an invented server of the train half is kept for choices; a quarter of them by hash."""
    return part_of(server) == "train" and sha256(server.encode()).digest()[1] % 4 == 0


def read_invented() -> Invented:
    """Read the invented APIs; of the dev half the tools only."""
    rows = read_rows(FILE)
    trained: list[Task] = []
    held_out: list[Task] = []
    for part, kind, row in task_rows(rows):
        task = Task(row["query"], tuple(frozenset((ToolId(call),)) for call in row["calls"]))
        if part == "train" and is_held_out(row["calls"][0].partition("/")[0]):
            held_out.append(task)
        elif part == "train":
            trained += [task] * (GOALS if kind == GOAL else WISHED_TWICE)
    return Invented([tool_from_row(row) for row in tool_rows(rows)], trained, held_out)


def with_invented(former: Material, invented: Invented, encoder: KeptEncoder) -> Material:
    """The former tasks and those of the invented APIs among the tools of all; each server is a set of its own."""
    first, texts = len(former.texts), [embedded_text(document(tool)) for tool in invented.tools]
    place = {tool.id: first + at for at, tool in enumerate(invented.tools)}
    servers = list(dict.fromkeys(tool.upstream for tool in invented.tools))
    number = int(former.sets.max(initial=-1)) + 1
    sets = [number + servers.index(tool.upstream) for tool in invented.tools]
    examples = []
    for task in invented.trained:
        right = list(dict.fromkeys(place[tool] for need in task.gold for tool in need))
        examples.append(Example(task.query, right[0], tuple(right[1:])))
    return Material(
        former.texts + texts,
        np.concatenate([former.vectors, encoder.documents(texts)]),
        np.concatenate([former.sets, np.asarray(sets)]),
        former.examples + examples,
    )


def with_short_ones(examples: Sequence[Example]) -> list[Example]:
    """The tasks, some of those that need one tool cut to a few words."""
    draw = random.Random(PLAN.seed)
    return [
        replace(each, query=shorten(each.query, draw))
        if not each.also and len(each.query.split()) > LONG and draw.random() < SHORT
        else each
        for each in examples
    ]


def together(teachers: Sequence[Teacher], chosen: Sequence[int]) -> Floats:
    """What the teachers say of every document, as deviations from a task's mean; (chosen, documents)."""
    at = list(chosen)
    said = [weight * scaled_rows(tasks[at] @ documents.T) for tasks, documents, weight in teachers]
    return scaled_rows(np.sum(said, axis=0, dtype=np.float32))


def scaled_rows(scores: Floats) -> Floats:
    """Each row with mean 0 and deviation 1; zeros where all are equal."""
    scores = scores - scores.mean(1, keepdims=True)
    found: Floats = scores / np.maximum(scores.std(1, keepdims=True), 1e-6)
    return found


class Distilled(ServersApart):
    """A trainer with teachers; the target has the deviation that the untrained encoder's cosines have."""

    contrast = CONTRAST
    teachers: Sequence[Teacher]
    deviation: float
    without_tasks: NDArray[np.bool_]
    """(documents,): those of servers that take no part. They are right for no task, so they are no negatives either:
    else no wish would find a web search, which no server that takes part has."""

    def _alike(self, places: Sequence[int]) -> NDArray[np.bool_]:
        return super()._alike(places) | self.without_tasks

    def _target(self, batch: TrainingBatch) -> Floats:
        """What the teachers say of every document; (tasks, documents)."""
        return together(self.teachers, batch.examples)

    def _loss(self, cosines: Any, batch: TrainingBatch) -> Any:
        torch = self._torch
        target = self._target(batch) * (self.deviation / SHARPNESS)
        apart = divergence(torch.from_numpy(target.astype(np.float32)), cosines / SHARPNESS, torch)
        return self.contrast * super()._loss(cosines, batch) + apart


def without_tasks(made: Material, servers: Servers) -> NDArray[np.bool_]:
    """Which documents are of servers that take no part; (documents,)."""
    taking_part = {each.tool.upstream for each in servers.trained}
    left_out = {embedded_text(document(tool)) for tool in servers.all_tools if tool.upstream not in taking_part}
    return np.asarray([text in left_out for text in made.texts])


def deviation_of(vectors: Floats, made: Material) -> float:
    """The mean deviation of the cosines of these vectors to all documents."""
    return float((vectors @ made.vectors.T).std(1).mean())


def train(
    folders: Sequence[Path], servers: Servers, start: Path, cache: Path, teachers: Sequence[KeptEncoder]
) -> adapters.Adapter:
    """Train the adapter `start` further. `teachers`: the shipped encoder, bge-small and the larger one."""
    first = teachers[0]
    made = with_wishes(material(folders, RECIPE, STRUNG, first), servers, first)
    made = with_invented(made, read_invented(), first)
    made = made._replace(examples=with_short_ones(made.examples))
    texts = [each.query for each in made.examples]
    trainer = Distilled(
        base(), made.texts, made.examples, BATCHES, cache / "model", cache / "distilled.checkpoint",
        vectors=made.vectors, start=adapters.loads(start.read_bytes()),
    )  # fmt: skip
    trainer.total = min(trainer.total, STEPS)
    trainer.sets = made.sets
    trainer.without_tasks = without_tasks(made, servers)
    trainer.teachers = [
        (each.queries(texts), each.documents(made.texts), weight)
        for each, weight in zip(teachers, TEACHERS, strict=True)
    ]
    trainer.deviation = deviation_of(first.queries(texts[::40]), made)
    trainer.run(lambda done, total, loss: print(f"step {done} of {total}, loss {loss:.3f}", flush=True))
    said = {"sets": dict(RECIPE), "wished": len(servers.trained), "tasks": len(texts), "seed": BATCHES.seed}
    return trainer.encoder.adapter(said)


def measured(data: Path, servers: Servers) -> Iterator[tuple[str, list[Tool], list[Task]]]:
    """What took no part: a name, the tools and the tasks."""
    invented = read_invented()
    return chain(parts(data, servers), [("invented held out", invented.tools, invented.held_out)])


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments; train, or print the report."""
    arguments = make_wished_parser("bench.learning.distilled_encoder", __doc__).parse_args(argv)
    data, cache, start, out = arguments.data, arguments.cache, arguments.start, arguments.out
    servers = servers_of(arguments)
    with open_vectors(cache) as vectors:
        if arguments.what == "train":
            found = [*encoders.resolve_weights("minilm-tools+bge-small"), find_larger(cache / "larger")]
            teachers = [open_kept(each, vectors) for each in found]
            out.write_bytes(train(folders_of(arguments), servers, start, cache, teachers).dumps())
            return
        encoder = open_kept(base(), vectors)
        known = apart_from(measured(data, servers), queries_of(arguments.apart))
        for row in report(known, with_queries_of([start.read_bytes(), out.read_bytes()], encoder)):
            print_row(row, arguments.json, width=18)


if __name__ == "__main__":
    main()
