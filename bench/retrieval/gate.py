"""Measures how far the gate's levels hold, or fits it.

    python -m bench.retrieval.gate DATA [--fit] [--doubtful] [--sets a,b] [--sample N] [--log N] [--vectors FILE]
        [--without-wordings]

The gate says how likely the first tool of a search is a right one, and how likely a needed one is among the first k.
DATA holds sets as `bench.retrieval.ranking` reads them. The output is one JSON object for each of `EXAMINED`, whose
families took no part in the fit: how often the first tool is right, the area under the curve of its stated probability
(`auc`), the expected calibration error (`ece`) with the error that a perfect gate would show on so few queries
(`floor`), how often `high` is said and right, the share of right first tools that are said to be `high`, and how often
`high` is said of the same queries once the tools they need are gone, and once those are gone as well that say nearly
the same (`unserved_high`). `held` is the share of queries whose needed tool is among as many tools as the gate asks
for. `after` has the same once the log has `--log` searches for the same tools and what was called after each: the mean
of `DRAWS` logs, drawn from the train split or, where that has too few, from the queries, of which the others are judged
then. Their client calls the best needed tool that it is shown, and finds it by another search where it is shown none.
Then it says what is said of `unserved.json`, which no tool of the real servers serves, among the tools of everyday
tasks and among all, and how well queries that need a tool are told from others. Tools of well-known servers have the
wishes that come with foretool, as in a proxy.

`--fit` writes `retrieval/gate.json` instead, from the train splits of `FITTED`, from everyday tasks over real servers
and from wishes over invented ones: each query with its tools there, among tools of real servers, and with its tools
gone, and beside them queries that need no tool; without a log and with one of other train tasks, for words alone and
for the encoders that `--encoder` names. What the file says of other encoders stays. `--doubtful` writes only the
cosine of the best tool below which the level is `low` at most, from queries of the same train splits.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TypeVar

import numpy as np
from msgspec import to_builtins
from msgspec.structs import replace

from bench.datasets import (
    Task,
    catalog_tools,
    read_catalogs,
    read_rows,
    read_tasks,
    read_tools,
    tool_from_row,
    tool_of,
)
from bench.kept_encoder import KeptEncoder, joined_queries, open_kept
from bench.learning import invented_apis
from bench.options import make_parser
from bench.reports import Row, area_under_curve
from bench.retrieval import everyday
from bench.retrieval.pool import Pool
from foretool.learning.training import Material, TooLittle
from foretool.retrieval import confidence, encoders, methods
from foretool.retrieval.calibration import AS_SHIPPED, Recalibration, calibration_error
from foretool.retrieval.confidence import Gate, GateWeights, Logistic
from foretool.retrieval.corpus import Shipped
from foretool.retrieval.known_tools import shipped_wordings
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.learned import LearnedModel, LearnedModels
from foretool.retrieval.ranking import Query, Ranking
from foretool.server.discovery.answer_shape import LEAST
from foretool.server.recording.calibration import fit_calibration
from foretool.storage.opening import open_store
from foretool.storage.records import DiscoveryOutcome, Episode, Tool, ToolId

FITTED = {
    "toole": "MIT", "toole_multi": "MIT", "ultratool": "MIT", "taskbench_multimedia": "MIT", "octopus": "Apache-2.0",
    "sealtools": "Apache-2.0",
}  # fmt: skip
"""Sets whose train split the gate is fitted on, with their licence."""
NEEDLESS = "metatool_awareness"
"""The set whose train split has queries that need no tool."""
EXAMINED = (
    "livemcpbench", "mcpbench", "mcptoolbenchpp", "bfcl", "bfcl_ports", "bfcl_multi_turn", "apibank", "apibank_tgr",
    "apibench", "stabletoolbench", "toolsense", "toollens",
)  # fmt: skip
DETECTED = {"metatool_awareness": "metatool_awareness", "tooldet": "toole"}
"""Sets with queries that need no tool, and the set whose queries and tools they are compared with."""
OFFERED = "bfcl_irrelevance"
"""The set of queries for which none of the offered tools fits; those of bfcl have one that does."""
UNSERVED = "unserved"
UNSERVED_FILE = Path(__file__).with_name("unserved.json")
"""Requests that no tool of the real servers serves: those that the gate was chosen by, and those of the report."""
SETS = (*EXAMINED, UNSERVED, *DETECTED, OFFERED)
SAMPLE = 240
SEARCHES, DRAWS = 50, 10
"""So many searches are on record where a log takes part, and so many logs are drawn."""
FEWEST = 30
"""Fewer queries left to judge tell nothing."""
ASKED = 200
"""Queries of each train split that the gate is fitted on."""
AMONG_OTHERS, GONE, IDLE = 80, 100, 100
"""So many of these among other tools, with their tools gone, and queries that need no tool."""
WEIGHTS = {"there": 1.0, "among": 0.5, "gone": 0.08, "idle": 0.08}
"""What each of these kinds counts in all for the fit, in each set."""
OTHERS = 1000
"""So many tools of real servers are added to the tools of a set."""
DEPTH = 50
STRAY = 0.01
"""The share of queries which need a tool that the gate may call hopeless."""
DOUBTED = 0.03
"""The share of queries whose tool is found, in the mean of all sets, that the gate may call low because no tool is
near."""
ROOM = 0.05
"""How much lower the cosines of another set's queries may lie."""
LOST = 0.03
"""The share of everyday wishes, which are short and so less like a tool, that the gate may call hopeless."""
AMONG = ("hwu", "nl2bash", "callnavi")
"""Sets of `bench.learning.everyday_sets`: the wishes of the first, among the tools of all."""
WISHES = 500
RIDGE = 1e-2

LOG = 200
"""Tasks in the log that models learn from where a gate is fitted."""
LOGGED = ("toole", "ultratool")
"""The sets that have so many more."""
LEARNED = ("masstool", "tgr")
"""The methods that learn from the log: those that read a task before its first call."""
KS = (2, 3, 5, 8, 12, 20)
"""The k above 1 that the gate is fitted on."""
BEST = 20
"""How many tools of each ranking the gain is fitted on."""
GAIN_RIDGE = 1e-4
BY_MEANING = frozenset(("cosine", "clear", "crowd", "lead", "met"))
"""What the gate reads of cosines, which differ between encoders."""
EVERYDAY = {
    "time": "mcp-server-time", "git": "mcp-server-git", "fetch": "mcp-server-fetch", "sqlite": "mcp-server-sqlite",
    "calculator": "mcp-server-calculator", "duckduckgo": "duckduckgo-mcp-server", "arxiv": "arxiv-mcp-server",
    "excel": "excel-mcp-server", "word": "office-word-mcp-server", "files": "ref-filesystem", "memory": "ref-memory",
    "thinking": "ref-sequential-thinking", "everything": "ref-everything", "github": "ref-github",
    "playwright": "playwright-mcp", "notion": "notionhq-notion-mcp-server", "context7": "upstash-context7-mcp",
    "chart": "antv-mcp-server-chart", "youtube": "kimtaeyoon83-mcp-server-youtube-transcript",
}  # fmt: skip
"""Servers of `everyday.json` whose tools are among the catalogs, with their files."""

T = TypeVar("T")


@dataclass(frozen=True)
class Sample:
    """The ranking of one query, and the ranks of the tools it needs."""

    ranking: Ranking
    ranks: frozenset[int]
    weight: float = 1.0
    is_served: bool = True
    """Whether any tool serves the query."""

    def held(self, k: int) -> float:
        """1 if a needed tool is among the first k, else 0."""
        return float(any(rank <= k for rank in self.ranks))

    def is_high(self, known: Recalibration = AS_SHIPPED) -> bool:
        """Whether the gate is sure, with what the log says of its probabilities."""
        return confidence.judge(self.ranking, known).level == "high"


@dataclass(frozen=True)
class Searched:
    """Tools that are searched, and queries for them."""

    name: str
    tools: Sequence[Tool]
    tasks: Sequence[Task]


def sampled(values: Sequence[T], most: int = SAMPLE) -> list[T]:
    """At most `most` values, drawn with a fixed seed, because files are sorted and begin with similar queries."""
    return random.Random(7).sample(values, min(most, len(values)))


def ask(pipeline: Pipeline, text: str, limit: int = DEPTH) -> Ranking:
    """Search for the query as one line."""
    return pipeline.rank(Query((" ".join(text.split()),)), limit=limit)


def samples(pipeline: Pipeline, tasks: Sequence[Task], weight: float = 1.0) -> list[Sample]:
    """A sample for each task."""
    found = []
    for task in tasks:
        ranking, wanted = ask(pipeline, task.query), frozenset[ToolId]().union(*task.gold)
        ranks = (rank for rank, each in enumerate(ranking.ranked, 1) if each.tool in wanted)
        found.append(Sample(ranking, frozenset(ranks), weight))
    return found


def tools_alike(pipeline: Pipeline, tools: Sequence[Tool]) -> dict[ToolId, frozenset[ToolId]]:
    """For each tool, those that say nearly the same: with the needed one gone, they serve its tasks."""
    if pipeline.dense is None:
        return {}
    said = Pool(tools, {}).said
    vectors = pipeline.dense.heads[0].encoder.documents([said[tool.id] for tool in tools])
    near = vectors @ vectors.T >= confidence.ALIKE
    return {
        tool.id: frozenset(tools[at].id for at in np.flatnonzero(near[row]).tolist()) for row, tool in enumerate(tools)
    }


def samples_without(
    pipeline: Pipeline,
    tools: Sequence[Tool],
    tasks: Sequence[Task],
    weight: float = 1.0,
    alike: Mapping[ToolId, frozenset[ToolId]] | None = None,
) -> list[Sample]:
    """A sample for each task, with the tools that it needs gone from the catalog, and with each its `alike` ones."""
    found = []
    by_upstream: dict[str, list[Tool]] = {}
    for tool in tools:
        by_upstream.setdefault(tool.upstream, []).append(tool)
    upstream_of = {tool.id: tool.upstream for tool in tools}
    dense = pipeline.dense
    for task in tasks:
        gone, corpus = frozenset[ToolId]().union(*task.gold), pipeline.corpus.copy()
        gone = gone.union(*((alike or {}).get(tool, ()) for tool in gone))
        for upstream in {upstream_of[tool] for tool in gone}:
            corpus.replace(upstream, [tool for tool in by_upstream[upstream] if tool.id not in gone])
        if dense is not None:
            dense.align(corpus.digests, corpus.version, corpus.servers)
        found.append(Sample(ask(Pipeline(corpus, dense), task.query), frozenset(), weight, is_served=False))
    if dense is not None:
        dense.align(pipeline.corpus.digests, pipeline.corpus.version, pipeline.corpus.servers)
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
            data = methods.import_object(method.training).train(material, lambda step, share: None)
        except TooLittle:
            continue
        models[kind] = methods.import_object(method.served).loads(data)
    return LearnedModels(models) if models else None


def fit_logistic(
    x: np.ndarray, y: np.ndarray, names: Sequence[str], ridge: float, weights: np.ndarray | None = None
) -> Logistic:
    """Fit a logistic regression by Newton's method over standardised features, with a ridge on all but the bias. `x`
    (rows, features), `y` and `weights` (rows,)."""
    share = np.full(len(x), 1.0 / len(x)) if weights is None else weights / weights.sum()
    mean = share @ x
    deviation = np.sqrt(share @ (x - mean) ** 2) + 1e-9
    z = np.column_stack([np.ones(len(x)), (x - mean) / deviation])
    pull = ridge * np.diag([0.0, *np.ones(len(names))])
    beta = np.zeros(z.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-np.clip(z @ beta, -30, 30)))
        gradient = z.T @ (share * (p - y)) + pull @ beta
        beta -= np.linalg.solve((z * (share * p * (1 - p))[:, None]).T @ z + pull, gradient)
    found = beta[1:] / deviation
    rounded = {name: round(float(weight), 4) for name, weight in zip(names, found, strict=True)}
    return Logistic(round(float(beta[0] - found @ mean), 4), rounded)


def fit(data: Sequence[Sample], *, cosines: bool = True) -> GateWeights:
    """Fit the first place on all queries, and on those that a tool serves its gain, and with the gain the gate over the
    first k: how many tools to show is asked where there is one. The models read `cosines` or do not."""
    data = [each for each in data if each.ranking.ranked and not each.ranking.evidence[0].named]
    served = [each for each in data if each.is_served]
    rows = [(each, confidence.chance_features(each.ranking.ranked[:BEST])) for each in served]
    x = np.array([one for _, own in rows for one in own])
    y = np.array([float(rank in each.ranks) for each, own in rows for rank in range(1, len(own) + 1)])
    *read, _ = confidence.CHANCE_FEATURES
    gain = fit_logistic(x[:, :-1], y, read, GAIN_RIDGE)
    weights = (*(gain.weights[name] for name in read), gain.bias)
    of_list = [(confidence.signs(each.ranking), each.held(1), each.weight) for each in data]
    of_first = [(gate_inputs(each.ranking, weights, k), each.held(k), each.weight) for each in served for k in KS]
    return GateWeights(weights, _fit_signs(of_list, cosines=cosines), _fit_signs(of_first, cosines=cosines))


def _fit_signs(rows: Sequence[tuple[Mapping[str, float], float, float]], *, cosines: bool) -> Logistic:
    """Fit a logistic regression on rows of features by name, outcome and weight; what never differs is left out."""
    told = [name for name in sorted(rows[0][0]) if cosines or name not in BY_MEANING]
    names = [name for name in told if len({found[name] for found, _, _ in rows}) > 1]
    x = np.array([[found[name] for name in names] for found, _, _ in rows])
    true, weights = (np.array([each[at] for each in rows]) for at in (1, 2))
    return fit_logistic(x, true, names, RIDGE, weights)


def gate_inputs(ranking: Ranking, gain: Sequence[float], k: int) -> dict[str, float]:
    """What the gate reads of a ranking and its first k."""
    return confidence.signs(ranking) | confidence.at_most(confidence.gains(gain, ranking.ranked), k)


def floor(p: Sequence[float], draws: int = 200) -> float:
    """The calibration error that a perfect gate would show on so few queries."""
    draw = random.Random(7)
    return fmean(calibration_error([(each, float(draw.random() < each)) for each in p]) for _ in range(draws))


def first_outcome(sample: Sample, known: Recalibration = AS_SHIPPED) -> tuple[float, float]:
    """How likely the gate holds the first tool to be right, and whether it is."""
    held = confidence.judge(sample.ranking).held
    return (known.first(held[0]) if held else 0.0), sample.held(1)


def recorded_outcome(sample: Sample) -> DiscoveryOutcome:
    """What the log says of a search whose client calls the best needed tool that it is shown, if it is shown one, and
    else finds it by another search."""
    judged = confidence.judge(sample.ranking)
    shown = max(judged.k, LEAST)
    rank = min((rank for rank in sample.ranks if rank <= shown), default=None)
    return DiscoveryOutcome(
        0.0, judged.among(shown), rank, sample.ranking.ranked[0].tool, judged.held[0] if judged.held else None
    )


def judged_levels(
    data: Sequence[Sample], gone: Sequence[Sample], unserved: Sequence[Sample], known: Recalibration
) -> dict[str, float]:
    """How far the stated probability of the first tool is off, and how often `high` is said: of all, of those whose
    first tool is right (`right_high`), and of those that are right (`highs_right`, a share of all)."""
    outcomes = [first_outcome(each, known) for each in data]
    high = [each.is_high(known) for each in data]
    right = [each.held(1) for each in data]
    return {
        "ece": calibration_error(outcomes),
        "floor": floor([p for p, _ in outcomes]),
        "high": fmean(high),
        "highs_right": fmean(is_high * is_right for is_high, is_right in zip(high, right, strict=True)),
        "gone_high": fmean(each.is_high(known) for each in gone),
        "unserved_high": fmean(each.is_high(known) for each in unserved),
    }  # fmt: skip


def write_levels(found: Mapping[str, float], right: float) -> Row:
    """The levels of one set, rounded; `right`: the share of it whose first tool is right."""
    told = {name: round(value, 3) for name, value in found.items() if name != "highs_right"}
    high = found["high"]
    return told | {
        "high_right": round(found["highs_right"] / high, 3) if high else None,
        "right_high": round(found["highs_right"] / right, 3) if right else None,
    }


def examine_after_use(
    data: Sequence[Sample], gone: Sequence[Sample], unserved: Sequence[Sample], past: Sequence[Sample], searches: int
) -> Row | None:
    """The levels once `searches` searches are on record; None where too few queries are left to judge."""
    drawn: list[dict[str, float]] = []
    rights: list[float] = []
    for seed in range(DRAWS):
        kept = list(past if len(past) >= searches else data)
        random.Random(seed).shuffle(kept)
        judged = data if len(past) >= searches else kept[searches:]
        if len(judged) < FEWEST:
            return None
        log = [recorded_outcome(each) for each in kept[:searches] if each.ranking.ranked]
        drawn.append(judged_levels(judged, gone, unserved, fit_calibration(log).map))
        rights.append(fmean(each.held(1) for each in judged))
    mean = {name: fmean(each[name] for each in drawn) for name in drawn[0]}
    return {"searches": searches, "judged": len(judged), **write_levels(mean, fmean(rights))}


def examine(
    name: str, data: Sequence[Sample], gone: Sequence[Sample], unserved: Sequence[Sample],
    past: Sequence[Sample] = (), searches: int = 0,
) -> Row:  # fmt: skip
    """The row of one set; `gone`: the same queries with their tools gone, `unserved`: with those that say nearly the
    same gone as well, `past`: other queries of the set."""
    outcomes = [first_outcome(each) for each in data]
    right = fmean(true for _, true in outcomes)
    return {
        "set": name,
        "n": len(data),
        "right": round(right, 3),
        "auc": area_under_curve([v for v, hit in outcomes if hit], [v for v, hit in outcomes if not hit]),
        **write_levels(judged_levels(data, gone, unserved, AS_SHIPPED), right),
        "none": round(fmean(confidence.level(each.ranking) == "none" for each in data), 3),
        "held": round(fmean(each.held(confidence.judge(each.ranking).k) for each in data), 3),
        "after": examine_after_use(data, gone, unserved, past, searches) if searches else None,
    }  # fmt: skip


def examined_tasks(path: Path, tools: Sequence[Tool]) -> list[Task]:
    """The queries of a file, each once with all that its rows need, without those whose tool does not fit them (scope
    "relevance" of bfcl_ports)."""
    unfit = {row["query"] for row in read_rows(path) if row.get("scope") == "relevance"}
    needs: dict[str, tuple[frozenset[ToolId], ...]] = {}
    for task in read_tasks(path, tools):
        if task.query not in unfit:
            needs[task.query] = (*needs.get(task.query, ()), *task.gold)
    return [Task(query, gold) for query, gold in needs.items()]


def past_tasks(folder: Path, tools: Sequence[Tool]) -> list[Task]:
    """Queries of the train split, whose file may be compressed; none where there is no such file."""
    found = next((path for path in (folder / "train.jsonl", folder / "train.jsonl.gz") if path.is_file()), None)
    return sampled(examined_tasks(found, tools)) if found else []


def examine_set(
    name: str, data: Path, embedders: Sequence[KeptEncoder], most: int, shipped: Shipped | None, searches: int = 0
) -> Row:
    """The row of a set. `shipped` gives tools the wordings that come with foretool; `searches` are on record."""
    tools = read_tools(data / name)
    tasks = sampled(examined_tasks(data / name / "dev.jsonl", tools), most)
    pipeline = Pool(tools, {}, embedders, shipped=shipped).pipeline()
    some, alike = tasks[:GONE], tools_alike(pipeline, tools)
    gone, unserved = (samples_without(pipeline, tools, some, alike=each) for each in (None, alike))
    past = samples(pipeline, past_tasks(data / name, tools)) if searches else []
    return examine(name, samples(pipeline, tasks), gone, unserved, past, searches)


def examine_unserved(tools: Sequence[Tool], embedders: Sequence[KeptEncoder], shipped: Shipped | None) -> Row:
    """How often each level is said of requests that no tool serves, among tools of real servers."""
    pipeline = Pool(tools, {}, embedders, shipped=shipped).pipeline()
    row: Row = {"set": UNSERVED, "tools": len(tools)}
    for part, texts in json.loads(UNSERVED_FILE.read_text("utf-8")).items():
        levels = [confidence.level(ask(pipeline, text)) for text in texts]
        row[part] = {level: levels.count(level) for level in ("high", "medium", "low", "none")}
    return row


def detect(name: str, pipeline: Pipeline, needing: Sequence[str], idle: Sequence[str]) -> Row:
    """How well queries that need a tool are told from those that need none."""
    found = [[ask(pipeline, text) for text in texts] for texts in (needing, idle)]
    p = [[confidence.judge(each).probability or 0.0 for each in one] for one in found]
    lines = [[each.evidence[0] for each in one] for one in found]
    cosines = [[fmean(each.nearness.cosines) for each in one if each.nearness] for one in lines]
    levels = [[confidence.level(each) for each in one] for one in found]
    return {
        "set": name, "method": "needs a tool", "n": [len(needing), len(idle)],
        "auc": area_under_curve(cosines[0], cosines[1]), "auc_of_the_gate": area_under_curve(p[0], p[1]),
        "called_none": [round(one.count("none") / len(one), 3) for one in levels],
        "called_high": [round(one.count("high") / len(one), 3) for one in levels],
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


def everyday_tasks(catalogs: Path) -> Searched:
    """The everyday tasks over real servers, as far as the catalogs have these."""
    held, read = dict(read_catalogs(catalogs)), json.loads(everyday.FILE.read_text("utf-8"))
    tools = [tool_of(name, tool) for name, server in EVERYDAY.items() for tool in held.get(server, ())]
    return _serve("everyday", tools, ((each["task"], [each["tools"]]) for each in (*read["tasks"], *read["check"])))


def invented_wishes() -> Searched:
    """The wishes of the development part of the invented servers."""
    rows = read_rows(invented_apis.FILE)
    tools = [tool_from_row(row) for row in invented_apis.tool_rows(rows)]
    wishes = [row for part, _, row in invented_apis.task_rows(rows) if part == "dev"]
    return _serve("invented", tools, ((row["query"], [[call] for call in row["calls"]]) for row in wishes))


def _serve(name: str, tools: Sequence[Tool], asked: Iterable[tuple[str, Collection[Collection[str]]]]) -> Searched:
    """The queries that these tools serve; each has the names of the tools that meet each of its needs."""
    known = {str(tool.id).replace("__", "/", 1): tool.id for tool in tools}
    tasks = []
    for query, wanted in asked:
        needs = (
            frozenset(known[at] for one in names if (at := one.replace("__", "/", 1)) in known) for names in wanted
        )
        if gold := tuple(each for each in needs if each):
            tasks.append(Task(query, gold))
    return Searched(name, tools, tasks)


def searched_sets(data: Path) -> Iterator[Searched]:
    """What the gate is fitted on."""
    yield everyday_tasks(data / "mcp_catalogs")
    yield invented_wishes()
    for name in FITTED:
        tools = read_tools(data / name)
        yield Searched(name, tools, read_tasks(data / name / "train.jsonl", tools))


def fit_gate(
    data: Path,
    embedders: Sequence[KeptEncoder],
    untrained: Sequence[KeptEncoder],
    catalogs: Path,
    shipped: Shipped | None = None,
) -> Gate:
    """Fit from every set: for words alone, for one encoder, for two, and for any, each without and with a log."""
    others = sampled(catalog_tools(catalogs), OTHERS)
    idle = [row["query"] for row in read_rows(data / NEEDLESS / "train.jsonl") if not row["needs_tool"]]
    found: dict[str, list[Sample]] = {}
    for each in searched_sets(data):
        for most in range(len(embedders) + 1):
            for sample in fitted_samples(each, others, sampled(idle, IDLE), embedders[:most], shipped):
                found.setdefault(confidence.weights_name(sample.ranking), []).append(sample)
    weights = {kind: fit(each) for kind, each in found.items()}
    one = "+".join(each.name for each in embedders[:1])
    for rest in ("", confidence.AFTER_LEARNING) if embedders else ():
        weights[confidence.ANY + rest] = without_cosines(found[one + rest])
    licences = ", ".join(f"{name} train ({licence})" for name, licence in FITTED.items())
    return Gate(
        f"{licences}, everyday tasks and invented servers (foretool's own); {ASKED} queries each at most, alone, among "
        f"{OTHERS} other tools, with their tools gone, and {IDLE} that need no tool; without a log and with one",
        weights,
        least_cosines(data, untrained, [each.name for each in embedders][: len(untrained)]),
    )


def fitted_samples(
    of: Searched, others: Sequence[Tool], idle: Sequence[str], have: Sequence[KeptEncoder], shipped: Shipped | None
) -> Iterator[Sample]:
    """The samples of one set, weighted so that sets count alike: without a log, and where it has enough tasks with a
    log of others."""
    tasks = sampled(of.tasks, ASKED + LOG)
    asked, log = tasks[:ASKED], tasks[ASKED:] if of.name in LOGGED else ()
    pipeline = Pool(of.tools, {}, have, shipped=shipped).pipeline(len(have))

    def share(kind: str, count: int) -> float:
        return WEIGHTS[kind] / max(count, 1)

    for models in (None, learn(of.tools, log, have)) if log else (None,):
        pipeline.learned = models
        yield from samples(pipeline, asked, share("there", len(asked)))
        for text in idle:
            yield Sample(ask(pipeline, text), frozenset(), share("idle", len(idle)), is_served=False)
    pipeline.learned = None
    gone = asked[:GONE]
    yield from samples_without(pipeline, of.tools, gone, share("gone", len(gone)))
    own = {tool.upstream for tool in of.tools}
    hidden = [*of.tools, *(tool for tool in others if tool.upstream not in own)]
    if of.name != "everyday":  # other servers have tools for the same
        some = asked[:AMONG_OTHERS]
        yield from samples(Pool(hidden, {}, have, shipped=shipped).pipeline(len(have)), some, share("among", len(some)))


def without_cosines(data: Sequence[Sample]) -> GateWeights:
    """The weights for encoders that nobody fitted: those of any encoder, without what differs between encoders."""
    return fit(data, cosines=False)


def merge_gates(kept: Gate, new: Gate) -> Gate:
    """The new gate, with what the kept one has for other encoders."""
    models, least = kept.models | new.models, {**kept.least, **new.least}
    return Gate(new.fitted_on, models, least, kept.doubtful)


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
        signs = [ask(pipeline, text).evidence[0].nearness for text in needing]
        values = [fmean(each.cosines) for each in signs if each]
        found["+".join(names[:most])] = round(float(np.quantile(values, STRAY)) - ROOM, 2)
    return found


def doubtful_cosine(data: Path, embedders: Sequence[KeptEncoder], shipped: Shipped | None) -> float:
    """The mean cosine of the best tool that all but `DOUBTED` of the queries have whose tool is found."""
    asked = []
    for each in searched_sets(data):
        pipeline = Pool(each.tools, {}, embedders, shipped=shipped).pipeline(len(embedders))
        asked.append(samples(pipeline, sampled(each.tasks, ASKED)))
    return cosine_below(asked, DOUBTED)


def cosine_below(asked: Sequence[Sequence[Sample]], share: float) -> float:
    """The cosine below which this share of the queries lies whose tool is found. Every set counts alike."""
    found: list[tuple[float, float]] = []
    for each in asked:
        own = [nearest_cosine(sample) for sample in each if is_found(sample)]
        found += [(cosine, 1 / len(own) / len(asked)) for cosine in own]
    cosines, weights = np.array(sorted(found)).T
    return round(float(cosines[np.searchsorted(np.cumsum(weights), share)]), 2)


def is_found(sample: Sample) -> bool:
    """Whether a needed tool is among the first ones, and the query did not ask for it by its name."""
    return bool(sample.held(confidence.WITHIN)) and not any(each.named for each in sample.ranking.evidence)


def nearest_cosine(sample: Sample) -> float:
    """How near the best tool is to the lines of a query, which encoders read."""
    return max(fmean(each.nearness.cosines) for each in sample.ranking.evidence if each.nearness is not None)


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
    shipped = None if arguments.without_wordings else shipped_wordings
    with open_store(arguments.vectors or ":memory:") as store:
        named, vectors = encoders.resolve_weights(arguments.encoder), store.vectors
        embedders = [open_kept(each, vectors, queries=arguments.vectors is not None) for each in named]
        if arguments.fit:
            # Training on both sides moves all cosines, and has seen these sets: that encoder's least stays as it is.
            measured = () if any(each.reads_tools for each in named) else named
            untrained = [open_kept(each.untrained, vectors, queries=False) for each in measured]
            new = fit_gate(data, embedders, untrained, data / "mcp_catalogs", shipped)
            yield from write_gate(merge_gates(confidence.shipped(), new), arguments.everyday, embedders)
            return
        if arguments.doubtful:
            kept, names = confidence.shipped(), "+".join(each.name for each in embedders)
            gate = replace(kept, doubtful={**kept.doubtful, names: doubtful_cosine(data, embedders, shipped)})
            yield from write_gate(gate, None, embedders)
            return
        if arguments.everyday:
            yield from write_gate(confidence.shipped(), arguments.everyday, embedders)
            return
        chosen = arguments.sets.split(",")
        for name in (each for each in EXAMINED if each in chosen and (data / each).is_dir()):
            yield examine_set(name, data, embedders, most, shipped, arguments.log)
        if UNSERVED in chosen:
            catalogs = data / "mcp_catalogs"
            for tools in (everyday_tasks(catalogs).tools, catalog_tools(catalogs)):
                yield examine_unserved(tools, embedders, shipped)
        for name, against in ((name, DETECTED[name]) for name in DETECTED if name in chosen):
            pipeline = Pool(read_tools(data / against), {}, embedders).pipeline()
            rows = read_rows(data / name / "dev.jsonl")
            idle = sampled([row["query"] for row in rows if not row["needs_tool"]], most)
            needing = [row["query"] for row in rows if row["needs_tool"]] or [
                row["query"] for row in read_rows(data / against / "dev.jsonl")
            ]
            yield detect(name, pipeline, sampled(needing, most), idle)
        if OFFERED in chosen and embedders:
            yield examine_offers(OFFERED, data / OFFERED, embedders, data / "bfcl", most)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print one JSON object a line."""
    parser = make_parser("bench.retrieval.gate", __doc__)
    parser.add_argument("data", type=Path, help="a folder of data sets")
    parser.add_argument("--fit", action="store_true", help="write retrieval/gate.json instead of examining it")
    parser.add_argument("--doubtful", action="store_true", help="write only below which cosine the level is low")
    parser.add_argument(
        "--everyday", type=Path, metavar="FOLDER",
        help="lower the least cosines by everyday wishes, and write them; with --fit after it",
    )  # fmt: skip
    parser.add_argument("--sets", default=",".join(SETS), help="sets to examine; default %(default)s")
    parser.add_argument("--encoder", default="auto", help="as the setting `encoder`; default %(default)s")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="most queries of a set; default %(default)s")
    parser.add_argument("--log", type=int, default=SEARCHES, help="searches of a log; default %(default)s, 0 for none")
    parser.add_argument("--vectors", type=Path, help="SQLite file that keeps embeddings between runs")
    parser.add_argument("--without-wordings", action="store_true", help="as without those that come with foretool")
    for result in results(parser.parse_args(argv)):
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
