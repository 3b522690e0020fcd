"""Compares MassTool, which learns from past tasks, with its paper (Table 1 on ToolLens): as published and as served.

It also measures what the log of one set does to sets that the log knows nothing of. All rows are on the queries of
FILE, and everything is fitted on `train.jsonl`:

    toollens              the paper's rows; the ranking without a past; MassTool as served, that is in the ranking
                          that the proxy answers with, alone, and without an encoder; where torch is installed also
                          with the encoder fine-tuned on the past, and after all other sets as published (`Settings`
                          of `bench/papers/published/masstool.py` with the settings that a row names) on frozen MiniLM;
                          `bench.papers.masstool_parts` has it on fine-tuned MiniLM, and without one part each
    metatool_awareness    detection: the area under the curve (`AUC`) of telling tasks that need a tool from others;
                          the published tower is trained with three seeds
    stabletoolbench, livemcpbench   the ranking without a past, and with the past of `toollens`
    bfcl_ports            the same with its own thin log; a key that ends in `_over` is the mean difference to the
                          ranking without a past, with its 95 % interval

Settings are the constants of `learning/training/masstool.py`, seed 7. Intervals are 95 % bootstraps over queries.
ToolLens and ToolDet name no licence, so the repository contains nothing of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from msgspec import to_builtins
from numpy.typing import NDArray

from bench import metrics
from bench.datasets import Task, is_there, read_rows, read_tasks, read_tools
from bench.kept_encoder import KeptEncoder, joined_queries, open_kept, open_vectors
from bench.papers.published.masstool import Settings, train
from bench.papers.published.masstool import TrainingSet as PublishedTask
from bench.reports import Row, area_under_curve, difference, mean_rows
from bench.retrieval.pool import Pool
from foretool.learning.rankers.masstool import MassTool
from foretool.learning.training import Material, masstool_tuned
from foretool.learning.training.masstool import METHOD
from foretool.retrieval import encoders
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.encoders import Encoder
from foretool.retrieval.ranking import Query
from foretool.storage.records import Episode, Tool, ToolId

SETS = ("toollens", "metatool_awareness", "stabletoolbench", "livemcpbench", "bfcl_ports")
LOGS: Mapping[str, str] = {"stabletoolbench": "toollens", "livemcpbench": "toollens", "bfcl_ports": "bfcl_ports"}
"""The set whose past is attached to a set: another one, or its own where that is thin."""
WITHOUT_TOOLS = "tooldet"
"""Queries that need no tool, for the published detection tower."""
SEED = 7
DEPTH = 50
PAPER = {
    "paper: BM25": (0.2158, 0.2319, 0.2688, 0.2609),
    "paper: COLT, best backbone": (0.9364, 0.9453, 0.9778, 0.9691),
    "paper: MassTool on TAS-B, its worst": (0.9523, 0.9577, 0.9812, 0.9744),
    "paper: MassTool on ANCE": (0.9648, 0.9670, 0.9847, 0.9785),
    "paper: MassTool on coCondensor, its best": (0.9642, 0.9683, 0.9847, 0.9802),
}
"""Table 1, ToolLens, all 1,877 test queries: R@3, N@3, R@5, N@5."""
PUBLISHED: Sequence[Mapping[str, Any]] = ({"epochs": 20}, {"epochs": 80})
"""Settings of the published rows; an epoch takes 4 s of a core. The authors go up to 200 and stop by the test set."""
DETECTION_SEEDS = (7, 0, 1)
DETECTION_EPOCHS = 200
"""Epochs of the published tower; on so small a set an epoch is one step."""
Answer = Callable[[str], list[ToolId]]


class World(NamedTuple):
    """A data set: its tools, its past, what is asked."""

    name: str
    tools: Sequence[Tool]
    train: Sequence[Task]
    asked: Sequence[Task]

    def episodes(self) -> tuple[Episode, ...]:
        """The past tasks as training gets them."""
        return tuple(Episode(tuple(min(need) for need in task.gold), (task.query,)) for task in self.train)


def rows(data: Path, queries: str, sets: Sequence[str] | None, cache: Path | None) -> Iterator[Row]:
    """Every row of the sets; the published forms come last, because they take longest."""
    with open_vectors(cache) as kept:
        found = encoders.resolve_weights("auto")
        have = [open_kept(weights, kept) for weights in found]
        pasts: dict[str, MassTool] = {}
        names = sets or [each for each in SETS if is_there(data / each / queries)]
        for name in names:
            if name == "metatool_awareness":
                yield from over_awareness(data / name, queries, have)
            elif name == "toollens":
                yield from over_toollens(data, queries, have, pasts)
            else:
                yield from with_a_past(data, name, queries, have, pasts)
        if have and find_spec("torch") is not None:
            plain = open_kept(found[0].untrained, kept)
            for name in names:
                if name == "metatool_awareness":
                    yield from published_detection(data / name, queries, plain)
                elif name == "toollens":
                    yield from as_published(data, queries, plain, PUBLISHED)


def read(folder: Path, queries: str, *, asked: bool = True) -> World:
    """A set; without `asked` only its past."""
    tools = read_tools(folder)
    train = read_tasks(folder / "train.jsonl", tools) if is_there(folder / "train.jsonl") else []
    return World(folder.name, tools, train, read_tasks(folder / queries, tools) if asked else [])


def trained(world: World, have: Sequence[KeptEncoder]) -> MassTool:
    """The served method, trained on the past of a set."""
    material = Material(tuple(world.tools), world.episodes(), queries=joined_queries(have), seed=SEED)
    return MassTool.loads(METHOD.train(material, lambda step, share: None))


@contextmanager
def without_tuning() -> Iterator[None]:
    """Within the block no encoder is fine-tuned."""
    kept = masstool_tuned.LEAST
    masstool_tuned.LEAST = sys.maxsize  # type: ignore[misc]
    try:
        yield
    finally:
        masstool_tuned.LEAST = kept  # type: ignore[misc]


def kinds(model: MassTool) -> Iterator[tuple[str, MassTool]]:
    """The model as served without torch, and with its fine-tuned encoder where training made one."""
    plain = copy(model)
    plain.tuned = None
    yield "", plain
    if model.tuned is not None:
        yield " with foretool[train]", model


def ranking(world: World, have: Sequence[KeptEncoder], model: MassTool | None = None) -> Answer:
    """The ranking that the proxy answers with; `model` takes part in it."""
    for encoder in have:
        encoder.queries([task.query for task in world.asked])  # one batch is quicker than one query at a time
    pipeline = Pool(world.tools, {}, have).pipeline(len(have), {"masstool": model} if model is not None else {})
    return lambda text: [each.tool for each in pipeline.rank(Query((text,)), limit=DEPTH).ranked]


def alone(world: World, model: MassTool, have: Sequence[KeptEncoder]) -> Answer:
    """The shares of head and vote alone, without regard to the trust in them."""
    embed = joined_queries(have)
    tools = [ToolId(tool) for tool in model.header.tools]
    if embed is not None:
        embed([task.query for task in world.asked])  # in one batch, as in `ranking`

    def answer(text: str) -> list[ToolId]:
        shares = model.past(model.read(text, embed([text])[0] if embed else None)).shares
        return [tools[place] for place in np.argsort(-shares, kind="stable")[:DEPTH].tolist()]

    return answer


# ToolLens


def over_toollens(data: Path, queries: str, have: Sequence[KeptEncoder], pasts: dict[str, MassTool]) -> Iterator[Row]:
    """The paper's rows, then ours."""
    world = read(data / "toollens", queries)
    for name, (r3, n3, r5, n5) in PAPER.items():
        yield {"set": world.name, "method": name, "n": 1877, "R@3": r3, "N@3": n3, "R@5": r5, "N@5": n5}
    yield measured(world, "ours without a past", ranking(world, have))
    pasts[world.name] = trained(world, have)
    for kind, model in kinds(pasts[world.name]):
        yield measured(world, f"ours as served{kind}", ranking(world, have, model))
        yield measured(world, f"ours as served{kind}, head and vote alone", alone(world, model, have))
    if len(have) > 1:
        with without_tuning():
            model = trained(world, have[:1])
        yield measured(world, "head and vote alone, the first encoder", alone(world, model, have[:1]))
    if have:
        with without_tuning():
            bare = trained(world, [])
        yield measured(world, "ours as served, without encoders", ranking(world, [], bare))


def as_published(data: Path, queries: str, encoder: KeptEncoder, every: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """MassTool as its equations say, on the vectors of an encoder, once for each of the settings."""
    world = read(data / "toollens", queries)
    without = said(data / WITHOUT_TOOLS / "train.jsonl")
    for chosen in every:
        settings = Settings(**chosen)
        answer, epoch_s = published_answer(world, encoder, without, settings)
        yield {
            **measured(world, "ours as published", answer),
            **told(to_builtins(settings)),
            "without_tools": len(without),
            "epoch_s": epoch_s,
        }


def published_answer(
    world: World, encoder: Encoder, without: Sequence[str], settings: Settings
) -> tuple[Answer, float]:
    """The ranking of a published model trained on the past of a set, and the mean seconds of an epoch; `without`:
    queries that need no tool."""
    ends = [perf_counter()]
    model = train(published_task(world, encoder, without), settings, lambda epoch, loss: ends.append(perf_counter()))
    ids = [tool.id for tool in world.tools]
    best = np.argsort(-model(encoder.queries([each.query for each in world.asked])), axis=1, kind="stable")
    found = dict(zip((each.query for each in world.asked), best[:, :DEPTH].tolist(), strict=True))
    return lambda text: [ids[at] for at in found[text]], round(fmean(np.diff(ends).tolist()), 2)


def published_task(world: World, encoder: Encoder, without: Sequence[str]) -> PublishedTask:
    """Queries, tools and golden sets as vectors and numbers."""
    place = {tool.id: at for at, tool in enumerate(world.tools)}
    return PublishedTask(
        queries=encoder.queries([each.query for each in world.train]),
        tools=encoder.documents([embedded_text(document(tool, "")) for tool in world.tools]),
        golds=tuple(tuple(sorted({place[min(need)] for need in each.gold})) for each in world.train),
        without=encoder.queries(without) if without else np.zeros((0, 384), np.float32),
    )


def told(settings: Mapping[str, Any]) -> Row:
    """The settings as keys of a row."""
    return {name: "+".join(value) if isinstance(value, list | tuple) else value for name, value in settings.items()}


def measured(world: World, method: str, answer: Answer) -> Row:
    """Recall, nDCG and completeness, with 95 % intervals."""
    found = [(answer(task.query), task.gold) for task in world.asked]
    scores = {"R": metrics.recall, "N": metrics.ndcg}
    values = {f"{name}@{k}": [metric(*each, k) for each in found] for k in (3, 5) for name, metric in scores.items()}
    values["complete@5"] = [metrics.completeness(*each, 5) for each in found]
    return {"set": world.name, "method": method, "n": len(found), **mean_rows(values)}


# Detection


def over_awareness(folder: Path, queries: str, have: Sequence[KeptEncoder]) -> Iterator[Row]:
    """Which tasks need a tool: the served detection with and without an encoder, and the published tower."""
    past = read_rows(folder / "train.jsonl")
    texts, needed = awareness(folder / queries)
    yield {"set": folder.name, "method": "paper: no figure", "n": len(texts)}
    episodes = tuple(Episode(tuple(map(ToolId, row["calls"])), (row["query"],)) for row in past)
    for read_by in dict.fromkeys((tuple(have), ())):
        embed = joined_queries(read_by)
        model = MassTool.loads(METHOD.train(Material((), episodes, queries=embed, seed=SEED), lambda *_: None))
        vectors = list(embed(texts)) if embed else [None] * len(texts)
        found = [model.needs_tool(vector, text) or 0.0 for vector, text in zip(vectors, texts, strict=True)]
        kind = "" if embed else ", without encoders"
        yield detected(folder.name, f"ours as served{kind}", np.asarray(found), needed)


def awareness(path: Path) -> tuple[list[str], NDArray[np.bool_]]:
    """The queries of a file, and whether each needs a tool."""
    asked = read_rows(path)
    return [row["query"] for row in asked], np.asarray([bool(row["calls"]) for row in asked])


def published_detection(folder: Path, queries: str, encoder: KeptEncoder) -> Iterator[Row]:
    """The published detection tower, trained with the rest of the published model on the same tasks; once a seed."""
    without, needing = awareness(folder / "train.jsonl")
    task = published_task(
        read(folder, "train.jsonl"), encoder, [text for text, needs in zip(without, needing, strict=True) if not needs]
    )
    texts, needed = awareness(folder / queries)
    asked = encoder.queries(texts)
    for seed in DETECTION_SEEDS:
        model = train(task, Settings(epochs=DETECTION_EPOCHS, seed=seed))
        found = model.needs_tool(asked).astype(np.float64)
        yield {
            **detected(folder.name, "ours as published", found, needed),
            "epochs": DETECTION_EPOCHS,
            "seed": seed,
        }


def detected(name: str, method: str, found: NDArray[np.float64], needed: NDArray[np.bool_]) -> Row:
    """The area under the curve and, at one half, the accuracy."""
    draw = np.random.default_rng(SEED)
    drawn = [draw.integers(0, len(found), len(found)) for _ in range(1000)]
    areas = sorted(area(found[each], needed[each]) for each in drawn)
    return {
        "set": name,
        "method": method,
        "n": len(found),
        "AUC": area(found, needed),
        "AUC_interval": [areas[25], areas[974]],
        "accuracy": round(float(((found >= 0.5) == needed).mean()), 4),
    }


def area(found: NDArray[np.float64], needed: NDArray[np.bool_]) -> float:
    """How well the scores tell queries that need a tool from the others."""
    return area_under_curve(found[needed], found[~needed], 4)


def said(path: Path) -> list[str]:
    """The queries of a file; none where there is no such file."""
    return [row["query"] for row in read_rows(path)] if is_there(path) else []


# A past that is thin or comes from another set


def with_a_past(
    data: Path, name: str, queries: str, have: Sequence[KeptEncoder], pasts: dict[str, MassTool]
) -> Iterator[Row]:
    """The ranking with a log that is thin or comes from another set, against the ranking without a log."""
    world = read(data / name, queries)
    before = recalled(world, ranking(world, have))
    yield {"set": name, "method": "ours without a past", "n": len(world.asked), **mean_rows(before)}
    log = LOGS.get(name, name)
    if log not in pasts and (data / log).is_dir():
        pasts[log] = trained(read(data / log, queries, asked=False), have)
    for kind, model in kinds(pasts[log]) if log in pasts else ():
        after = recalled(world, ranking(world, have, model))
        over = {f"{key}_over": difference(after[key], before[key]) for key in before}
        row = {"set": name, "method": f"ours with a log of {log}{kind}", "n": len(world.asked)}
        yield {**row, **mean_rows(after), **over}


def recalled(world: World, answer: Answer) -> dict[str, list[float]]:
    """r@5 and r@10 of every query."""
    found = [(answer(task.query), task.gold) for task in world.asked]
    return {f"r@{k}": [metrics.recall(ranked, gold, k) for ranked, gold in found] for k in (5, 10)}
