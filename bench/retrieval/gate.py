"""Measures how well the gate is calibrated, or fits it.

    python -m bench.retrieval.gate DATA [--fit] [--sets a,b] [--sample N] [--vectors FILE] [--without-wordings]

The gate says how likely a needed tool is among the first k, and so how many tools an answer shows. DATA holds sets as
`bench.retrieval.ranking` reads them. The output is one JSON object per development set, without a log and with one: the
models of a half are trained on the other half, as a proxy learns from its own past. A row holds the area under the
curve (`auc`), the expected calibration error (`ece`) with the error that a perfect gate would show on so few queries
(`floor`), the reliability by bins, and for each half what showing k tools holds and costs (`adaptive`), where the gate
is recalibrated on the other half as a proxy does. Then it says how well queries that need a tool are told from others.
Tools of well-known servers have the wishes that come with foretool, as in a proxy.

`--fit` writes `retrieval/gate.json` instead, from the train splits of `FITTED`, each alone and, if it is small, hidden
among tools of real servers, without a log and with one of other train tasks, for words alone and for the encoders that
`--encoder` names. What the file says of other encoders stays. No set that is examined takes part.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, TypeVar

import numpy as np
from msgspec import to_builtins
from msgspec.structs import replace

from bench.datasets import Task, catalog_tools, read_rows, read_tasks, read_tools
from bench.kept_encoder import KeptEncoder, joined_queries, open_kept
from bench.options import make_parser
from bench.reports import Row, area_under_curve
from bench.retrieval.pool import Pool
from foretool.learning.training import Material, TooLittle
from foretool.retrieval import chances, confidence, encoders, methods
from foretool.retrieval.calibration import calibration_error, conformal_k, coverage, platt, reliability
from foretool.retrieval.confidence import Gate, Logistic, Weights
from foretool.retrieval.corpus import Shipped
from foretool.retrieval.known_tools import find_wordings
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.learned import LearnedModel, LearnedModels
from foretool.retrieval.ranking import Query, Ranking
from foretool.retrieval.tokens import estimate
from foretool.server.catalog.signatures import signature
from foretool.server.discovery.answer_shape import shape
from foretool.server.discovery.schemas import CLAUSE, summarize
from foretool.storage.opening import open_store
from foretool.storage.records import Episode, Level, Tool, ToolId

FITTED = {"toole": "MIT", "ultratool": "MIT", "sealtools": "Apache-2.0"}
"""Sets whose train split the gate is fitted on, with their licence."""
EXAMINED = ("livemcpbench", "mcpbench", "mcptoolbenchpp", "bfcl", "toole_unseen", "apibank", "stabletoolbench")
DETECTED = {"metatool_awareness": "metatool_awareness", "tooldet": "toole"}
"""Sets with queries that need no tool, and the set whose queries and tools they are compared with."""
OFFERED = "bfcl_irrelevance"
"""The set of queries for which none of the offered tools fits; those of bfcl have one that does."""
SETS = (*EXAMINED, *DETECTED, OFFERED)
SAMPLE = 240
ASKED = 250
"""Queries of each train split that the gate is fitted on."""
EVERY = 4
"""Of the tools of real servers, every fourth one is added to the tools of a set."""
LARGE = 2000
"""A set with more tools is hard enough without others."""
DEPTH = 50
EPSILONS = (0.1, 0.2)
STRAY = 0.01
"""The share of queries which need a tool that the gate may call hopeless."""
ROOM = 0.05
"""How much lower the cosines of another set's queries may lie."""
LOST = 0.03
"""The share of everyday wishes, which are short and so less like a tool, that the gate may call hopeless."""
AMONG = ("hwu", "nl2bash", "callnavi")
"""Sets of `bench.learning.everyday_sets`: the wishes of the first, among the tools of all."""
WISHES = 500
RIDGE = 1e-2

LOG = 200
"""Tasks in the log that models learn from where a gate is fitted; among other tools a quarter of it, so that the gate
sees models that know much and models that know little."""
LEARNED = ("masstool", "tgr")
"""The methods that learn from the log: those that read a task before its first call."""
KS = (1, 2, 3, 5, 8, 12, 20)
"""The k that the gate is fitted on."""
BEST = 20
"""How many tools of each ranking the gain is fitted on."""
GAIN_RIDGE = 1e-4
FIXED = 12
"""The k that adaptive k is compared with."""

T = TypeVar("T")


@dataclass(frozen=True)
class Sample:
    """The ranking of one query, and the ranks of the tools it needs."""

    ranking: Ranking
    ranks: frozenset[int]

    def held(self, k: int) -> float:
        """1 if a needed tool is among the first k, else 0."""
        return float(any(rank <= k for rank in self.ranks))


def sampled(values: Sequence[T], most: int = SAMPLE) -> list[T]:
    """At most `most` values, drawn with a fixed seed, because files are sorted and begin with similar queries."""
    return random.Random(7).sample(values, min(most, len(values)))


def ask(pipeline: Pipeline, text: str, limit: int = DEPTH) -> Ranking:
    """Search for the query as one line."""
    return pipeline.rank(Query((" ".join(text.split()),)), limit=limit)


def samples(pipeline: Pipeline, tasks: Sequence[Task]) -> list[Sample]:
    """A sample for each task."""
    found = []
    for task in tasks:
        ranking, wanted = ask(pipeline, task.query), frozenset[ToolId]().union(*task.gold)
        ranks = (rank for rank, each in enumerate(ranking.ranked, 1) if each.tool in wanted)
        found.append(Sample(ranking, frozenset(ranks)))
    return found


def learn(
    tools: Sequence[Tool],
    log: Sequence[Task],
    have: Sequence[KeptEncoder],
) -> LearnedModels | None:
    """What is learned from these tasks, as far as they suffice."""
    episodes = tuple(Episode(tuple(min(need) for need in task.gold), (task.query,)) for task in log)
    documents = have[0].documents if have else None
    material = Material(tuple(tools), episodes, queries=joined_queries(have), documents=documents, seed=7)
    models: dict[str, LearnedModel] = {}
    for kind in LEARNED:
        method = methods.METHODS[kind]
        try:
            data = methods.load(method.training).train(material, lambda step, share: None)
        except TooLittle:
            continue
        models[kind] = methods.load(method.served).loads(data)
    return LearnedModels(models) if models else None


def fit_logistic(x: np.ndarray, y: np.ndarray, names: Sequence[str], ridge: float) -> Logistic:
    """Fit a logistic regression by Newton's method over standardised features, with a ridge on all but the bias. `x`
    (rows, features), `y` (rows,)."""
    mean, deviation = x.mean(0), x.std(0) + 1e-9
    z = np.column_stack([np.ones(len(x)), (x - mean) / deviation])
    pull = ridge * len(x) * np.diag([0.0, *np.ones(len(names))])
    beta = np.zeros(z.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-np.clip(z @ beta, -30, 30)))
        gradient = z.T @ (p - y) + pull @ beta
        beta -= np.linalg.solve((z * (p * (1 - p))[:, None]).T @ z + pull, gradient)
    weights = beta[1:] / deviation
    rounded = {name: round(float(weight), 4) for name, weight in zip(names, weights, strict=True)}
    return Logistic(round(float(beta[0] - weights @ mean), 4), rounded)


def fit(data: Sequence[Sample], *, cosines: bool = True) -> Weights:
    """Fit the gain of a tool, then with it the gate over the first k, which reads `cosines` or does not."""
    data = [each for each in data if each.ranking.ranked and not each.ranking.evidence[0].named]
    rows = [(each, chances.growth_features(each.ranking.ranked[:BEST])) for each in data]
    x = np.array([one for _, own in rows for one in own])
    y = np.array([float(rank in each.ranks) for each, own in rows for rank in range(1, len(own) + 1)])
    *read, _ = chances.FEATURES
    gain = fit_logistic(x[:, :-1], y, read, GAIN_RIDGE)
    weights = (*(gain.weights[name] for name in read), gain.bias)
    inputs = [(gate_inputs(each.ranking, weights, k), each.held(k)) for each in data for k in KS]
    names = sorted(name for name in inputs[0][0] if cosines or not name.startswith("cosine"))
    x = np.array([[found[name] for name in names] for found, _ in inputs])
    return Weights(weights, fit_logistic(x, np.array([true for _, true in inputs]), names, RIDGE))


def gate_inputs(ranking: Ranking, gain: Sequence[float], k: int) -> dict[str, float]:
    """What the gate reads of a ranking and its first k."""
    return confidence.signs(ranking) | confidence.at_most(chances.gains(gain, ranking.ranked), k)


def floor(p: Sequence[float], draws: int = 200) -> float:
    """The calibration error that a perfect gate would show on so few queries."""
    draw = random.Random(7)
    return fmean(calibration_error([(each, float(draw.random() < each)) for each in p]) for _ in range(draws))


def promise(ranks: Sequence[int | None], eps: float) -> Row:
    """How many tools to show so that at most `eps` of the needed ones are hidden, fitted on each half of the queries,
    and the share of needed tools that this shows on the other half."""
    halves = (ranks[0::2], ranks[1::2])
    shown = [conformal_k(one, eps) for one in halves]
    kept = [coverage(other, k) if k else None for k, other in zip(shown, reversed(halves), strict=True)]
    return {"show": shown, "kept": [None if each is None else round(each, 3) for each in kept]}


def said(data: Sequence[Sample]) -> list[tuple[float, float]]:
    """What the gate says of the first five, and whether it came true."""
    return [(confidence.judge(each.ranking).probability or 0.0, each.held(confidence.WITHIN)) for each in data]


def shown_outcome(sample: Sample) -> tuple[float, float]:
    """What a proxy records of an answer: the gate's probability for what it shows, and whether it came true."""
    judged = confidence.judge(sample.ranking)
    shown = min(judged.k or FIXED, confidence.WITHIN)
    return judged.among(shown) or 0.0, sample.held(shown)


class Size(NamedTuple):
    """The tokens of a tool: of its whole definition, of one line about it, and of its name."""

    whole: int
    line: int
    name: int


def size_of(tool: Tool) -> Size:
    """What a tool takes in each form in which an answer may show it, with the number before it."""
    said = summarize(tool.definition, CLAUSE)
    line = f"1. {signature(tool) or tool.id}: {said}"
    return Size(estimate(tool.definition.decode()), estimate(line), estimate(f"{tool.id}, "))


def as_shown(ranking: Ranking, level: Level, k: int, sizes: Mapping[ToolId, Size]) -> int:
    """The tokens of the first k tools as an answer of this level shows them: a few with their schemas, some in a line
    each, the rest by name."""
    form = shape(level, len(ranking.ranked), k)
    forms = [0] * form.ready + [1] * form.lined + [2] * form.named
    return sum(sizes[each.tool][at] for each, at in zip(ranking.ranked, forms, strict=False))


def widen(other: Sequence[Sample], ks: Sequence[int], target: float) -> float:
    """By how much k has to be multiplied so that the needed tool of the next query is shown with this probability, by
    what would have been enough for others (split conformal prediction over the rank in parts of k)."""
    ranks = ((min(each.ranks, default=None), k) for each, k in zip(other, ks, strict=True))
    parts = sorted(inf if rank is None else rank / max(k, 1) for rank, k in ranks)
    place = ceil((len(parts) + 1) * target)
    return parts[place - 1] if place <= len(parts) else inf


def adapt(half: Sequence[Sample], other: Sequence[Sample], sizes: Mapping[ToolId, Size]) -> Row:
    """What showing as many tools as the promise takes holds and costs on one half, with a gate recalibrated on the
    other half, against `FIXED` tools: in tokens of whole definitions, and as answers show tools. `held_most`: with the
    `DEPTH` tools that a ranking has at most, which no k passes. `widened_t`: with k multiplied by what the other half
    needed to hold t."""
    calibrate = platt(list(map(shown_outcome, other)))
    judged = [confidence.judge(each.ranking, calibrate) for each in half]
    shown = [each.k for each in judged]
    theirs = [confidence.judge(each.ranking, calibrate).k for each in other]

    def widened(target: float) -> Row:
        factor = widen(other, theirs, target)
        ks = [min(DEPTH, ceil(factor * k)) if k and factor < inf else DEPTH * bool(k) for k in shown]
        held = round(fmean(each.held(k) for each, k in zip(half, ks, strict=True)), 3)
        return {"k": round(fmean(ks), 1), "held": held, "as_shown": answers(ks)}

    def tokens(each: Sample, k: int) -> int:
        return sum(sizes[one.tool].whole for one in each.ranking.ranked[:k])

    def answers(ks: Sequence[int]) -> int:
        pairs = zip(half, judged, ks, strict=True)
        return round(fmean(as_shown(each.ranking, said.level, k, sizes) for each, said, k in pairs))

    return {
        **{f"widened_{target}": widened(target) for target in (0.9, 0.95)},
        "held_most": round(fmean(each.held(DEPTH) for each in half), 3),
        "as_shown": answers(shown),
        "as_shown_fixed": answers([FIXED] * len(half)),
        "k": round(fmean(shown), 1),
        "held": round(fmean(each.held(k) for each, k in zip(half, shown, strict=True)), 3),
        "held_fixed": round(fmean(each.held(FIXED) for each in half), 3),
        "tokens": round(fmean(tokens(each, k) for each, k in zip(half, shown, strict=True))),
        "tokens_fixed": round(fmean(tokens(each, FIXED) for each in half)),
    }  # fmt: skip


def examine(name: str, log: str, data: Sequence[Sample], sizes: Mapping[ToolId, Size]) -> Row:
    """The row of one set; every second sample belongs to one half."""
    outcomes = said(data)
    refitted = [(platt(outcomes[at::2])(p), true) for at in (0, 1) for p, true in outcomes[1 - at :: 2]]
    halves = data[0::2], data[1::2]
    ranks = [min(each.ranks, default=None) for each in data]
    return {
        "set": name,
        "log": log,
        "n": len(data),
        "right": round(fmean(true for _, true in outcomes), 3),
        "auc": area_under_curve([v for v, hit in outcomes if hit], [v for v, hit in outcomes if not hit]),
        "ece": round(calibration_error(outcomes), 3),
        "floor": round(floor([p for p, _ in outcomes]), 3),
        "ece_recalibrated": round(calibration_error(refitted), 3),
        "called_none": round(fmean(confidence.level(each.ranking) == "none" for each in data), 3),
        "adaptive": [adapt(one, other, sizes) for one, other in (halves, halves[::-1])],
        "reliability": [[round(p, 3), round(true, 3), count] for p, true, count in reliability(outcomes)],
        **{f"hide_at_most_{eps}": promise(ranks, eps) for eps in EPSILONS},
    }


def examine_both(
    name: str, data: Path, embedders: Sequence[KeptEncoder], most: int, shipped: Shipped | None
) -> Iterator[Row]:
    """The rows of one set: without a log, and each half with what was learned from the other one. `shipped` gives
    tools the wordings that come with foretool."""
    tools = read_tools(data / name)
    tasks = sampled(read_tasks(data / name / "dev.jsonl", tools), most)
    sizes = {tool.id: size_of(tool) for tool in tools}
    pipeline = Pool(tools, {}, embedders, shipped=shipped).pipeline()
    plain = samples(pipeline, tasks)
    yield examine(name, "none", plain, sizes)
    taught = list(plain)
    for at in (0, 1):
        pipeline.learned = learn(tools, tasks[1 - at :: 2], embedders)
        taught[at::2] = samples(pipeline, tasks[at::2])
    yield examine(name, "the other half", taught, sizes)


def detect(name: str, pipeline: Pipeline, needing: Sequence[str], idle: Sequence[str]) -> Row:
    """How well queries that need a tool are told from those that need none."""
    found = [[ask(pipeline, text) for text in texts] for texts in (needing, idle)]
    p = [[confidence.judge(each).probability or 0.0 for each in one] for one in found]
    lines = [[each.evidence[0] for each in one] for one in found]
    cosines = [[fmean(each.features.cosines) for each in one if each.features] for one in lines]
    none = [fmean(confidence.level(each) == "none" for each in one) for one in found]
    return {
        "set": name, "method": "needs a tool", "n": [len(needing), len(idle)],
        "auc": area_under_curve(cosines[0], cosines[1]), "auc_of_the_gate": area_under_curve(p[0], p[1]),
        "called_none": [round(each, 3) for each in none],
    }  # fmt: skip


def examine_offers(name: str, folder: Path, embedders: Sequence[KeptEncoder], positives: Path, most: int) -> Row:
    """How well queries for which none of the offered tools fits are told from queries for which one fits.

    A pool of one tool has no z-scores, so this reads the cosine of the best offered tool, averaged over the encoders.
    """
    tools = {tool.name: tool for tool in read_tools(folder)} | {tool.name: tool for tool in read_tools(positives)}
    pool = Pool(list(tools.values()), {}, embedders)
    meaning, slot_of = pool.pipeline().dense, pool.corpus.slot_of
    assert meaning is not None

    def best(text: str, names: Sequence[str]) -> float:
        slots = [slot_of[tools[each].id] for each in names if each in tools]
        return fmean(float(head.nearness(head.encoder.queries([text]))[0][slots].max()) for head in meaning.heads)

    known = [row for row in read_rows(folder / "dev.jsonl") if any(each in tools for each in row["offered"])]
    wrong = [best(row["query"], row["offered"]) for row in sampled(known, most)]
    rows = [row for row in read_rows(positives / "dev.jsonl") if any(each in tools for each in row["calls"])]
    right = [best(row["query"], [*row["calls"], *row.get("offered", ())]) for row in sampled(rows, most)]
    return {"set": name, "method": "fits what is offered", "n": [len(right), len(wrong)],
            "auc": area_under_curve(right, wrong)}  # fmt: skip


def fit_gate(
    data: Path,
    embedders: Sequence[KeptEncoder],
    untrained: Sequence[KeptEncoder],
    catalogs: Path,
    shipped: Shipped | None = None,
) -> Gate:
    """Fit from every train split: for words alone, for one encoder, for two, and for any, each without and with a
    log."""
    distractors = catalog_tools(catalogs)[::EVERY]
    found: dict[str, list[Sample]] = {}
    for name in FITTED:
        tools = read_tools(data / name)
        tasks = read_tasks(data / name / "train.jsonl", tools)
        tasks = random.Random(7).sample(tasks, min(ASKED + LOG, len(tasks)))
        own = {tool.id for tool in tools}
        hidden = [*tools, *(tool for tool in distractors if tool.id not in own)]
        pools = ((tools, LOG), (hidden, LOG // 4)) if len(tools) < LARGE else ((tools, LOG),)
        for most in range(len(embedders) + 1):
            have = embedders[:most]
            for pool, size in pools:
                pipeline = Pool(pool, {}, embedders, shipped=shipped).pipeline(most)
                for models in (None, learn(pool, tasks[ASKED : ASKED + size], have)):
                    pipeline.learned = models
                    for each in samples(pipeline, tasks[:ASKED]):
                        found.setdefault(confidence.kind_of(each.ranking), []).append(each)
    weights = {kind: fit(each) for kind, each in found.items()}
    one = "+".join(each.name for each in embedders[:1])
    for rest in ("", confidence.AFTER_LEARNING):
        weights[confidence.ANY + rest] = without_cosines(found[one + rest])
    licences = ", ".join(f"{name} train ({licence})" for name, licence in FITTED.items())
    return Gate(
        f"{licences}; {ASKED} queries each, alone and among {len(distractors)} other tools, without a log and with one",
        weights,
        least_cosines(data, untrained, [each.name for each in embedders][: len(untrained)]),
    )


def without_cosines(data: Sequence[Sample]) -> Weights:
    """The weights for encoders that nobody fitted: those of any encoder, without what differs between encoders."""
    return fit(data, cosines=False)


def merge_gates(kept: Gate, new: Gate) -> Gate:
    """The new gate, with what the kept one has for other encoders."""
    return Gate(new.fitted_on, kept.models | new.models, {**kept.least, **new.least})


def least_cosines(data: Path, untrained: Sequence[KeptEncoder], names: Sequence[str]) -> dict[str, float]:
    """The mean cosine that all but `STRAY` of the queries that need a tool have, for one encoder and for two.

    The untrained encoders read them: a trained one knows the tools of this set and is surer of them than of others. On
    sets that took no part in its training the cosines do not change.
    """
    folder = data / "metatool_awareness"
    found = {}
    for most in range(1, len(untrained) + 1):
        pipeline = Pool(read_tools(folder), {}, untrained).pipeline(most)
        needing = [row["query"] for row in read_rows(folder / "train.jsonl") if row["needs_tool"]]
        signs = [ask(pipeline, text).evidence[0].features for text in needing]
        values = [fmean(each.cosines) for each in signs if each]
        found["+".join(names[:most])] = round(float(np.quantile(values, STRAY)) - ROOM, 2)
    return found


def lower_least(sets: Path, embedders: Sequence[KeptEncoder], least: Mapping[str, float]) -> dict[str, float]:
    """The least cosines, lowered to what all but `LOST` of everyday wishes have.

    Only for encoders that no training has shown these sets.
    """
    tools = [tool for name in AMONG for tool in read_tools(sets / name)]
    tasks = read_tasks(sets / AMONG[0] / "train.jsonl", read_tools(sets / AMONG[0]))
    random.Random(7).shuffle(tasks)
    said = list(Pool(tools, {}).said.values())
    texts = [task.query for task in tasks[:WISHES]]
    best = [(each.queries(texts) @ each.documents(said).T).max(1) for each in embedders]
    found = dict(least)
    for most in range(1, len(embedders) + 1):
        names = "+".join(each.name for each in embedders[:most])
        allowed = round(float(np.quantile(np.mean(best[:most], axis=0), LOST)), 2)
        found[names] = min(allowed, least.get(names, allowed))
    return found


def write_gate(gate: Gate, everyday: Path | None, embedders: Sequence[KeptEncoder]) -> Iterator[Row]:
    """Write a gate, its least cosines lowered where there are everyday wishes."""
    if everyday is not None:
        gate = replace(gate, least=lower_least(everyday, embedders, gate.least))
    confidence.FILE.write_text(json.dumps(to_builtins(gate), indent=2) + "\n", encoding="utf-8")
    yield to_builtins(gate)


def results(arguments: argparse.Namespace) -> Iterator[Row]:
    """A row per set; or the fitted gate, after it is written."""
    data: Path = arguments.data
    most: int = arguments.sample
    shipped = None if arguments.without_wordings else find_wordings
    with open_store(arguments.vectors or ":memory:") as store:
        cache = arguments.vectors.parent / "encoders" if arguments.vectors else None
        named, vectors = encoders.find(arguments.encoder), store.vectors
        embedders = [open_kept(each, cache, vectors, queries=False) for each in named]
        if arguments.fit:
            # Training on both sides moves all cosines, and has seen these sets: that encoder's least stays as it is.
            measured = () if any(each.reads_tools for each in named) else named
            untrained = [open_kept(each.untrained, cache, vectors, queries=False) for each in measured]
            new = fit_gate(data, embedders, untrained, data / "mcp_catalogs", shipped)
            yield from write_gate(merge_gates(confidence.shipped(), new), arguments.everyday, embedders)
            return
        if arguments.everyday:
            yield from write_gate(confidence.shipped(), arguments.everyday, embedders)
            return
        chosen = arguments.sets.split(",")
        for name in (each for each in EXAMINED if each in chosen and (data / each).is_dir()):
            yield from examine_both(name, data, embedders, most, shipped)
        for name, against in ((name, DETECTED[name]) for name in DETECTED if name in chosen):
            pipeline = Pool(read_tools(data / against), {}, embedders).pipeline()
            rows = read_rows(data / name / "dev.jsonl")
            idle = sampled([row["query"] for row in rows if not row["needs_tool"]], most)
            needing = [row["query"] for row in rows if row["needs_tool"]] or [
                row["query"] for row in read_rows(data / against / "dev.jsonl")
            ]
            yield detect(name, pipeline, sampled(needing, most), idle)
        if OFFERED in chosen:
            yield examine_offers(OFFERED, data / OFFERED, embedders, data / "bfcl", most)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print one JSON object a line."""
    parser = make_parser("bench.retrieval.gate", __doc__)
    parser.add_argument("data", type=Path, help="a folder of data sets")
    parser.add_argument("--fit", action="store_true", help="write retrieval/gate.json instead of examining it")
    parser.add_argument(
        "--everyday", type=Path, metavar="FOLDER",
        help="lower the least cosines by everyday wishes, and write them; with --fit after it",
    )  # fmt: skip
    parser.add_argument("--sets", default=",".join(SETS), help="sets to examine; default %(default)s")
    parser.add_argument("--encoder", default="auto", help="as the setting `encoder`; default %(default)s")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="most queries of a set; default %(default)s")
    parser.add_argument("--vectors", type=Path, help="SQLite file that keeps embeddings between runs")
    parser.add_argument("--without-wordings", action="store_true", help="as without those that come with foretool")
    for result in results(parser.parse_args(argv)):
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
