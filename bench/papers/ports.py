"""Training the encoder (PORTS): the paper's table 2, the losses side by side on the same seeds, and what is served.

R@1, 2 and 3 of a query's one gold tool, over the whole catalogue of the set ("all") and over the tools that the set's
test part is about ("test": for toole_unseen and octopus_unseen the unseen ones, else the gold tools of the file), for
the paper does not say which it ranks. Encoders alone are cosines; "served" is the pipeline as the proxy runs it, names
and words included.

The losses are compared on one small budget that a CPU affords: `FEW` tasks of the training part, for each of which the
language model was asked about the right tool and five hard ones, four times through, batches of 16, thin matrices of
rank 16 beside the weights of all-MiniLM-L6-v2, queries only. What the paper does otherwise: both sides, all weights,
batches of 2, 10,000 tasks twice through, RoBERTa or BGE of 110 million weights, language models of 8 to 22 billion.
Needs torch (`foretool[train]`) and a language model (`foretool[llm]`); the rows that do not are printed without.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import numpy as np

from bench.methods import Embedder, Pool
from bench.retrieval import read_lines, read_tools
from foretool.retrieval import adapters, encoders
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.encoders import Encoder, adapted
from foretool.retrieval.evaluation import interval, paired_interval
from foretool.retrieval.learned import Floats
from foretool.retrieval.pipeline import Pipeline, digest
from foretool.retrieval.rankers.experience import Experience
from foretool.retrieval.rankers.ports import Ports
from foretool.retrieval.ranking import Query
from foretool.retrieval.training import continuation
from foretool.retrieval.training.ports import Asked, Example, Loss, Plan, Trainer, ask, only_called
from foretool.storage.records import Tool
from foretool.storage.store import Store
from foretool.storage.vectors import Vectors

SETS = ("toole_unseen", "bfcl_ports", "toole")
PAPER = {
    "toole": (0.6735, 0.7948, 0.8375),
    "toole_unseen": (0.8987, 0.9220, 0.9404),
    "bfcl_ports": (0.6720, 0.7323, 0.7810),
    "octopus": (0.975, 1.0, 1.0),
    "octopus_unseen": (0.975, 1.0, 1.0),
}
"""Table 2, L_PORTS on BGE-base with the best of three language models."""
PAPER_REPLUG = {
    "toole": (0.6723, 0.7754, 0.8106),
    "toole_unseen": (0.7460, 0.8624, 0.9030),
    "bfcl_ports": (0.6617, 0.7320, 0.7782),
    "octopus": (0.95, 1.0, 1.0),
    "octopus_unseen": (0.95, 1.0, 1.0),
}
RECALLS = (1, 2, 3)
FEW = 80
"""Tasks in the comparison of losses."""
COMPARED: tuple[Loss, ...] = ("contrastive", "replug", "ports", "full")
SEEDS = (42, 0)
COMPARED_QUERIES = 500
"""Of the file, drawn once; enough for paired differences of three points."""
COMPARED_SETS = ("toole_unseen",)
"""Sets on which the losses are compared; on the others only what is served is trained, without a language model."""
SERVED_SEED = 42
MANY = 2048
"""Tasks in the training of what is served."""
SEVERAL = "encoder.adapter"
"""What `bench.encoder train` made, looked for in the cache folder."""
Row = dict[str, Any]


class Recipe(NamedTuple):
    """One training of one set."""

    loss: Loss
    seed: int
    tasks: int
    epochs: int
    batch: int

    @property
    def plan(self) -> Plan:
        return Plan(loss=self.loss, seed=self.seed, epochs=self.epochs, batch=self.batch, sides="query")


class Remembered:
    """An encoder that embeds no query twice."""

    def __init__(self, encoder: Encoder, key: str, kept: Vectors) -> None:
        self._encoder, self._key, self._kept = encoder, key, kept
        self._known = kept.load(key, kept.known(key))
        self.name = encoder.name

    def documents(self, texts: Sequence[str]) -> Floats:
        return self._encoder.documents(texts)

    def queries(self, texts: Sequence[str]) -> Floats:
        digests = [digest(text) for text in texts]
        missing = {each: text for each, text in zip(digests, texts, strict=True) if each not in self._known}
        if missing:
            rows = self._encoder.queries(list(missing.values()))
            new = {each: row.tobytes() for each, row in zip(missing, rows, strict=True)}
            self._kept.save(self._key, new)
            self._known |= new
        return np.stack([np.frombuffer(self._known[each], np.float32) for each in digests])


class World(NamedTuple):
    """One data set."""

    name: str
    tools: Sequence[Tool]
    examples: Sequence[Example]
    """Of the training part, in an order drawn once."""
    queries: Sequence[str]
    gold: Sequence[int]
    pools: Mapping[str, Sequence[int]]

    @property
    def texts(self) -> list[str]:
        return [embedded_text(document(each)) for each in self.tools]


def read_world(folder: Path, queries: str) -> World:
    """A set; queries whose tool is not in the catalogue are left out."""
    tools = read_tools(folder)
    place: dict[str, int] = {}
    for at, tool in enumerate(tools):
        place.setdefault(tool.name, at)
    asked = [(row["query"], place[row["calls"][0]]) for row in read_lines(folder / queries) if row["calls"][0] in place]
    seen = [row.get("seen_in_training") for row in read_lines(folder / "tools.jsonl")]
    test = [at for at, known in enumerate(seen) if known is False] or sorted({gold for _, gold in asked})
    examples = [
        Example(row["query"], place[row["calls"][0]])
        for row in read_lines(folder / "train.jsonl")
        if row["calls"][0] in place
    ]
    random.Random(7).shuffle(examples)
    texts, gold = [query for query, _ in asked], [at for _, at in asked]
    return World(folder.name, tools, examples, texts, gold, {"all": range(len(tools)), "test": test})


def hits(scores: Floats, world: World, pool: Sequence[int]) -> dict[int, list[float]]:
    """For each k, whether each query's tool is among the first k of the pool; `scores` (queries, tools)."""
    columns = np.asarray(pool)
    order = columns[np.argsort(-scores[:, columns], 1, kind="stable")[:, : max(RECALLS)]]
    found = order == np.asarray(world.gold)[:, None]
    return {k: found[:, :k].any(1).astype(float).tolist() for k in RECALLS}


def recalls(found: Mapping[int, Sequence[float]]) -> Row:
    """R@k with the interval of the first."""
    row: Row = {f"r@{k}": round(fmean(values), 4) for k, values in found.items()}
    row["r@1_interval"] = [round(end, 4) for end in interval(found[1])]
    return row


def rows(data: Path, queries: str, sets: Sequence[str] | None, cache: Path | None) -> Iterator[Row]:
    """See `bench.papers`."""
    with TemporaryDirectory() as scratch:
        kept = cache or Path(scratch)
        kept.mkdir(parents=True, exist_ok=True)
        with Store.open(kept / "vectors.sqlite3") as store:
            for name in sets or SETS:
                if (data / name / queries).exists():
                    yield from Bench(read_world(data / name, queries), kept, store).rows()


class Bench:
    """One set."""

    def __init__(self, world: World, cache: Path, store: Store) -> None:
        self.world, self.cache = world, cache
        self.weights = [each.untrained for each in encoders.find("auto")]
        self.kept = Vectors(store)
        self.embedders = [
            Embedder(
                Remembered(encoders.open_encoder(each, cache / "encoders"), f"queries {each.key}", self.kept),
                each.key,
                self.kept,
            )
            for each in self.weights
        ]
        self.vectors = self._documents(self.embedders[0])  # (tools, dimension)
        self.called, self.examples = only_called(world.examples)
        self.asked = Asked()

    def rows(self) -> Iterator[Row]:
        world = self.world
        head = {"set": world.name, "n": len(world.queries)}
        for method, told in (("paper: PORTS, BGE-base", PAPER), ("paper: REPLUG, BGE-base", PAPER_REPLUG)):
            if world.name in told:
                yield {
                    **head,
                    "method": method,
                    "pool": "not said",
                    **dict(zip(("r@1", "r@2", "r@3"), told[world.name], strict=True)),
                }
        for embedder in self.embedders:
            scores = embedder.encoder.queries(world.queries) @ self._documents(embedder).T
            yield from self._rows(f"{embedder.encoder.name}, untrained", scores)
        several = self.cache / SEVERAL
        if several.exists():
            yield from self._rows("trained on several sets", self.scores(several.read_bytes()))
        missing = [each for each in ("torch", "sentence_transformers") if find_spec(each) is None]
        if world.name in COMPARED_SETS and not missing:
            yield from self._compared(dict(head))
        yield from self._served("served, nothing learned", None)
        if several.exists():
            yield from self._served("served, trained on several sets", several.read_bytes())
        if missing:
            yield {**head, "method": "trained", "skipped": f"{', '.join(missing)} not installed"}
            return
        many = min(MANY, len(self.examples))
        recipe = Recipe("full", SERVED_SEED, many, max(1, min(8, MANY // many)), 64)
        model = self.trained(recipe)
        yield from self._rows(f"full, {many} tasks", self.scores(model), seed=SERVED_SEED, epochs=recipe.epochs)
        yield from self._served(f"served with full, {many} tasks", model, seed=SERVED_SEED)

    def _compared(self, head: Row) -> Iterator[Row]:
        """The losses on the same tasks and seeds, and the full one against each of the others on the same queries."""
        try:
            scorer = continuation.open_scorer(os.environ.get("FORETOOL_LLM", "auto"))
        except continuation.ScorerError as error:
            yield {**head, "method": "losses", "skipped": str(error)}
            return
        with continuation.Kept(self.cache / "scores.txt") as kept:
            trainer = self.trainer(Recipe("full", SEEDS[0], FEW, 1, 16))
            self.asked = ask(trainer, [self.world.tools[at] for at in self.called], scorer, kept, most=10 * FEW)
        means = [[self.asked.means[at, each] for each in near] for at, near in self.asked.scored.items()]
        right = fmean(max(row) == row[0] for row in means)
        yield {
            **head,
            "method": "language model",
            "scorer": scorer.model,
            "pairs": self.asked.pairs,
            "right first": round(right, 3),
        }
        few = sorted(
            random.Random(7).sample(range(len(self.world.queries)), min(COMPARED_QUERIES, len(self.world.queries)))
        )
        some = self.world._replace(
            queries=[self.world.queries[at] for at in few], gold=[self.world.gold[at] for at in few]
        )
        head["n"] = len(few)
        found: dict[Loss, dict[str, list[float]]] = {}
        for loss in COMPARED:
            scores = [self.scores(self.trained(Recipe(loss, seed, FEW, 4, 16)), some) for seed in SEEDS]
            for pool, members in self.world.pools.items():
                each = [hits(one, some, members) for one in scores]
                mean = {k: [fmean(pair) for pair in zip(*(one[k] for one in each), strict=True)] for k in RECALLS}
                found.setdefault(loss, {})[pool] = mean[1]
                by_seed = [round(fmean(one[1]), 4) for one in each]
                yield {
                    **head,
                    "method": f"{loss}, {FEW} tasks",
                    "pool": pool,
                    **recalls(mean),
                    "seeds": list(SEEDS),
                    "r@1 by seed": by_seed,
                }
        for loss in COMPARED[:-1]:
            for pool in self.world.pools:
                ours, theirs = found["full"][pool], found[loss][pool]
                ends = [round(end, 4) for end in paired_interval(ours, theirs)]
                yield {
                    **head,
                    "method": f"full over {loss}",
                    "pool": pool,
                    "r@1": round(fmean(ours) - fmean(theirs), 4),
                    "r@1_interval": ends,
                }

    def _rows(self, method: str, scores: Floats, **told: Any) -> Iterator[Row]:
        for pool, members in self.world.pools.items():
            head = {
                "set": self.world.name,
                "method": method,
                "n": len(self.world.queries),
                "pool": pool,
                "tools": len(members),
            }
            yield {**head, **recalls(hits(scores, self.world, members)), **told}

    def _served(self, method: str, model: bytes | None, **told: Any) -> Iterator[Row]:
        """The pipeline over each pool."""
        for pool, members in self.world.pools.items():
            pipeline = Pool([self.world.tools[at] for at in members], {}, self.embedders).pipeline()
            if model is not None:
                pipeline.experience = Experience({"ports": Ports(self.opened(model))})
            found = self._ranked(pipeline)
            head = {
                "set": self.world.name,
                "method": method,
                "n": len(self.world.queries),
                "pool": pool,
                "tools": len(members),
            }
            yield {**head, **recalls(found), **told}

    def _ranked(self, pipeline: Pipeline) -> dict[int, list[float]]:
        found: dict[int, list[float]] = {k: [] for k in RECALLS}
        for query, gold in zip(self.world.queries, self.world.gold, strict=True):
            ranking = pipeline.rank(Query(tuple(query.splitlines())), limit=max(RECALLS))
            places = [each.tool for each in ranking.ranked]
            for k in RECALLS:
                found[k].append(float(self.world.tools[gold].id in places[:k]))
        return found

    def _documents(self, embedder: Embedder) -> Floats:
        texts = self.world.texts
        known = embedder.vectors(texts)
        return np.stack([np.frombuffer(known[digest(text)], np.float32) for text in texts])

    def scores(self, model: bytes, world: World | None = None) -> Floats:
        """Cosines of every query to every tool, as served; (queries, tools)."""
        found: Floats = self.opened(model).queries((world or self.world).queries) @ self.vectors.T
        return found

    def opened(self, model: bytes) -> Remembered:
        key = f"queries {self.weights[0].key} {sha256(model).hexdigest()[:16]}"
        return Remembered(adapted.opened(self.weights[0], model, self.cache / "encoders"), key, self.kept)

    def trainer(self, recipe: Recipe, checkpoint: Path | None = None) -> Trainer:
        texts = self.world.texts
        return Trainer(
            self.weights[0], [texts[at] for at in self.called], self.examples[: recipe.tasks], recipe.plan,
            self.cache / "model", checkpoint, self.asked.useful, self.asked.scored, self.vectors[self.called],
        )  # fmt: skip

    def trained(self, recipe: Recipe) -> bytes:
        """From the cache, or trained now; goes on where a killed run stood."""
        told = msgspec.json.encode((self.world.name, recipe, msgspec.to_builtins(recipe.plan), len(self.examples)))
        path = self.cache / f"{self.world.name}-{recipe.loss}-{sha256(told).hexdigest()[:12]}.adapter"
        if path.exists():
            adapters.loads(data := path.read_bytes())
            return data
        trainer = self.trainer(recipe, path.with_suffix(".checkpoint"))
        trainer.run()
        data = trainer.adapter({"set": self.world.name, **recipe._asdict()}).dumps()
        path.write_bytes(data)
        path.with_suffix(".checkpoint").unlink(missing_ok=True)
        return data
