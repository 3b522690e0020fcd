"""Trains the queries of the encoder that shipped before `taught_encoder`, which goes on from half of it.

    python -m bench.learning.shipped_encoder train --data FOLDER --out FILE --cache FOLDER
    python -m bench.learning.shipped_encoder continue --data FOLDER --everyday SETS --start FILE --out FILE ...
    python -m bench.learning.shipped_encoder report --data FOLDER --adapter FILE --cache FOLDER [--sets a,b] [--json]

The training parts are public and licensed: those of toole_unseen (MIT; none of its unseen tools), Seal-Tools
(Apache-2.0), UltraTool as filtered by GNN4TaskPlan (MIT), the torchhub part of APIBench (Apache-2.0) and Octopus
(Apache-2.0; none of its unseen tools). Two to four tasks of one set are also strung together, because no other tasks
are long and need many tools. Nothing of BFCL, LiveMCPBench, StableToolBench, API-Bank, MCP-Bench or MCPToolBench++ is
trained on. Training is one pass in batches of 64 with the contrastive loss of PORTS' trainer over all tools of all
sets; every tool of a task is right at once, and only queries are trained (`retrieval.training.ports_trainer`). The
learned change is then scaled by `SCALE` (between the untrained weights and the trained ones, as in WiSE-FT: Wortsman et
al. 2022). An interrupted run continues from FOLDER.

`continue` trains the result further on less of the same and on everyday wishes (`bench.learning.everyday_sets`), where
a tool of another set that says nearly the same is no negative, and blends what it learned with what was there
(`BLEND`), brought back to the same rank.

The report gives recall at 1 and 5 on the development part of each set: the encoder alone, before and after, and in the
sum with the words and the other encoders as it is served, where the trained encoder takes the place of the untrained
one. docs/decisions/0054 says what took its place.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from bench.datasets import Task, read_rows, read_tasks, read_tools
from bench.kept_encoder import KeptEncoder, open_kept, open_vectors
from bench.metrics import recall
from bench.options import add_json, make_parser
from bench.reports import Row, difference, print_row, rounded
from bench.retrieval.pool import Pool
from bench.retrieval.ranking_methods import build_method
from foretool.learning.training.ports_trainer import Example, PortsTrainer, TrainingBatch, TrainingPlan
from foretool.retrieval import adapters, encoders
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.encoders import Encoder, Weights, adapted
from foretool.retrieval.model_format import Floats
from foretool.storage.records import Tool

RECIPE = (("toole_unseen", 5000), ("sealtools", 700), ("ultratool", 1400), ("apibench", 600), ("octopus_unseen", 160))
"""Training parts, and how many tasks of each at most."""
DRAW = 3
STRUNG = 0.3
"""Tasks that are strung together, as a share of the set's tasks."""
PLAN = TrainingPlan(batch=64, epochs=1, seed=42, tokens=(128, 64))
EVERYDAY = (
    ("toole_unseen", 1200), ("sealtools", 300), ("ultratool", 500), ("apibench", 150), ("octopus_unseen", 60),
    ("clinc", 1900), ("nl2bash", 700), ("callnavi", 726), ("nestful", 169), ("hwu", 1375),
)  # fmt: skip
"""The sets of the second training, and how many tasks of each at most."""
EVERYDAY_STRUNG = 0.2
EVERYDAY_PLAN = replace(PLAN, rate=5e-4)
ALIKE = 0.6
"""A tool of another set whose text has this cosine to a right one may be right too."""
BLEND = 0.75
"""The share of the second training; the largest of 1, .75 and .5 that lost nothing served beyond its error on training
parts of sets that took no part."""
SCALE = 0.75
"""The largest of 1, .75 and .5 that lost nothing beyond its error, alone or served, on the training parts of sets that
took no part."""
SEEN_ONLY = ("toole_unseen", "octopus_unseen")
"""Sets that mark the tools that training must not see."""
CALLED_ONLY = ("apibench",)
"""Sets whose other tools belong to parts that are not trained on."""
UNSEEN = ("toole_unseen", "octopus_unseen", "bfcl_ports", "stabletoolbench", "apibank", "mcptoolbenchpp", "mcpbench")
"""Sets whose queried tools took no part in training."""


def base() -> Weights:
    """The weights that are trained: those of the first encoder as its package has it."""
    return encoders.MANIFEST[0].untrained


class Material(NamedTuple):
    """What is trained on."""

    texts: list[str]
    """The documents of all sets."""
    vectors: Floats
    sets: NDArray[np.int64]
    """(texts,): the set of each document."""
    examples: list[Example]


def material(
    folders: Sequence[Path], recipe: Sequence[tuple[str, int]], share: float, encoder: KeptEncoder
) -> Material:
    """The documents of all sets of a recipe with their vectors, and their tasks; each set is in the first of the
    folders that has it. `share`: how many tasks are strung together."""
    draw = random.Random(DRAW)
    texts: list[str] = []
    sets: list[int] = []
    by_set: list[list[Example]] = []
    for number, (name, most) in enumerate(recipe):
        folder = next(each / name for each in folders if (each / name).is_dir())
        read, place, rows = read_trained(folder, len(texts))
        texts += read
        sets += [number] * len(read)
        draw.shuffle(rows)
        by_set.append([_example(row["query"], [place[call] for call in row["calls"]], draw) for row in rows[:most]])
    examples = [each for own in by_set for each in own] + strung(by_set, share)
    return Material(texts, encoder.documents(texts), np.asarray(sets), examples)


def _example(query: str, calls: Sequence[int], draw: random.Random) -> Example:
    right = list(dict.fromkeys(calls))
    chosen = draw.choice(right)
    return Example(query, chosen, tuple(each for each in right if each != chosen))


def strung(by_set: Sequence[Sequence[Example]], share: float = STRUNG) -> list[Example]:
    """Long tasks that need many tools: two to four tasks of a set as one."""
    draw = random.Random(11)
    found = []
    for own in by_set:
        for _ in range(int(share * len(own))):
            parts = draw.sample(own, draw.randint(2, 4))
            right = list(dict.fromkeys(at for each in parts for at in (each.tool, *each.also)))
            found.append(Example(" ".join(each.query for each in parts), right[0], tuple(right[1:])))
    return found


Recalls = dict[int, list[float]]
"""By k, the recall of each query."""


class SeveralRight(PortsTrainer):
    """A trainer to which every tool of a task is right, and no right tool is a negative of another."""

    def _loss(self, cosines: Any, batch: TrainingBatch) -> Any:
        """The mean over the batch of the mean loss over a task's tools."""
        torch = self._torch
        scores = cosines / self.plan.temperature
        right = [self._right(at) for at in batch.examples]
        shut = torch.zeros_like(scores, dtype=torch.bool)
        for row, places in enumerate(right):
            shut[row, places] = True
            shut[row] |= torch.from_numpy(self._alike(places))
        others = torch.logsumexp(scores.masked_fill(shut, -1e9), 1)
        # All at once: the gradient of each row taken by itself would be as large as all scores.
        rows = torch.tensor([row for row, places in enumerate(right) for _ in places])
        columns = torch.tensor([place for places in right for place in places])
        shares = torch.tensor([1.0 / len(places) for places in right for _ in places])
        own = scores[rows, columns]
        return ((torch.logaddexp(own, others[rows]) - own) * shares).sum() / len(right)

    def _alike(self, places: Sequence[int]) -> NDArray[np.bool_]:
        """Which documents may be right too, (documents,)."""
        return np.zeros(len(self.vectors), np.bool_)

    def _right(self, example: int) -> list[int]:
        return list(dict.fromkeys((self.examples[example].tool, *self.examples[example].also)))


class SetsApart(SeveralRight):
    """Tools of other sets that say nearly the same as a right one are no negatives."""

    sets: NDArray[np.int64]
    """(documents,): the set of each."""

    def _alike(self, places: Sequence[int]) -> NDArray[np.bool_]:
        near: NDArray[np.bool_] = (self.vectors @ self.vectors[list(places)].T).max(1) > ALIKE
        near &= self.sets != self.sets[places[0]]
        return near


def blended(old: Adapter, new: Adapter, share: float) -> Adapter:
    """The changes of both, `share` of the new one, as the nearest matrices of the same rank."""
    return mixed([(old, 1 - share), (new, share)], {**new.report, "blend": share})


def mixed(parts: Sequence[tuple[Adapter, float]], report: Row) -> Adapter:
    """The sum of several changes, each times its share, as the nearest matrices of the first one's rank."""
    first = parts[0][0]
    changes = {}
    for name, (left, _) in first.changes.items():
        lefts, left_rest = np.linalg.qr(np.concatenate([each.changes[name][0] * share for each, share in parts], 1))
        rights, right_rest = np.linalg.qr(np.concatenate([each.changes[name][1] for each, _ in parts], 0).T)
        rows, sizes, columns = np.linalg.svd(left_rest @ right_rest.T)
        rank, root = left.shape[1], np.sqrt(sizes[: left.shape[1]])
        made = lefts @ rows[:, :rank] * root, root[:, None] * (columns[:rank] @ rights.T)
        changes[name] = (made[0].astype(np.float32), made[1].astype(np.float32))
    return Adapter(first.base, changes, report)


def scaled(adapter: Adapter, scale: float) -> Adapter:
    """The adapter with its change multiplied by `scale`."""
    changes = {name: (left * np.float32(scale), right) for name, (left, right) in adapter.changes.items()}
    return Adapter(adapter.base, changes, {**adapter.report, "scale": scale})


def read_trained(folder: Path, first: int) -> tuple[list[str], dict[str, int], list[Row]]:
    """The texts of the tools of a set that training may see, the number of each tool by name and id, counted from
    `first`, and the tasks that call no other tool."""
    tools, rows = read_tools(folder), read_rows(folder / "train.jsonl")
    kept = trained_on(folder, tools, rows)
    place: dict[str, int] = {}
    for at, tool in enumerate(kept, first):
        place.setdefault(tool.name, at)
        place[str(tool.id)] = at
    rows = [row for row in rows if row["calls"] and all(call in place for call in row["calls"])]
    return [embedded_text(document(tool)) for tool in kept], place, rows


def trained_on(folder: Path, tools: list[Tool], rows: Sequence[Row]) -> list[Tool]:
    """The tools of a set that training may see."""
    if folder.name in SEEN_ONLY:
        seen = [row["seen_in_training"] for row in read_rows(folder / "tools.jsonl")]
        return [tool for tool, known in zip(tools, seen, strict=True) if known]
    if folder.name in CALLED_ONLY:
        called = {call for row in rows for call in row["calls"]}
        return [tool for tool in tools if tool.name in called]
    return tools


def train(data: Path, out: Path, cache: Path, encoder: KeptEncoder) -> None:
    """Train, and write the adapter to `out`."""
    made = material([data], RECIPE, STRUNG, encoder)
    trainer = SeveralRight(
        base(), made.texts, made.examples, PLAN, cache / "model", cache / "encoder.checkpoint", vectors=made.vectors
    )
    trainer.run(_show_steps())
    out.write_bytes(scaled(trainer.encoder.adapter(_report(made, RECIPE)), SCALE).dumps())


def train_on(folders: Sequence[Path], start: Path, out: Path, cache: Path, encoder: KeptEncoder) -> None:
    """Train the adapter `start` further on everyday wishes, and write the blend of both to `out`."""
    made = material(folders, EVERYDAY, EVERYDAY_STRUNG, encoder)
    found = train_further(SetsApart, made, start, cache, "everyday", _report(made, EVERYDAY), BLEND)
    out.write_bytes(found.dumps())


def train_further(
    kind: type[SetsApart], made: Material, start: Path, cache: Path, name: str, report: Row, share: float
) -> Adapter:
    """Train the adapter `start` further, and return the blend of both, `share` of the new one; `name` is that of the
    checkpoint."""
    old = adapters.loads(start.read_bytes())
    trainer = kind(
        base(), made.texts, made.examples, EVERYDAY_PLAN, cache / "model", cache / f"{name}.checkpoint",
        vectors=made.vectors, start=old,
    )  # fmt: skip
    trainer.sets = made.sets
    trainer.run(_show_steps())
    return blended(old, trainer.encoder.adapter(report), share)


def _show_steps() -> Callable[[int, int, float], None]:
    started = time.monotonic()

    def show_step(done: int, total: int, loss: float) -> None:
        print(f"step {done} of {total}, loss {loss:.3f}, {(time.monotonic() - started) / 60:.1f} min", flush=True)

    return show_step


def _report(made: Material, recipe: Sequence[tuple[str, int]]) -> Row:
    return {"sets": dict(recipe), "tasks": len(made.examples), "documents": len(made.texts), "seed": PLAN.seed}


class QueriesOnly:
    """Embeds queries with the trained encoder and documents with the untrained one, whose name it has."""

    def __init__(self, trained: Encoder, base: Encoder) -> None:
        self._trained, self._base, self.name = trained, base, base.name

    def documents(self, texts: Sequence[str]) -> Floats:
        return self._base.documents(texts)

    def queries(self, texts: Sequence[str]) -> Floats:
        return self._trained.queries(texts)


def report(data: Path, model: bytes, sets: Sequence[str], untrained: Sequence[KeptEncoder]) -> Iterator[Row]:
    """A row for each set and ranking: recall before and after, and the interval of the gain."""
    weights, first = base(), untrained[0]
    key = f"queries {weights.key} {sha256(model).hexdigest()[:16]}"
    adapter = adapted.AdaptedEncoder(weights, model)
    trained = KeptEncoder(QueriesOnly(adapter, first.encoder), first.vectors, first.key, key)
    after = [trained, *untrained[1:]]
    for name in sets:
        if not (data / name / "dev.jsonl").exists():
            continue
        tools = read_tools(data / name)
        tasks = read_tasks(data / name / "dev.jsonl", tools)
        pools = {"all": tools}
        if name in SEEN_ONLY:
            seen = [row["seen_in_training"] for row in read_rows(data / name / "tools.jsonl")]
            pools["unseen tools"] = [tool for tool, known in zip(tools, seen, strict=True) if not known]
        for pool, members in pools.items():
            for said, before_after in (
                ("encoder alone", [alone(members, tasks, each) for each in (first, after[0])]),
                ("served", [served(members, tasks, each) for each in (untrained, after)]),
            ):
                yield {"set": name, "method": said, "n": len(tasks), "pool": pool, **gains(*before_after)}


def gains(before: Recalls, after: Recalls) -> Row:
    """The means before and after, and the interval of the mean difference."""
    row: Row = {}
    for k in before:
        row[f"r@{k}"] = rounded([fmean(each[k]) for each in (before, after)])
        row[f"r@{k}_gain"] = difference(after[k], before[k])[1:]
    return row


def alone(tools: Sequence[Tool], tasks: Sequence[Task], encoder: KeptEncoder) -> Recalls:
    """Recalls by the cosine."""
    vectors = encoder.documents([embedded_text(document(tool)) for tool in tools])
    scores = encoder.queries([task.query for task in tasks]) @ vectors.T
    ranked = [[tools[at].id for at in row] for row in np.argsort(-scores, 1, kind="stable")[:, :5]]
    return {k: [recall(row, task.gold, k) for row, task in zip(ranked, tasks, strict=True)] for k in (1, 5)}


def served(tools: Sequence[Tool], tasks: Sequence[Task], have: Sequence[KeptEncoder]) -> Recalls:
    """Recalls by the sum of words and encoders, each query as one text."""
    search = build_method("hybrid", Pool(tools, {}, have))
    ranked = [search(task.query)[:5] for task in tasks]
    return {k: [recall(row, task.gold, k) for row, task in zip(ranked, tasks, strict=True)] for k in (1, 5)}


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments; train, or print the report."""
    parser = make_parser("bench.learning.shipped_encoder", __doc__)
    parser.add_argument("what", choices=("train", "continue", "report"))
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER", help="keeps vectors and checkpoints")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--everyday", type=Path, metavar="FOLDER", help="what `bench.learning.everyday_sets` wrote")
    parser.add_argument("--start", type=Path, metavar="FILE", help="the adapter that `continue` trains further")
    parser.add_argument("--adapter", type=Path, metavar="FILE")
    parser.add_argument("--sets", default=",".join(UNSEEN))
    add_json(parser)
    arguments = parser.parse_args(argv)
    cache: Path = arguments.cache
    with open_vectors(cache) as vectors:
        opened = [open_kept(each.untrained, vectors) for each in encoders.resolve_weights("auto")]
        if arguments.what == "train":
            train(arguments.data, arguments.out, cache, opened[0])
            return
        if arguments.what == "continue":
            folders = [arguments.everyday, arguments.data]
            train_on(folders, arguments.start, arguments.out, cache, opened[0])
            return
        model = arguments.adapter.read_bytes()
        for row in report(arguments.data, model, arguments.sets.split(","), opened):
            print_row(row, arguments.json, width=14)


if __name__ == "__main__":
    main()
