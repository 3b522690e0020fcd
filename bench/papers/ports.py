"""Compares PORTS, which trains the encoder, with its paper (Table 2): as published, as served, with a larger encoder.

The figures are R@1, R@2 and R@3 of each query's one gold tool. The paper does not say which tools it ranks, so each
figure stands for two pools: "all" tools of the set, and "test", the tools that the set's test part is about (for
toole_unseen and octopus_unseen the unseen tools, for others the gold tools of the file; left out where these are all
tools). Rows of encoders alone rank by cosine; rows that say "served" run the proxy's pipeline, with names and words.

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

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from bench.papers.larger_encoder import NoLarger, larger
from bench.retrieval.ranking import read_lines, read_tools
from bench.retrieval.ranking_methods import Embedder, Pool
from foretool.retrieval import adapters, encoders
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.encoders import Encoder, adapted
from foretool.retrieval.evaluation import interval
from foretool.retrieval.model_format import Floats, Learned
from foretool.retrieval.papers.ports import Loss, PublishedPlan, PublishedTrainer
from foretool.retrieval.pipeline import Pipeline, digest
from foretool.retrieval.rankers.learned import Experience
from foretool.retrieval.rankers.masstool import MassTool
from foretool.retrieval.rankers.ports import Ports
from foretool.retrieval.ranking import Query
from foretool.retrieval.training import Embed, Material
from foretool.retrieval.training.masstool import METHOD as PAST
from foretool.retrieval.training.ports import Answers, keep_called, shipped_adapter
from foretool.retrieval.training.ports_trainer import Example, Trainer
from foretool.storage.opening import open_store
from foretool.storage.records import Episode, Tool
from foretool.storage.stores import Store, VectorStore

SETS = ("octopus", "octopus_unseen", "toole_unseen", "bfcl_ports", "toole")
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
COMPARED_SETS = ("toole_unseen",)
"""Sets on which the losses are compared; on the others only what is served is trained, without a language model."""
LARGER_SETS = ("toole_unseen", "bfcl_ports")
PAST_SETS = ("toole", "bfcl_ports")
"""Sets whose tasks take tools that tasks before them took."""
CROSSED = ("toole", "octopus")
"""Sets of the same rows as toole_unseen and octopus_unseen, split otherwise: their queries may be among those that the
shipped encoder was trained on, so everything begins with the untrained ones."""
SERVED_SEED, MATERIAL_SEED = 42, 7
MANY = 2048
"""Tasks in the training of what is served."""
LARGER_MANY, LARGER_BATCH, REFRESH = 1024, 32, 12
"""Tasks for the larger encoder (on tools held out of training it stands still from 512 on), and how it goes through
them."""
MISFIT = "relevance"
"""The scope of bfcl_ports whose gold is a function that was offered and, by BFCL's own word, does not fit."""
Row = dict[str, Any]


class Recipe(NamedTuple):
    """One training of one set."""

    loss: Loss
    seed: int
    tasks: int
    epochs: int
    batch: int
    sides: Literal["both", "query"] = "query"
    goes_on: bool = False
    """From the adapter that comes with us, as `foretool learn` does; else from the untrained encoder."""

    @property
    def plan(self) -> PublishedPlan:
        return PublishedPlan(
            loss=self.loss, seed=self.seed, epochs=self.epochs, batch=self.batch, sides=self.sides, refresh=REFRESH
        )

    @property
    def told(self) -> Row:
        """What a row says of it."""
        return {"seed": self.seed, "tasks": self.tasks, "epochs": self.epochs}


class Remembered:
    """An encoder that embeds no query twice."""

    def __init__(self, encoder: Encoder, key: str, kept: VectorStore) -> None:
        self._encoder, self._key, self._kept = encoder, key, kept
        self._known = kept.load(key, kept.known(key))
        self.name = encoder.name

    def documents(self, texts: Sequence[str]) -> Floats:
        return self._encoder.documents(texts)

    def queries(self, texts: Sequence[str]) -> Floats:
        digests = [digest(text) for text in texts]
        missing = {each: text for each, text in zip(digests, texts, strict=True) if each not in self._known}
        if missing:
            # Alike lengths run together: a batch takes as long as its longest text.
            order = sorted(missing, key=lambda each: len(missing[each]))
            for start in range(0, len(order), 512):
                part = order[start : start + 512]
                rows = self._encoder.queries([missing[each] for each in part])
                new = {each: row.tobytes() for each, row in zip(part, rows, strict=True)}
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
    misfits: frozenset[int] = frozenset()
    """Queries whose gold tool, by the set's own word, does not fit them (`MISFIT`)."""

    @property
    def texts(self) -> list[str]:
        return [embedded_text(document(each)) for each in self.tools]


def is_there(path: Path) -> bool:
    """This file, or the same gzipped."""
    return path.exists() or path.with_name(f"{path.name}.gz").exists()


def read_world(folder: Path, queries: str) -> World:
    """A set; queries whose tool is not in the catalogue are left out."""
    tools = read_tools(folder)
    place: dict[str, int] = {}
    for at, tool in enumerate(tools):
        place.setdefault(tool.name, at)
    known = [row for row in read_lines(folder / queries) if row["calls"] and row["calls"][0] in place]
    asked = [(row["query"], place[row["calls"][0]]) for row in known]
    misfits = frozenset(at for at, row in enumerate(known) if row.get("scope") == MISFIT)
    seen = [row.get("seen_in_training") for row in read_lines(folder / "tools.jsonl")]
    test = [at for at, was in enumerate(seen) if was is False] or sorted({gold for _, gold in asked})
    examples = [
        Example(row["query"], place[row["calls"][0]])
        for row in (read_lines(folder / "train.jsonl") if is_there(folder / "train.jsonl") else ())
        if row["calls"][0] in place
    ]
    random.Random(7).shuffle(examples)
    texts, gold = [query for query, _ in asked], [at for _, at in asked]
    pools: dict[str, Sequence[int]] = {"all": range(len(tools))}
    if len(test) < len(tools):
        pools["test"] = test
    return World(folder.name, tools, examples, texts, gold, pools, misfits)


def joined(have: Sequence[Encoder]) -> Embed:
    """The vectors of all these encoders, one after the other."""
    return lambda texts: np.concatenate([each.queries(texts) for each in have], axis=1)


def hits(scores: Floats, world: World, pool: Sequence[int]) -> dict[int, list[float]]:
    """For each k, whether each query's tool is among the first k of the pool; `scores` (queries, tools)."""
    columns = np.asarray(pool)
    order = columns[np.argsort(-scores[:, columns], 1, kind="stable")[:, : max(RECALLS)]]
    found = order == np.asarray(world.gold)[:, None]
    return {k: found[:, :k].any(1).astype(float).tolist() for k in RECALLS}


def recalls(found: Mapping[int, Sequence[float]], misfits: frozenset[int] = frozenset()) -> Row:
    """R@k with the interval of the first; where there are misfits, once more without them."""
    row: Row = {f"r@{k}": round(fmean(values), 4) for k, values in found.items()}
    row["r@1_interval"] = [round(end, 4) for end in interval(found[1])]
    if misfits:
        fitting = {k: [each for at, each in enumerate(values) if at not in misfits] for k, values in found.items()}
        row |= {f"r@{k}_fitting": round(fmean(values), 4) for k, values in fitting.items()}
    return row


def rows(data: Path, queries: str, sets: Sequence[str] | None, cache: Path | None) -> Iterator[Row]:
    """See `bench.papers`."""
    with TemporaryDirectory() as scratch:
        kept = cache or Path(scratch)
        kept.mkdir(parents=True, exist_ok=True)
        with open_store(kept / "vectors.sqlite3") as store:
            names = [name for name in sets or SETS if is_there(data / name / queries)]
            benches = [Bench(read_world(data / name, queries), kept, store) for name in names]
            for each in benches:
                yield from each.rows()
            yield from with_larger(benches, kept)
            from bench.papers.ports_losses import compared

            for each in benches:
                if each.world.name in COMPARED_SETS:
                    yield from compared(each)


def with_larger(benches: Sequence[Bench], cache: Path) -> Iterator[Row]:
    """The rows of the larger encoder, or one for each set that says why there are none."""
    wanted = [each for each in benches if each.world.name in LARGER_SETS]
    why = f"{missing} not installed" if (missing := untrainable()) else ""
    try:
        weights = larger(cache)
    except NoLarger as error:
        why = why or str(error)
    if why:
        yield from ({**each.head, "method": "larger encoder", "skipped": why} for each in wanted)
        return
    for each in wanted:
        yield from each.larger(weights)


def untrainable() -> str:
    """What is missing to train with; empty where nothing is."""
    return ", ".join(each for each in ("torch", "sentence_transformers") if find_spec(each) is None)


class Bench:
    """One set."""

    def __init__(self, world: World, cache: Path, store: Store) -> None:
        self.world, self.cache = world, cache
        self.head: Row = {"set": world.name, "n": len(world.queries)}
        found = encoders.find("auto")
        self.weights = tuple(each.untrained for each in found) if world.name in CROSSED else found
        self.kept = store.vectors
        self.embedders = [self._opened(each, f"queries {each.query_key}") for each in self.weights]
        self.called, self.examples = keep_called(world.examples)

    def _opened(self, weights: encoders.Weights, key: str) -> Embedder:
        encoder = encoders.open_encoder(weights, self.cache / "encoders")
        return Embedder(Remembered(encoder, key, self.kept), weights.key, self.kept)

    @cached_property
    def base(self) -> encoders.Weights:
        """What is trained."""
        return self.weights[0].untrained

    @cached_property
    def untrained(self) -> list[Embedder]:
        """The encoders as their packages have them."""
        return [self._opened(each.untrained, f"queries {each.key}") for each in self.weights]

    @cached_property
    def vectors(self) -> Floats:
        """(tools, dimension), of the first encoder."""
        return self.documents(self.embedders[0])

    def rows(self) -> Iterator[Row]:
        """The paper's rows, and all of ours that the installed encoders have."""
        for method, told in (("paper: PORTS, BGE-base", PAPER), ("paper: REPLUG, BGE-base", PAPER_REPLUG)):
            if found := told.get(self.world.name):
                figures = dict(zip(("r@1", "r@2", "r@3"), found, strict=True))
                yield {**self.head, "method": method, "pool": "not said", **figures}
        if not self.embedders:
            yield from self.served("served, without encoders", {})
            yield {**self.head, "method": "trained", "skipped": f"no encoder installed; {encoders.INSTALL}"}
            return
        for embedder in self.untrained:
            yield from self.alone(f"{embedder.encoder.name}, untrained", embedder)
        if self.base is not self.weights[0]:
            yield from self.served("served, encoders untrained", {}, self.untrained)
            yield from self.alone(f"{self.weights[0].name}, as shipped", self.embedders[0])
        yield from self.served("served, nothing learned", {})
        past = self._past() if self.world.name in PAST_SETS else {}
        if past:
            yield from self.served("served with past tasks", past, seed=MATERIAL_SEED)
        if missing := untrainable():
            yield {**self.head, "method": "trained", "skipped": f"{missing} not installed"}
            return
        recipe = self.recipe("full")._replace(goes_on=self.base is not self.weights[0])
        model = self.trained(recipe)
        yield from self.ranked("full, this set's tasks", self.scores(model), **recipe.told)
        learned = {"ports": Ports(self.opened(model))}
        yield from self.served("served with full", learned, **recipe.told)
        if past:
            yield from self.served("served with past tasks and full", {**past, **learned}, **recipe.told)

    def alone(self, method: str, embedder: Embedder, **told: Any) -> Iterator[Row]:
        """Cosines of an encoder."""
        scores = embedder.encoder.queries(self.world.queries) @ self.documents(embedder).T
        yield from self.ranked(method, scores, **told)

    def larger(self, weights: encoders.Weights) -> Iterator[Row]:
        """Another encoder in the place of all: as it is, and with both sides trained."""
        recipe = self.recipe("contrastive", LARGER_BATCH, LARGER_MANY)._replace(sides="both")
        name = Path(weights.name).name
        for embedder, done, told in (
            (self.embedder(weights), "untrained", {}),
            (self.embedder(weights, recipe), f"{recipe.loss}, both sides", recipe.told),
        ):
            yield from self.alone(f"{name}, {done}", embedder, **told)
            yield from self.served(f"served with {name}, {done}", {}, [embedder], **told)

    def recipe(self, loss: Loss, batch: int = 64, most: int = MANY) -> Recipe:
        """What is served, on at most so many tasks; few are gone through several times."""
        many = min(most, len(self.examples))
        return Recipe(loss, SERVED_SEED, many, max(1, min(8, most // many)), batch)

    def ranked(self, method: str, scores: Floats, **told: Any) -> Iterator[Row]:
        """Cosines over each pool; (queries, tools)."""
        for pool, members in self.world.pools.items():
            head = {**self.head, "method": method, "pool": pool, "tools": len(members)}
            yield {**head, **recalls(hits(scores, self.world, members), self.world.misfits), **told}

    def served(
        self, method: str, models: Mapping[str, Learned], others: Sequence[Embedder] = (), **told: Any
    ) -> Iterator[Row]:
        """The pipeline over each pool; `others`: encoders in the place of those that are installed."""
        for pool, members in self.world.pools.items():
            pipeline = Pool([self.world.tools[at] for at in members], {}, others or self.embedders).pipeline()
            if models:
                pipeline.experience = Experience(models)
            head = {**self.head, "method": method, "pool": pool, "tools": len(members)}
            yield {**head, **recalls(self._found(pipeline), self.world.misfits), **told}

    def _found(self, pipeline: Pipeline) -> dict[int, list[float]]:
        found: dict[int, list[float]] = {k: [] for k in RECALLS}
        for query, gold in zip(self.world.queries, self.world.gold, strict=True):
            ranking = pipeline.rank(Query(tuple(query.splitlines())), limit=max(RECALLS))
            places = [each.tool for each in ranking.ranked]
            for k in RECALLS:
                found[k].append(float(self.world.tools[gold].id in places[:k]))
        return found

    def documents(self, embedder: Embedder) -> Floats:
        """(tools, dimension)"""
        texts = self.world.texts
        known = embedder.vectors(texts)
        return np.stack([np.frombuffer(known[digest(text)], np.float32) for text in texts])

    def scores(self, model: bytes, world: World | None = None) -> Floats:
        """Cosines of every query to every tool, as served; (queries, tools)."""
        found: Floats = self.opened(model).queries((world or self.world).queries) @ self.vectors.T
        return found

    def opened(self, model: bytes) -> Remembered:
        """The first encoder with what was trained."""
        key = f"queries {self.base.key} {sha256(model).hexdigest()[:16]}"
        return Remembered(adapted.opened(self.base, model, self.cache / "encoders"), key, self.kept)

    def _past(self) -> dict[str, Learned]:
        """What `foretool learn` makes of the same tasks without torch."""
        have = [each.encoder for each in self.embedders]
        episodes = tuple(Episode((self.world.tools[each.tool].id,), (each.query,)) for each in self.world.examples)
        material = Material(
            tuple(self.world.tools), episodes, queries=have[0].queries, readings=joined(have), seed=MATERIAL_SEED
        )
        return {"masstool": MassTool.loads(PAST.train(material, lambda doing, share: None))}

    def trainer(self, recipe: Recipe, checkpoint: Path | None = None, asked: Answers | None = None) -> Trainer:
        """Of the first encoder."""
        texts, asked = self.world.texts, asked or Answers()
        return PublishedTrainer(
            self.base, [texts[at] for at in self.called], self.examples[: recipe.tasks], recipe.plan,
            self.cache / "model", checkpoint, asked.useful, asked.scored, self.vectors[self.called],
            shipped_adapter(recipe.plan.rank) if recipe.goes_on else None,
        )  # fmt: skip

    def trained(self, recipe: Recipe, asked: Answers | None = None) -> bytes:
        """From the cache, or trained now; goes on where a killed run stood."""
        path = self.cache / f"{self.told(recipe)}.adapter"
        if path.exists():
            adapters.loads(data := path.read_bytes())
            return data
        trainer = self.trainer(recipe, path.with_suffix(".checkpoint"), asked)
        trainer.run()
        data = trainer.encoder.adapter({"set": self.world.name, **recipe._asdict()}).dumps()
        path.write_bytes(data)
        path.with_suffix(".checkpoint").unlink(missing_ok=True)
        return data

    def told(self, recipe: Recipe) -> str:
        """What a training is kept under."""
        told = msgspec.json.encode((self.world.name, recipe, msgspec.to_builtins(recipe.plan), len(self.examples)))
        return f"{self.world.name}-{recipe.loss}-{sha256(told).hexdigest()[:12]}"

    def embedder(self, weights: encoders.Weights, recipe: Recipe | None = None) -> Embedder:
        """Another encoder than the installed ones, through torch; trained on both sides where there is a recipe."""
        key = weights.key if recipe is None else f"{weights.key} {self.told(recipe)}"
        encoder = InTorch(weights, lambda: self._torch(weights, recipe))
        return Embedder(Remembered(encoder, f"queries {key}", self.kept), key, self.kept)

    def _torch(self, weights: encoders.Weights, recipe: Recipe | None) -> Trainer:
        if recipe is None:
            return PublishedTrainer(weights, (), (), PublishedPlan(), self.cache / "larger")
        texts = self.world.texts
        checkpoint = self.cache / f"larger-{self.told(recipe)}.checkpoint"
        trainer = PublishedTrainer(
            weights, [texts[at] for at in self.called], self.examples[: recipe.tasks], recipe.plan,
            self.cache / "larger", checkpoint,
        )  # fmt: skip
        trainer.run()
        return trainer


class InTorch:
    """`Encoder`, by a trainer that is made when it is first asked."""

    def __init__(self, weights: encoders.Weights, make: Callable[[], Trainer]) -> None:
        self.name = Path(weights.name).name
        self._make = make

    @cached_property
    def _trainer(self) -> Trainer:
        return self._make()

    def documents(self, texts: Sequence[str]) -> Floats:
        return self._trainer.embed_texts(documents=texts)[0]

    def queries(self, texts: Sequence[str]) -> Floats:
        return self._trainer.embed_texts(queries=texts)[1]
