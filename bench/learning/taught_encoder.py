"""Trains the shipped encoder on both sides, tasks and tools, towards a larger encoder that was trained on tools first.

    python -m bench.learning.taught_encoder train --data FOLDER --everyday SETS --head-to-head FILE
        --start FILE --out FILE --cache FOLDER [--steps N]
    python -m bench.learning.taught_encoder report --data FOLDER --head-to-head FILE
        --start FILE --out FILE --cache FOLDER [--apart FILE]

The teacher is all-mpnet-base-v2 (`bench.papers.larger_encoder` says how to get it), whose queries are trained on the
tasks by thin matrices with the contrastive loss; its vectors of tools stay. Where MiniLM learns how tasks are worded,
the larger one learns what a tool is good for: it finds tools of servers that no task of its training is about.

The target of a task is what the teacher and the adapter `start` say of every document (`SHARES`), each on the scale of
its deviation; that of a document is what they say of the other documents. A step reads 96 tasks and at most 112
documents: right ones, and those that the student or the target puts first. All others have the vectors of the last time
that they were read. The loss is the divergence of tasks, half of that of documents, and .3 of the contrastive loss.

The tasks are those of `distilled_encoder`, the wishes that come with foretool for servers that take part, and searches
of the web (`web_searches`). In the run that shipped, a mix of earlier students took the place of `start` in the
target (docs/decisions/0054).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from bench.kept_encoder import KeptEncoder, open_kept, open_vectors
from bench.learning.both_sides import divergence
from bench.learning.distilled_encoder import (
    RECIPE,
    SHARPNESS,
    STRUNG,
    Distilled,
    Teacher,
    deviation_of,
    measured,
    read_invented,
    together,
    with_invented,
    with_short_ones,
    without_tasks,
)
from bench.learning.shipped_encoder import PLAN, Material, SetsApart, base, material, scaled
from bench.learning.web_searches import web_searches
from bench.learning.wished_encoder import (
    Servers,
    apart_from,
    folders_of,
    make_wished_parser,
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
from foretool.retrieval.encoders import adapted, onnx
from foretool.retrieval.model_format import Floats

TEACHER = replace(PLAN, batch=64, epochs=1, rate=4e-4, tokens=(48, 64))
TEACHER_STEPS = 320
STUDENT = replace(PLAN, batch=96, epochs=4, rate=7e-4, tokens=(48, 48))
STEPS = 900
KEPT = 0.85
"""The share of the change that is kept."""
START = 0.5
"""The share of the earlier training that the student starts from."""
SHARES = (0.7, 0.3)
"""What the teacher and the adapter `start` count in the target."""
CONTRAST, DOCUMENTS = 0.3, 0.5
"""What the contrastive loss, and the divergence of documents, count beside that of tasks."""
RIGHT, READ, MOST_RIGHT = 80, 112, 3
"""Right documents and documents in all that a step reads at most, and right ones of one task."""
AHEAD = 6
"""Of so many first documents of the student, and of the target, one is drawn for each task."""
REFRESHED = (200, 600)
"""After these steps all documents are read again."""
WEB = 500
WEB_TOOLS = ("brave_web_search", "web_search_exa", "firecrawl_search", "perplexity_search")
"""The tools that are right for a search of the web."""


class Taught(Distilled):
    """A trainer of both sides with teachers."""

    contrast = CONTRAST
    first: Floats
    """(documents, dimension): the untrained encoder's vectors, which tell what says nearly the same."""
    of_documents: Sequence[Teacher]
    deviation_of_documents: float
    """Of the untrained encoder's cosines of a document."""
    _asked: TrainingBatch | None = None
    _said: Floats
    """What the teachers say of `_asked`, which a step asks for twice."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._draw = random.Random(PLAN.seed)
        self._fresh: tuple[list[int], Any] = [], None

    def _alike(self, places: Sequence[int]) -> NDArray[np.bool_]:
        return self._near(self.first, places) | self.without_tasks

    def _target(self, batch: TrainingBatch) -> Floats:
        if self._asked is not batch:
            self._asked, self._said = batch, super()._target(batch)
        return self._said

    def _tool_vectors(self, batch: TrainingBatch) -> Any:
        places = sorted(self._choose(batch), key=lambda at: len(self._documents[at]))
        third = -(-len(places) // 3)  # texts of like length share a batch
        parts = [places[at : at + third] for at in range(0, len(places), third)]
        read = self._torch.cat([self.encoder.vectors([self._documents[at] for at in part]) for part in parts])
        self._fresh = places, read
        return self._torch.from_numpy(self.vectors).index_copy(0, self._torch.tensor(places), read)

    def _choose(self, batch: TrainingBatch) -> list[int]:
        """The documents that this step reads."""
        right = [self._right(at) for at in batch.examples]
        wanted = [at for own in right for at in self._draw.sample(own, min(MOST_RIGHT, len(own)))]
        chosen = self._drawn(wanted)[:RIGHT]
        ahead = [self._draw.choice(np.argpartition(-row, AHEAD)[:AHEAD].tolist()) for row in self._target(batch)]
        ahead += [self._draw.choice(row[1:]) for row in batch.candidates if len(row) > 1]
        return list(dict.fromkeys([*chosen, *self._drawn(ahead)]))[:READ]

    def _drawn(self, places: Sequence[int]) -> list[int]:
        found = list(dict.fromkeys(places))
        self._draw.shuffle(found)
        return found

    def _loss(self, cosines: Any, batch: TrainingBatch) -> Any:
        torch, (places, read) = self._torch, self._fresh
        near = together(self.of_documents, places) * (self.deviation_of_documents / SHARPNESS)
        near[np.arange(len(places)), places] = -1e4  # a document is no neighbour of its own
        own = torch.tensor(places)
        others = (read @ torch.from_numpy(self.vectors).index_copy(0, own, read).T / SHARPNESS).scatter(
            1, own[:, None], -1e4
        )
        said = divergence(torch.from_numpy(near.astype(np.float32)), others, torch)
        return super()._loss(cosines, batch) + DOCUMENTS * said

    def _step(self, chosen: Any) -> float:
        value = super()._step(chosen)
        places, read = self._fresh
        self.vectors[places] = read.detach().float().numpy()
        if self.done in REFRESHED:
            self._vectors = self.encoder.embed(self._documents)
        return value


def tasks_of(folders: Sequence[Path], servers: Servers, encoder: KeptEncoder) -> Material:
    """What both are trained on."""
    made = with_wishes(material(folders, RECIPE, STRUNG, encoder), servers, encoder)
    made = with_invented(made, read_invented(), encoder)
    place = {text: at for at, text in enumerate(made.texts)}
    web = [place[embedded_text(document(each.tool))] for each in servers.trained if each.tool.name in WEB_TOOLS]
    searches = [Example(said, web[0], tuple(web[1:])) for said in web_searches(WEB) * 2] if web else []
    return made._replace(examples=with_short_ones(made.examples) + searches)


def teach(made: Material, larger: KeptEncoder, weights: encoders.Weights, cache: Path) -> tuple[Floats, Floats]:
    """Train the larger encoder's queries; return its vectors of the tasks and of the documents."""
    documents = larger.documents(made.texts)
    trainer = SetsApart(
        weights, made.texts, made.examples, TEACHER, cache / "larger-model", cache / "teacher.checkpoint",
        vectors=documents,
    )  # fmt: skip
    trainer.total = min(trainer.total, TEACHER_STEPS)
    trainer.sets = made.sets
    trainer.run(lambda done, total, loss: print(f"teacher, step {done} of {total}, loss {loss:.3f}", flush=True))
    said = trainer.encoder.tokens([each.query for each in made.examples], TEACHER.tokens[0])
    return trainer.encoder.embed(said), documents


def train(
    folders: Sequence[Path], servers: Servers, start: Path, cache: Path, first: KeptEncoder, larger: KeptEncoder,
    larger_weights: encoders.Weights, steps: int,
) -> adapters.Adapter:  # fmt: skip
    """Train the teacher, then the student on both sides."""
    made = tasks_of(folders, servers, first)
    tasks, documents = teach(made, larger, larger_weights, cache)
    shipped = adapters.loads(start.read_bytes())
    texts = [each.query for each in made.examples]
    before = adapted.AdaptedEncoder(base(), start.read_bytes()).queries(texts)
    student = Taught(
        base(), made.texts, made.examples, STUDENT, cache / "model", cache / "taught.checkpoint",
        start=scaled(shipped, START),
    )  # fmt: skip
    student.total = min(student.total, steps)
    student.sets, student.first = made.sets, made.vectors
    student.without_tasks = without_tasks(made, servers)
    student.teachers = [(tasks, documents, SHARES[0]), (before, made.vectors, SHARES[1])]
    student.of_documents = [(documents, documents, SHARES[0]), (made.vectors, made.vectors, SHARES[1])]
    student.deviation = deviation_of(first.queries(texts[::40]), made)
    student.deviation_of_documents = deviation_of(made.vectors[::25], made)
    student.run(lambda done, total, loss: print(f"step {done} of {total}, loss {loss:.3f}", flush=True))
    report = {"sets": dict(RECIPE), "tasks": len(texts), "seed": PLAN.seed, "steps": steps}
    return scaled(student.encoder.adapter(report), KEPT)


def on_both_sides(model: bytes, first: KeptEncoder) -> KeptEncoder:
    """The encoder that reads tasks and tools with an adapter."""
    file = onnx.installed_file(base()).read_bytes()
    made = onnx.OnnxEncoder(base(), adapters.apply_adapter(adapters.loads(model), file))
    key = f"both {base().key} {sha256(model).hexdigest()[:16]}"
    return KeptEncoder(made, first.vectors, key, f"{key} queries")


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments; train, or print the report."""
    parser = make_wished_parser("bench.learning.taught_encoder", __doc__)
    parser.add_argument("--steps", type=int, default=STEPS, help="of the student; default %(default)s")
    arguments = parser.parse_args(argv)
    cache, start, out = arguments.cache, arguments.start, arguments.out
    servers = servers_of(arguments)
    with open_vectors(cache) as vectors:
        first = open_kept(base(), vectors)
        if arguments.what == "train":
            weights = find_larger(cache / "larger")
            larger = open_kept(weights, vectors)
            made = train(folders_of(arguments), servers, start, cache, first, larger, weights, arguments.steps)
            out.write_bytes(made.dumps())
            return
        have = [*with_queries_of([start.read_bytes()], first), on_both_sides(out.read_bytes(), first)]
        for row in report(apart_from(measured(arguments.data, servers), queries_of(arguments.apart)), have):
            print_row(row, arguments.json, width=18)


if __name__ == "__main__":
    main()
