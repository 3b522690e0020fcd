"""One data set of the PORTS benchmark: its tools and tasks, its trainings, and how its queries are scored."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from math import log2
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from bench.datasets import is_there, place_by_name, read_rows, read_tools
from bench.kept_encoder import KeptEncoder, joined_queries, open_kept
from bench.papers.published.ports import Loss, PublishedPlan, PublishedTrainer, embed_texts
from bench.reports import Row, mean_row
from bench.retrieval.pool import Pool
from foretool.learning.rankers.masstool import MassTool
from foretool.learning.training import Material
from foretool.learning.training.continuation import write_call
from foretool.learning.training.masstool import METHOD as PAST
from foretool.learning.training.ports import ModelAnswers, keep_called, shipped_adapter
from foretool.learning.training.ports_trainer import Example, PortsTrainer
from foretool.retrieval import adapters, encoders
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.encoders import adapted
from foretool.retrieval.model_format import Floats
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.learned import LearnedModel
from foretool.retrieval.ranking import Query
from foretool.storage.records import Episode, Tool
from foretool.storage.sql.artifacts import VectorStore

RECALLS = (1, 2, 3)
GAINS = (1, 3, 5)
DEPTH = 5
"""Ranks beyond this are not told apart."""
CROSSED = ("toole", "octopus")
"""Sets with the rows of toole_unseen and octopus_unseen, split otherwise. The shipped encoder may have been trained on
their queries, so everything begins with untrained encoders."""
SERVED_SEED, MATERIAL_SEED = 42, 7
MANY = 2048
"""Most tasks in the training of what is served."""
REFRESH = 12
"""Steps after which the trainer embeds the tools again and chooses hard negatives again."""
MISFIT = "relevance"
"""The scope of bfcl_ports whose gold is a function that was offered although BFCL says that it does not fit."""


class Recipe(NamedTuple):
    """One training of one set."""

    loss: Loss
    seed: int
    tasks: int
    epochs: int
    batch: int
    sides: Literal["both", "query"] = "query"
    goes_on: bool = False
    """Whether it begins with the shipped adapter, as `foretool learn` does; else with the untrained encoder."""
    share: float = PublishedPlan().share
    gamma: float = PublishedPlan().gamma

    @property
    def plan(self) -> PublishedPlan:
        return PublishedPlan(
            loss=self.loss, seed=self.seed, epochs=self.epochs, batch=self.batch, sides=self.sides, refresh=REFRESH,
            share=self.share, gamma=self.gamma,
        )  # fmt: skip

    @property
    def told(self) -> Row:
        """What a row says of the training."""
        return {"seed": self.seed, "tasks": self.tasks, "epochs": self.epochs}


class World(NamedTuple):
    """One data set."""

    name: str
    tools: Sequence[Tool]
    examples: Sequence[Example]
    """The tasks of the training part, in an order drawn once."""
    queries: Sequence[str]
    gold: Sequence[int]
    pools: Mapping[str, Sequence[int]]
    misfits: frozenset[int] = frozenset()
    """Queries whose gold tool does not fit them, as the set itself says (`MISFIT`)."""

    @property
    def texts(self) -> list[str]:
        return [embedded_text(document(each)) for each in self.tools]


def read_world(folder: Path, queries: str) -> World:
    """Read a set; a query of several tools is one for each, and queries whose tool is not in the catalogue are left
    out."""
    tools = read_tools(folder)
    place = place_by_name(tools)
    asked_rows = read_rows(folder / queries)
    known = [(row, call) for row in asked_rows for call in dict.fromkeys(row["calls"]) if call in place]
    asked = [(row["query"], place[call]) for row, call in known]
    misfits = frozenset(at for at, (row, _) in enumerate(known) if row.get("scope") == MISFIT)
    seen = [row.get("seen_in_training") for row in read_rows(folder / "tools.jsonl")]
    test = [at for at, was in enumerate(seen) if was is False] or sorted({gold for _, gold in asked})
    examples = [
        each
        for row in (read_rows(folder / "train.jsonl") if is_there(folder / "train.jsonl") else ())
        for each in examples_of_row(row, place)
    ]
    random.Random(7).shuffle(examples)
    texts, gold = [query for query, _ in asked], [at for _, at in asked]
    pools: dict[str, Sequence[int]] = {"all": range(len(tools))}
    if len(test) < len(tools):
        pools["test"] = test
    return World(folder.name, tools, examples, texts, gold, pools, misfits)


def examples_of_row(row: Mapping[str, Any], place: Mapping[str, int]) -> Iterator[Example]:
    """Yield an example for each tool of a line, with its call where the set has the arguments."""
    right = [place[call] for call in dict.fromkeys(row["calls"]) if call in place]
    for tool in right:
        name = next(call for call in row["calls"] if place.get(call) == tool)
        arguments = row["args"][row["calls"].index(name)] if row.get("args") else None
        call = row.get("answer") or (write_call(name, json.dumps(arguments)) if arguments is not None else "")
        yield Example(row["query"], tool, tuple(each for each in right if each != tool), call)


def ranks(scores: Floats, world: World, pool: Sequence[int]) -> list[int]:
    """The rank of each query's tool in the pool, 0 beyond `DEPTH`; `scores` (queries, tools)."""
    columns = np.asarray(pool)
    order = columns[np.argsort(-scores[:, columns], 1, kind="stable")[:, :DEPTH]]
    found = order == np.asarray(world.gold)[:, None]
    return [int(row.argmax()) + 1 if row.any() else 0 for row in found]


def hits(places: Sequence[int]) -> dict[int, list[float]]:
    """For each k, whether each query's tool is among the first k, from its rank."""
    return {k: [float(0 < place <= k) for place in places] for k in RECALLS}


def gains(places: Sequence[int]) -> Row:
    """NDCG@k of one right tool a query: 1 / log2(1 + rank)."""
    return {
        f"ndcg@{k}": round(fmean(1 / log2(1 + place) if 0 < place <= k else 0.0 for place in places), 4) for k in GAINS
    }


def recalls(found: Mapping[int, Sequence[float]], misfits: frozenset[int] = frozenset()) -> Row:
    """R@k with the interval of the first; where there are misfits, also without them."""
    row: Row = {f"r@{k}": round(fmean(values), 4) for k, values in found.items()}
    row |= mean_row("r@1", found[1])
    if misfits:
        fitting = {k: [each for at, each in enumerate(values) if at not in misfits] for k, values in found.items()}
        row |= {f"r@{k}_fitting": round(fmean(values), 4) for k, values in fitting.items()}
    return row


def untrainable() -> str:
    """The packages that training lacks, for people; empty where it lacks none."""
    return ", ".join(each for each in ("torch", "sentence_transformers") if find_spec(each) is None)


class Bench:
    """The trainings and rows of one set."""

    def __init__(self, world: World, cache: Path, vectors: VectorStore) -> None:
        self.world, self.cache = world, cache
        self.head: Row = {"set": world.name, "n": len(world.queries)}
        found = encoders.resolve_weights("auto")
        self.weights = tuple(each.untrained for each in found) if world.name in CROSSED else found
        self.kept = vectors
        self.encoders = [self._open(each) for each in self.weights]
        self.called, self.examples = keep_called(world.examples)

    def _open(self, weights: encoders.Weights) -> KeptEncoder:
        return open_kept(weights, self.kept)

    @cached_property
    def base(self) -> encoders.Weights:
        """The weights that are trained."""
        return self.weights[0].untrained

    @cached_property
    def untrained(self) -> list[KeptEncoder]:
        """The encoders as their packages have them."""
        return [self._open(each.untrained) for each in self.weights]

    @cached_property
    def vectors(self) -> Floats:
        """(tools, dimension), by the first encoder."""
        return self.encoders[0].documents(self.world.texts)

    def alone(self, method: str, encoder: KeptEncoder, **told: Any) -> Iterator[Row]:
        """Rows of an encoder alone, by cosine."""
        scores = encoder.queries(self.world.queries) @ encoder.documents(self.world.texts).T
        yield from self.ranked(method, scores, **told)

    def recipe(self, loss: Loss, batch: int = 64, most: int = MANY) -> Recipe:
        """The training of what is served, on at most `most` tasks; a small set is gone through several times."""
        many = min(most, len(self.examples))
        return Recipe(loss, SERVED_SEED, many, max(1, min(8, most // many)), batch)

    def ranked(self, method: str, scores: Floats, **told: Any) -> Iterator[Row]:
        """A row for each pool; `scores` (queries, tools)."""
        for pool, members in self.world.pools.items():
            head = {**self.head, "method": method, "pool": pool, "tools": len(members)}
            places = ranks(scores, self.world, members)
            yield {**head, **recalls(hits(places), self.world.misfits), **gains(places), **told}

    def served(
        self, method: str, models: Mapping[str, LearnedModel], others: Sequence[KeptEncoder] = (), **told: Any
    ) -> Iterator[Row]:
        """Rows of the proxy's pipeline, one for each pool; `others`: encoders in place of the installed ones."""
        for pool, members in self.world.pools.items():
            tools = [self.world.tools[at] for at in members]
            pipeline = Pool(tools, {}, others or self.encoders).pipeline(models=models)
            head = {**self.head, "method": method, "pool": pool, "tools": len(members)}
            places = self._places(pipeline)
            yield {**head, **recalls(hits(places), self.world.misfits), **gains(places), **told}

    def _places(self, pipeline: Pipeline) -> list[int]:
        asked = zip(self.world.queries, self.world.gold, strict=True)
        return [
            pipeline.rank(Query(tuple(query.splitlines())), limit=DEPTH).rank_of(self.world.tools[gold].id)
            for query, gold in asked
        ]

    def scores(self, model: bytes, world: World | None = None) -> Floats:
        """Cosines of every query to every tool by a trained adapter; (queries, tools)."""
        found: Floats = self.opened(model).queries((world or self.world).queries) @ self.vectors.T
        return found

    def opened(self, model: bytes) -> KeptEncoder:
        """The first encoder with a trained adapter."""
        key = f"queries {self.base.key} {sha256(model).hexdigest()[:16]}"
        return KeptEncoder(adapted.AdaptedEncoder(self.base, model), self.kept, self.base.key, key)

    def past(self) -> dict[str, LearnedModel]:
        """What `foretool learn` learns from the same tasks without torch."""
        episodes = tuple(Episode((self.world.tools[each.tool].id,), (each.query,)) for each in self.world.examples)
        material = Material(
            tuple(self.world.tools),
            episodes,
            queries=joined_queries(self.encoders),
            seed=MATERIAL_SEED,
        )
        return {"masstool": MassTool.loads(PAST.train(material, lambda doing, share: None))}

    def trainer(
        self, recipe: Recipe, checkpoint: Path | None = None, asked: ModelAnswers | None = None
    ) -> PortsTrainer:
        """Trains the first encoder."""
        texts, asked = self.world.texts, asked or ModelAnswers()
        return PublishedTrainer(
            self.base, [texts[at] for at in self.called], self.examples[: recipe.tasks], recipe.plan,
            self.cache / "model", checkpoint, asked.useful, asked.scored, self.vectors[self.called],
            shipped_adapter(recipe.plan.rank) if recipe.goes_on else None,
        )  # fmt: skip

    def trained(self, recipe: Recipe, asked: ModelAnswers | None = None) -> bytes:
        """The adapter of a recipe: from the cache, or trained now. An interrupted training continues."""
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
        """The name under which a training is kept."""
        told = msgspec.json.encode((self.world.name, recipe, msgspec.to_builtins(recipe.plan), len(self.examples)))
        return f"{self.world.name}-{recipe.loss}-{sha256(told).hexdigest()[:12]}"

    def larger(self, weights: encoders.Weights, recipe: Recipe | None = None) -> KeptEncoder:
        """An encoder that is not installed, run by torch; with a recipe both of its sides are trained."""
        key = weights.key if recipe is None else f"{weights.key} {self.told(recipe)}"
        encoder = InTorch(weights, lambda: self._torch(weights, recipe))
        return KeptEncoder(encoder, self.kept, key, f"queries {key}")

    def _torch(self, weights: encoders.Weights, recipe: Recipe | None) -> PortsTrainer:
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
    """An `Encoder` that a trainer runs; the trainer is built at the first text."""

    def __init__(self, weights: encoders.Weights, make: Callable[[], PortsTrainer]) -> None:
        self.name = Path(weights.name).name
        self._make = make

    @cached_property
    def _trainer(self) -> PortsTrainer:
        return self._make()

    def documents(self, texts: Sequence[str]) -> Floats:
        return embed_texts(self._trainer, documents=texts)[0]

    def queries(self, texts: Sequence[str]) -> Floats:
        return embed_texts(self._trainer, queries=texts)[1]
