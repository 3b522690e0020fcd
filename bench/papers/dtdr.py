"""The next tool (DTDR): the paper's table 2, DTDR-C and DTDR-L as published, and what is served.

Gold history: one prediction before each call and one for END, walking the plan in its recorded order. Acceptable are
the calls whose dependencies are done, and END once all are. `mrr`: mean reciprocal rank of the first acceptable class;
`f1`: at as many classes as are acceptable (section 5). Intervals are 95 % bootstraps over tasks, not steps, for the
steps of one task go together. Everything is fitted on `train.jsonl`; the settings are those of
`learning/training/dtdr.py` and `bench/papers/published/dtdr.py`, the seed is 7 unless a row names others.

What is served comes first, as published last. "Installed after training": a fifth of the tools, and every task that
took one of them, are kept from training; the model then ranks all tools. Of new tools: `likely` is the share of steps
that needed one at which it had a probability of at least `LIKELY`, `false` the share of the other
steps at which a new tool had that.

The sets are not the paper's: of TaskBench Multimedia only the plans of type dag are to be had (401 demonstrations,
about a tenth), and UltraTool, BFCL's dialogues and Seal-Tools are not in it at all.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from bench.datasets import place_by_name, read_rows, read_tools
from bench.kept_encoder import KeptEncoder, joined_queries, open_kept, open_vectors
from bench.papers.published.dtdr import fit_c, fit_l, history_text, spread_targets
from bench.reports import Row, rounded, times_row
from foretool.learning.rankers.dtdr import Dtdr
from foretool.learning.training import Embed, Material
from foretool.learning.training.demonstrations import (
    Demonstration,
    PredictionStep,
    ToolVectors,
    TrainingSet,
    dependencies,
    task_vectors,
)
from foretool.learning.training.dtdr import METHOD, DtdrTrainer, Recipe
from foretool.retrieval import encoders
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.model_format import Floats
from foretool.storage.records import Episode, Tool, ToolId

SETS = ("ultratool", "taskbench_multimedia", "bfcl_multi_turn", "sealtools")
PAPER = {
    "taskbench_multimedia": {
        "random guess": (0.11, 0.03), "BM-25": (0.26, 0.19), "QTS (embeddings)": (0.14, 0.04),
        "DR (ToolNet)": (0.38, 0.27), "LR (TinyAgent)": (0.49, 0.28), "DTDR-C": (0.52, 0.43), "DTDR-L": (0.69, 0.55),
    }
}  # fmt: skip
"""Table 2 (MRR, F1)."""
SEED = 7
FEW = 100
DRAWS = (0, 1, 2, 3, 4)
"""Seeds of the draws of `FEW` demonstrations."""
LATER_SHARE = 0.2
"""The share of the tools that are installed after training, in the rows about such tools."""
STRANGERS = {"taskbench_multimedia": "bfcl_multi_turn"}
"""The set whose tools are installed after training though no task needs them; default: taskbench_multimedia."""
LIKELY = 0.15
"""The probability at which a growing list takes a tool in."""
LARGE = 5_000


class Prediction(NamedTuple):
    """One step of one task, and how well it was ranked."""

    task: int
    reciprocal_rank: float
    f1: float


class World(NamedTuple):
    """One data set, classes being places in `tools`."""

    name: str
    tools: Sequence[Tool]
    train: Sequence[Demonstration]
    asked: Sequence[Demonstration]
    embed: Embed | None
    """Embeds queries by the first encoder."""
    documents: Embed | None
    """Embeds tools by the first encoder."""
    readings: Embed | None = None
    """Embeds queries by all encoders, their vectors one after the other."""
    frozen: Embed | None = None
    """Embeds queries by the untrained first encoder, for the published forms."""

    @property
    def end(self) -> int:
        return len(self.tools)

    def episodes(self, past: Sequence[Demonstration]) -> tuple[Episode, ...]:
        """The demonstrations as training gets them from an import."""
        ids = [tool.id for tool in self.tools]
        return tuple(
            Episode(
                calls=tuple(ids[call] for call in each.calls),
                tasks=(each.task,),
                edges=tuple((first, place) for place, before in enumerate(each.after) for first in before),
                source="import",
            )
            for each in past
        )

    def material(self, past: Sequence[Demonstration], later: Container[int] = ()) -> Material:
        """What training sees; `later`: tools that are installed after it."""
        return Material(
            tuple(tool for number, tool in enumerate(self.tools) if number not in later),
            self.episodes(past),
            documents=self.documents,
            queries=self.readings,
            seed=SEED,
        )


def rows(data: Path, queries: str, sets: Sequence[str] | None, cache: Path | None) -> Iterator[Row]:
    """Every row of the sets, then one of the time of a prediction."""
    with open_vectors(cache) as vectors:
        found = encoders.resolve_weights("auto")
        opened = [open_kept(weights, vectors) for weights in found]
        untrained = open_kept(found[0].untrained, vectors) if found else None
        for name in sets or [each for each in SETS if (data / each).is_dir()]:
            world = read(data / name, queries, opened, untrained)
            strangers = data / STRANGERS.get(name, "taskbench_multimedia")
            yield from over(world, tools_in(strangers) if strangers.is_dir() else [])
    yield latency()


def read(folder: Path, queries: str, opened: Sequence[KeptEncoder], untrained: KeptEncoder | None) -> World:
    """Read a set; the opened encoders embed its queries and the first of them its tools, as a proxy does. The untrained
    one embeds queries for the published forms, and tools where there is no other."""
    tools = tools_in(folder)
    number = place_by_name(tools)
    train, asked = (
        [demonstration(row, number) for row in read_rows(folder / file)] for file in ("train.jsonl", queries)
    )
    first = opened[0] if opened else untrained
    return World(
        folder.name, tools, train, asked,
        embed=opened[0].queries if opened else None,
        documents=first.documents if first else None,
        readings=joined_queries(opened),
        frozen=untrained.queries if untrained else None,
    )  # fmt: skip


def tools_in(folder: Path) -> list[Tool]:
    """The tools of a set; of several with one name the first."""
    tools = read_tools(folder)
    return [tools[place] for place in place_by_name(tools).values()]


def demonstration(row: Mapping[str, Any], number: Mapping[str, int]) -> Demonstration:
    """The demonstration of a line; without `edges` each call waits for the call before it."""
    edges = row.get("edges")
    return Demonstration(
        calls=tuple(number[call] for call in row["calls"]),
        after=dependencies(len(row["calls"]), None if edges is None else [tuple(edge) for edge in edges]),
        task=row["query"],
        earlier=tuple(number[call] for call in row.get("history") or ()),
    )


Predict = Callable[[Demonstration, PredictionStep], Floats]
"""Scores every class at a step, (classes and END,)."""


def judged(asked: Sequence[Demonstration], end: int, predict: Predict) -> list[Prediction]:
    """A prediction for every step of every task."""
    found = []
    for number, each in enumerate(asked):
        for step in each.steps(end):
            scores = predict(each, step)
            order = np.argsort(-scores, kind="stable")
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            places = place[list(step.acceptable)]
            found.append(Prediction(number, 1 / (1 + int(places.min())), float((places < len(places)).mean())))
    return found


def figures(found: Sequence[Prediction]) -> Row:
    """Means over steps, with intervals over tasks."""
    by_task: dict[int, list[Prediction]] = {}
    for each in found:
        by_task.setdefault(each.task, []).append(each)
    tasks = [np.asarray([(1.0, each.reciprocal_rank, each.f1) for each in steps]).sum(0) for steps in by_task.values()]
    draw = np.random.default_rng(SEED)
    sums = np.stack(tasks)[draw.integers(len(tasks), size=(1000, len(tasks)))].sum(1)
    row: Row = {"n": len(found)}
    for at, name in enumerate(("mrr", "f1"), 1):
        row[name] = round(float(np.stack(tasks)[:, at].sum()) / len(found), 4)
        row[f"{name}_interval"] = rounded(np.quantile(sums[:, at] / sums[:, 0], (0.025, 0.975)).tolist())
    return row


def over(world: World, strangers: Sequence[Tool]) -> Iterator[Row]:
    """Every row of one set; `strangers`: tools of another set, which no task needs."""
    head = {"set": world.name, "tools": len(world.tools)}
    for method, (mrr, f1) in PAPER.get(world.name, {}).items():
        yield {**head, "method": f"paper: {method}", "n": "-", "mrr": mrr, "f1": f1}
    demonstrations = {"demonstrations": len(world.train), "seeds": [SEED]}
    whole = world
    if any(each.earlier for each in world.train):
        world = world._replace(train=without_earlier(world.train), asked=without_earlier(world.asked))
    started = time.monotonic()
    model = METHOD.train(world.material(world.train), lambda what, share: None)
    cost = {"fit_s": round(time.monotonic() - started), "model_mib": round(len(model) / 2**20, 1)}
    yield {**head, "method": "as served", **scored(world, model), **demonstrations, **cost}
    yield {**head, "method": "as served, nobody said the task", **scored(world, model, said=False), **demonstrations}
    yield from unseen(world, head)
    if others := [tool for tool in strangers if tool.name not in {each.name for each in world.tools}]:
        yield {**head, "method": f"as served, {len(others)} tools that nobody needs installed after training",
               **among_strangers(world, model, others), **demonstrations}  # fmt: skip
    if len(world.train) > 2 * FEW:
        yield {**head, "method": f"as served, {FEW} demonstrations", **cold(world), "demonstrations": FEW,
               "seeds": list(DRAWS)}  # fmt: skip
    if whole is not world:
        yield {**head, "method": "as served, calls of earlier turns too", **scored(whole, across_turns(whole)),
               **demonstrations}  # fmt: skip
    yield from as_published(world, {**head, **demonstrations})
    if whole is not world:
        yield from as_published(whole, {**head, **demonstrations}, ", calls of earlier turns too")


def as_published(world: World, head: Row, told: str = "") -> Iterator[Row]:
    """The rows of both published forms, on the histories that this world has; without an encoder none."""
    if world.frozen is None:
        return
    for name, fitted in (("DTDR-C", published_c), ("DTDR-L", published_l)):
        found = figures(judged(world.asked, world.end, fitted(world)))
        yield {**head, "method": f"as published: {name}{told}", **found}


def without_earlier(past: Sequence[Demonstration]) -> list[Demonstration]:
    """Each turn as a separate task."""
    return [Demonstration(each.calls, each.after, each.task, each.ended) for each in past]


def asked_vectors(world: World, embed: Embed | None) -> dict[str, Floats]:
    """By the text of each asked task its vector; none without an encoder."""
    texts = [each.task for each in world.asked]
    return dict(zip(texts, embed(texts), strict=True)) if embed else {}


def published_c(world: World) -> Predict:
    assert world.frozen is not None
    model = fit_c(world.frozen([each.task for each in world.train]), world.train, world.end, SEED)
    known = asked_vectors(world, world.frozen)
    return lambda each, step: model.after(known[each.task], step.history)


def published_l(world: World, last: int | None = None) -> Predict:
    """`last`: calls of the history that are read; all unless given."""
    assert world.frozen is not None
    steps = [(each, step) for each in world.train for step in each.steps(world.end)]
    texts = [text_of(world, each, step, last) for each, step in steps]
    model = fit_l(world.frozen(texts), spread_targets([step.acceptable for _, step in steps], world.end + 1), SEED)
    asked = [text_of(world, each, step, last) for each in world.asked for step in each.steps(world.end)]
    known = dict(zip(asked, world.frozen(asked), strict=True))
    return lambda each, step: model.after(known[text_of(world, each, step, last)])


def text_of(world: World, each: Demonstration, step: PredictionStep, last: int | None = None) -> str:
    read = step.history if last is None else step.history[len(step.history) - min(last, len(step.history)) :]
    return history_text(each.task, [world.tools[call].name for call in read])


def aligned(world: World, model: bytes) -> Dtdr:
    """The model as the proxy has it: read from its bytes, over the whole catalog."""
    served = Dtdr.loads(model)
    served.align([tool.id for tool in world.tools], tool_vectors(world).vectors)
    return served


def tool_vectors(world: World) -> ToolVectors:
    ids = [tool.id for tool in world.tools]
    texts = [embedded_text(document(tool)) for tool in world.tools]
    return ToolVectors(ids, world.documents(texts) if world.documents else None)


def served_by(world: World, model: Dtdr, *, said: bool = True) -> Predict:
    """Predicts the model's probabilities; without `said` the model is not told the task."""
    ids = [tool.id for tool in world.tools]
    known = asked_vectors(world, world.readings)

    def predict(each: Demonstration, step: PredictionStep) -> Floats:
        history = [ids[call] for call in step.history]
        chance, end = model.after(history, known.get(each.task) if said else None, (each.task,) if said else ())
        return np.append(chance, np.float32(end))

    return predict


def scored(world: World, model: bytes, *, said: bool = True) -> Row:
    return figures(judged(world.asked, world.end, served_by(world, aligned(world, model), said=said)))


def across_turns(world: World) -> bytes:
    """A model trained on histories that begin with the calls of earlier turns."""
    readings = task_vectors([each.task for each in world.train], world.readings)
    given = TrainingSet(tuple(tool.id for tool in world.tools), world.train, readings)
    return DtdrTrainer().model(given, tool_vectors(world), SEED, lambda what, share: None).dumps()


def cold(world: World) -> Row:
    """The mean over several draws of a few demonstrations."""
    runs = []
    for seed in DRAWS:
        few = random.Random(seed).sample(list(world.train), FEW)
        model = METHOD.train(world.material(few), lambda what, share: None)
        runs.append(judged(world.asked, world.end, served_by(world, aligned(world, model))))
    mean = [
        Prediction(steps[0].task, fmean(each.reciprocal_rank for each in steps), fmean(each.f1 for each in steps))
        for steps in zip(*runs, strict=True)
    ]
    return {**figures(mean), "mrr_by_draw": [round(fmean(each.reciprocal_rank for each in run), 4) for run in runs]}


def unseen(world: World, head: Row) -> Iterator[Row]:
    """Rows about tools that are installed after training: over all steps, over steps that need one, over the others."""
    called = sorted({call for each in world.train for call in each.calls})
    later = set(random.Random(SEED).sample(called, int(LATER_SHARE * len(called))))
    past = [each for each in world.train if later.isdisjoint(each.calls)]
    if len(past) < METHOD.minimum:
        return
    model = METHOD.train(world.material(past, later), lambda what, share: None)
    watched = NewToolWatch(served_by(world, aligned(world, model)), later)
    methods: dict[str, Predict] = {"as served": watched}
    if world.embed is not None:
        methods["query-tool similarity"] = similarity(world)
    steps = [step for each in world.asked for step in each.steps(world.end)]
    needs = [later.issuperset(step.acceptable) for step in steps]
    for method, predict in methods.items():
        found = judged(world.asked, world.end, predict)
        for which, wanted in (("all steps", None), ("steps to those tools", True), ("steps to others", False)):
            chosen = [at for at, need in enumerate(needs) if wanted in (None, need)]
            if chosen:
                yield {**head, "method": f"{method}, a fifth of the tools installed after training, {which}",
                       **figures([found[at] for at in chosen]),
                       **(watched.shares(chosen, wanted) if predict is watched and wanted is not None else {}),
                       "demonstrations": len(past), "tools_after": len(later), "seeds": [SEED]}  # fmt: skip


class NewToolWatch:
    """Passes predictions on and notes how probable new tools are in them."""

    def __init__(self, predict: Predict, new: Container[int]) -> None:
        self._predict = predict
        self._new = new
        self._needed: list[float] = []
        self._any: list[float] = []
        self._together: list[float] = []

    def __call__(self, each: Demonstration, step: PredictionStep) -> Floats:
        found = self._predict(each, step)
        new = np.asarray([number in self._new for number in range(len(found))], np.bool_)
        self._needed.append(float(found[list(step.acceptable)].max()))
        self._any.append(float(found[new].max()))
        self._together.append(float(found[new].sum()))
        return found

    def shares(self, steps: Sequence[int], needed: bool) -> Row:
        """How often a new tool was likely at these steps, and the mean probability of all new tools together."""
        likely = [(self._needed if needed else self._any)[at] >= LIKELY for at in steps]
        together = [self._together[at] for at in steps]
        return {"likely" if needed else "false": round(fmean(likely), 3), "new_together": round(fmean(together), 3)}


def among_strangers(world: World, model: bytes, strangers: Sequence[Tool]) -> Row:
    """The row with further tools that came after training and that no task needs."""
    wider = world._replace(tools=[*world.tools, *strangers])
    served = served_by(wider, aligned(wider, model))
    new = range(len(world.tools), len(wider.tools))
    watched = NewToolWatch(served, new)
    found = judged(world.asked, wider.end, watched)
    return {**figures(found), **watched.shares(range(len(found)), needed=False)}


def similarity(world: World) -> Predict:
    """Predicts by the cosine of query and tool; tools already called come last, and END never comes."""
    documents = tool_vectors(world).vectors
    assert documents is not None
    known = asked_vectors(world, world.embed)

    def predict(each: Demonstration, step: PredictionStep) -> Floats:
        cosines = np.append(documents @ known[each.task], np.float32(-1))
        cosines[list(step.history)] -= 2
        return cosines

    return predict


def latency(size: int = LARGE, episodes: int = 3_000) -> Row:
    """Milliseconds of one prediction over `size` tools that all were called in training, with two encoders and a new
    history each time: `first` with a new task, `next` with the task of the prediction before."""
    draw = np.random.default_rng(SEED)
    ids = [ToolId(f"server_{number // 25}__tool_{number}") for number in range(size)]
    called = np.concatenate([draw.permutation(size) for _ in range(-(-4 * episodes // size))])
    past = [
        Demonstration(tuple(calls.tolist()), dependencies(len(calls), None), f"task {number} of many {number % 99}")
        for number, calls in enumerate(called[: 4 * episodes].reshape(episodes, 4))
    ]
    vectors, texts = (draw.standard_normal(shape).astype(np.float32) for shape in ((episodes + 200, 768), (size, 384)))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    # What is timed has the size of the real thing; what it says does not matter.
    given = TrainingSet(tuple(ids), past, vectors[:episodes])
    model = DtdrTrainer(Recipe(epochs=(1, 1))).fit(given, ToolVectors(ids, texts), SEED, lambda share: None)
    served = Dtdr.loads(model.dumps())
    served.align(ids, texts)
    times: dict[str, list[float]] = {"first": [], "next": []}
    for vector in vectors[episodes:]:
        history = [ids[call] for call in draw.integers(size, size=6)]
        for kind, calls in (("first", history[:3]), ("next", history)):
            started = time.perf_counter()
            served.after(calls, vector, ("task 17 of many things to do",))
            times[kind].append(1e3 * (time.perf_counter() - started))
    row: Row = {"set": f"{size} tools", "method": "as served, one prediction", "n": len(times["first"])}
    for kind, values in times.items():
        row |= {f"{kind}_{name}": value for name, value in times_row(values, digits=3).items()}
    return row
