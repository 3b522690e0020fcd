"""Measures how well the gate is calibrated, or fits it: `python -m bench.retrieval.gate DATA [--fit] [--vectors FILE]`.

The gate says how likely a needed tool is among the first five. DATA holds sets as `bench.retrieval.ranking` reads them.
The output is one JSON object per development set: the area under the curve (`auc`), the expected calibration error
(`ece`) with the error that a perfect gate would show on so few queries (`floor`), the reliability by bins, and how well
queries that need a tool are told from others.

`--fit` writes `retrieval/gate.json` instead, from the train splits of `FITTED`, each alone and, if it is small, hidden
among tools of real servers, for the encoders that `--encoder` names. What the file says of other encoders stays.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TypeVar

import numpy as np
from msgspec import to_builtins

from bench import metrics
from bench.datasets import Task, catalog_tools, read_rows, read_tasks, read_tools
from bench.kept_encoder import KeptEncoder, open_kept
from bench.options import make_parser
from bench.reports import Row, area_under_curve
from bench.retrieval.pool import Pool
from foretool.retrieval import confidence, encoders
from foretool.retrieval.calibration import calibration_error, conformal_k, coverage, platt, reliability
from foretool.retrieval.confidence import Gate, Logistic
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.ranking import Evidence, Query
from foretool.storage.opening import open_store

FITTED = {"toole": "MIT", "ultratool": "MIT", "sealtools": "Apache-2.0"}
"""Sets whose train split the gate is fitted on, with their licence."""
EXAMINED = ("livemcpbench", "mcpbench", "mcptoolbenchpp", "bfcl", "toole_unseen", "apibank", "stabletoolbench")
DETECTED = {"metatool_awareness": "metatool_awareness", "tooldet": "toole"}
"""Sets with queries that need no tool, and the set whose queries and tools they are compared with."""
SAMPLE = 400
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
RIDGE = 1e-2

T = TypeVar("T")


@dataclass(frozen=True)
class Sample:
    """The features of one query, and whether a needed tool was among the first five."""

    features: dict[str, float]
    right: float


def sampled(values: Sequence[T]) -> list[T]:
    """At most `SAMPLE` values, drawn with a fixed seed, because files are sorted and begin with similar queries."""
    return random.Random(7).sample(values, min(SAMPLE, len(values)))


def ask(pipeline: Pipeline, text: str, limit: int = 5) -> tuple[Evidence, list[str]]:
    """Search for the query as one line; its evidence and the first tools."""
    ranking = pipeline.rank(Query((" ".join(text.split()),)), limit=limit)
    return ranking.evidence[0], [each.tool for each in ranking.ranked]


def samples(pipeline: Pipeline, tasks: Sequence[Task]) -> list[Sample]:
    """A sample for each task."""
    found = []
    for task in tasks:
        evidence, ranked = ask(pipeline, task.query)
        found.append(Sample(confidence.model_inputs(evidence), metrics.hit(ranked, task.gold, 5)))
    return found


def fit(data: Sequence[Sample], names: Sequence[str]) -> Logistic:
    """Fit a logistic regression by Newton's method over standardised features, with a ridge on all but the bias."""
    x = np.array([[each.features[name] for name in names] for each in data])
    y = np.array([each.right for each in data])
    mean, deviation = x.mean(0), x.std(0)
    z = np.column_stack([np.ones(len(x)), (x - mean) / deviation])
    ridge = RIDGE * len(x) * np.diag([0.0, *np.ones(len(names))])
    beta = np.zeros(z.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-z @ beta))
        gradient = z.T @ (p - y) + ridge @ beta
        beta -= np.linalg.solve((z * (p * (1 - p))[:, None]).T @ z + ridge, gradient)
    weights = beta[1:] / deviation
    rounded = {name: round(float(weight), 4) for name, weight in zip(names, weights, strict=True)}
    return Logistic(round(float(beta[0] - weights @ mean), 4), rounded)


def floor(p: Sequence[float], draws: int = 200) -> float:
    """The calibration error that a perfect gate would show on so few queries."""
    draw = random.Random(7)
    return fmean(calibration_error([(each, float(draw.random() < each)) for each in p]) for _ in range(draws))


def rank_of(ranked: Sequence[str], task: Task) -> int | None:
    """The rank of the first needed tool; None where the list has none."""
    wanted = frozenset[str]().union(*task.gold)
    return next((rank for rank, tool in enumerate(ranked, 1) if tool in wanted), None)


def promise(ranks: Sequence[int | None], eps: float) -> Row:
    """How many tools to show so that at most `eps` of the needed ones are hidden, fitted on each half of the queries,
    and the share of needed tools that this shows on the other half."""
    halves = (ranks[0::2], ranks[1::2])
    shown = [conformal_k(one, eps) for one in halves]
    kept = [coverage(other, k) if k else None for k, other in zip(shown, reversed(halves), strict=True)]
    return {"show": shown, "kept": [None if each is None else round(each, 3) for each in kept]}


def examine(name: str, pipeline: Pipeline, tasks: Sequence[Task]) -> Row:
    """The row of one set."""
    evidence = [(ask(pipeline, task.query, DEPTH), task) for task in tasks]
    p = [confidence.probability(found) if found.features else 0.0 for (found, _), _ in evidence]
    right = [metrics.hit(ranked[:5], task.gold, 5) for (_, ranked), task in evidence]
    outcomes = list(zip(p, right, strict=True))
    refitted = [(platt(outcomes[at::2])(said), true) for at in (0, 1) for said, true in outcomes[1 - at :: 2]]
    ranks = [rank_of(ranked, task) for (_, ranked), task in evidence]
    return {
        "set": name,
        "n": len(tasks),
        "right": round(fmean(right), 3),
        "auc": area_under_curve([v for v, hit in outcomes if hit], [v for v, hit in outcomes if not hit]),
        "ece": round(calibration_error(outcomes), 3),
        "floor": round(floor(p), 3),
        "ece_recalibrated": round(calibration_error(refitted), 3),
        "called_none": round(fmean(not confidence.fits(found) for (found, _), _ in evidence if found.features), 3),
        "reliability": [[round(said, 3), round(true, 3), count] for said, true, count in reliability(outcomes)],
        **{f"hide_at_most_{eps}": promise(ranks, eps) for eps in EPSILONS},
    }


def detect(name: str, pipeline: Pipeline, needing: Sequence[str], idle: Sequence[str]) -> Row:
    """How well queries that need a tool are told from those that need none."""
    found = [[ask(pipeline, text)[0] for text in texts] for texts in (needing, idle)]
    p = [[confidence.probability(each) for each in one] for one in found]
    cosines = [[fmean(each.features.cosines) for each in one if each.features] for one in found]
    none = [fmean(not confidence.fits(each) for each in one) for one in found]
    return {
        "set": name, "method": "needs a tool", "n": [len(needing), len(idle)],
        "auc": area_under_curve(cosines[0], cosines[1]), "auc_of_the_gate": area_under_curve(p[0], p[1]),
        "called_none": [round(each, 3) for each in none],
    }  # fmt: skip


def examine_offers(name: str, folder: Path, embedders: Sequence[KeptEncoder], positives: Path) -> Row:
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

    known = (row for row in read_rows(folder / "dev.jsonl") if any(each in tools for each in row["offered"]))
    wrong = [best(row["query"], row["offered"]) for row in known]
    rows = sampled([row for row in read_rows(positives / "dev.jsonl") if any(each in tools for each in row["calls"])])
    right = [best(row["query"], [*row["calls"], *row.get("offered", ())]) for row in rows]
    return {"set": name, "method": "fits what is offered", "n": [len(right), len(wrong)],
            "auc": area_under_curve(right, wrong)}  # fmt: skip


def fit_gate(data: Path, embedders: Sequence[KeptEncoder], untrained: Sequence[KeptEncoder], catalogs: Path) -> Gate:
    """Fit from every train split, alone and among the tools of real servers: for one encoder, for two, and for any."""
    distractors = catalog_tools(catalogs)[::EVERY]
    models: dict[str, Logistic] = {}
    for most in range(1, len(embedders) + 1):
        found: list[Sample] = []
        for name in FITTED:
            tools = read_tools(data / name)
            tasks = read_tasks(data / name / "train.jsonl", tools)
            tasks = sampled(tasks)
            own = {tool.id for tool in tools}
            hidden = [*tools, *(tool for tool in distractors if tool.id not in own)]
            for pool in (tools, hidden) if len(tools) < LARGE else (tools,):
                found += samples(Pool(pool, {}, embedders).pipeline(most), tasks)
        names = sorted(found[0].features)
        plain = [each for each in names if not each.startswith("cosine")]
        key = "+".join(each.name for each in embedders[:most])
        for each, read in ((key, names), ("", plain)):
            models[each] = fit(found, read)
    said = ", ".join(f"{name} train ({licence})" for name, licence in FITTED.items())
    return Gate(
        f"{said}; {SAMPLE} queries each, alone and among {len(distractors)} other tools",
        models,
        least_cosines(data, untrained, [each.name for each in embedders]),
    )


def merge_gates(kept: Gate, new: Gate) -> Gate:
    """The new gate, with what the kept one has for other encoders and for encoders that nobody fitted: the latter
    weights come from untrained encoders."""
    models = kept.models | new.models | ({"": kept.models[""]} if "" in kept.models else {})
    return Gate(new.fitted_on, models, {**kept.least, **new.least})


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
        signs = [ask(pipeline, text)[0].features for text in needing]
        values = [fmean(each.cosines) for each in signs if each]
        found["+".join(names[:most])] = round(float(np.quantile(values, STRAY)) - ROOM, 2)
    return found


def results(arguments: argparse.Namespace) -> Iterator[Row]:
    """A row per set; or the fitted gate, after it is written."""
    data: Path = arguments.data
    with open_store(arguments.vectors or ":memory:") as store:
        cache = arguments.vectors.parent / "encoders" if arguments.vectors else None
        named, vectors = encoders.find(arguments.encoder), store.vectors
        embedders = [open_kept(each, cache, vectors, queries=False) for each in named]
        if arguments.fit:
            untrained = [open_kept(each.untrained, cache, vectors, queries=False) for each in named]
            written = merge_gates(confidence.shipped(), fit_gate(data, embedders, untrained, data / "mcp_catalogs"))
            confidence.FILE.write_text(json.dumps(to_builtins(written), indent=2) + "\n", encoding="utf-8")
            yield to_builtins(written)
            return
        for name in (each for each in EXAMINED if (data / each).is_dir()):
            tools = read_tools(data / name)
            tasks = sampled(read_tasks(data / name / "dev.jsonl", tools))
            yield examine(name, Pool(tools, {}, embedders).pipeline(), tasks)
        for name, against in DETECTED.items():
            pipeline = Pool(read_tools(data / against), {}, embedders).pipeline()
            rows = read_rows(data / name / "dev.jsonl")
            idle = sampled([row["query"] for row in rows if not row["needs_tool"]])
            needing = [row["query"] for row in rows if row["needs_tool"]] or [
                row["query"] for row in read_rows(data / against / "dev.jsonl")
            ]
            yield detect(name, pipeline, sampled(needing), idle)
        yield examine_offers("bfcl_irrelevance", data / "bfcl_irrelevance", embedders, data / "bfcl")


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print one JSON object a line."""
    parser = make_parser("bench.retrieval.gate", __doc__)
    parser.add_argument("data", type=Path, help="a folder of data sets")
    parser.add_argument("--fit", action="store_true", help="write retrieval/gate.json instead of examining it")
    parser.add_argument("--encoder", default="auto", help="as the setting `encoder`; default %(default)s")
    parser.add_argument("--vectors", type=Path, help="SQLite file that keeps embeddings between runs")
    for result in results(parser.parse_args(argv)):
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
