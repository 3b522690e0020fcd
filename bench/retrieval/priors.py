"""Measures the priors of an empty log, or fits them: `python -m bench.retrieval.priors DATA [--fit]`.

A list of `--budget` tokens is filled before anything was called, and the tasks of a set are done with it. The output is
one JSON object per set: the share of calls whose tool is not in the list (`hidden`, between the ends of its 95 %
bootstrap interval over tasks; with an empty list all of them are), and the same for a list of the smallest tools
(`smallest`) and for tools in random order (`random`, the mean of 20 orders). The sets of `UNSEEN` have servers that no
prior has seen. For each set of `FITTED` the priors are fitted again without it.

`part` is the whole set, or `some servers`: the mean over lists for a few servers of a set, as a user would have them,
with about 60, 90 and 150 tools.

`--edges` measures what the sure part of the schema graph says before anything was learned instead: of the tools that
depend on a called one by an edge of at least `SURE`, how many are called next and later in the task (`followed`), and
of the tools that a called one depends on, how many were called before (`preceded`).

`--fit` writes `retrieval/priors.json` from the train splits of `FITTED`. How far the weights are pulled to 0, and how
much size counts, is chosen by sets that are left out whole. No set of `UNSEEN` is read for it.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import fmean

import numpy as np
from msgspec import to_builtins

from bench.datasets import is_there, place_by_name, read_rows, tool_from_row
from bench.options import make_parser
from bench.reports import Row
from foretool.learning.results import RESAMPLES, SEED, interval
from foretool.retrieval import priors
from foretool.retrieval.document import Fields, definition_fields
from foretool.retrieval.graph import Graph, schema_edges
from foretool.retrieval.priors import Priors
from foretool.retrieval.tokens import estimate, fill_budget
from foretool.storage.records import ToolId

FITTED = {"ultratool": "MIT", "bfcl_multi_turn": "Apache-2.0", "sealtools": "Apache-2.0", "taskbench_multimedia": "MIT"}
"""Sets whose train split the priors are fitted on, with their licence. All of them have tasks of several calls."""
UNSEEN = ("mcpbench", "livemcpbench", "apibank_tgr", "mcptoolbenchpp", "stabletoolbench")
PULLS = (0.03, 0.1, 0.3)
"""Values tried for how far weights are pulled to 0."""
PENALTIES = (0.5, 0.75, 1.0)
"""Values tried for the size penalty."""
SURE = 0.89
"""Edges over required identifiers have .9, less what floating point takes."""
MOST_NEXT = 4
"""How many successors of a call are counted, as a hint would show them."""
SIZES = (60, 90, 150)
"""About how many tools a user's servers have."""
DRAWS = 40
"""How many groups of servers are drawn for each size."""
SMALL, LARGE, FEW_CALLS = 3, 400, 3
"""The fit reads servers that have from `SMALL` to `LARGE` tools and at least `FEW_CALLS` calls."""
ENOUGH = 50
"""A server with more calls counts no more."""

Order = Callable[[Sequence[Fields]], Sequence[ToolId]]
"""Sorts tools for a list."""


@dataclass(frozen=True)
class Log:
    """The tools of a set, and the calls of its tasks."""

    name: str
    tools: Sequence[Fields]
    sizes: Mapping[ToolId, int]
    calls: Sequence[tuple[ToolId, ...]]

    @cached_property
    def counts(self) -> Counter[ToolId]:
        return Counter(tool for each in self.calls for tool in each)

    @cached_property
    def servers(self) -> dict[str, list[Fields]]:
        found: dict[str, list[Fields]] = defaultdict(list)
        for tool in self.tools:
            found[tool.upstream].append(tool)
        return found

    def some(self, size: int, count: int) -> Iterator[Log]:
        """Draw servers that tasks use until they have `size` tools, `count` times; calls of others are left out."""
        draw = random.Random(size)
        used = {tool.upstream for tool in self.tools if self.counts[tool.id]}
        names = [name for name in self.servers if name in used]
        for _ in range(count):
            draw.shuffle(names)
            tools: list[Fields] = []
            for name in names:
                if len(tools) < size:
                    tools += self.servers[name]
            known = {tool.id for tool in tools}
            calls = [kept for each in self.calls if (kept := tuple(tool for tool in each if tool in known))]
            yield Log(self.name, tools, self.sizes, calls)


def read_log(folder: Path, part: str) -> Log:
    """Read one part of a set; calls of tools that it does not describe are left out."""
    rows = read_rows(folder / "tools.jsonl")
    given = ({"outputSchema": row["output_schema"]} if row.get("output_schema") else {} for row in rows)
    read = (tool_from_row(row, **more) for row, more in zip(rows, given, strict=True))
    tools = list({tool.id: tool for tool in read}.values())
    by_name = {name: tools[place].id for name, place in place_by_name(tools).items()}
    known = {str(tool.id): tool.id for tool in tools}
    rows = read_rows(folder / f"{part}.jsonl")
    found = (tuple(tool for call in row["calls"] if (tool := known.get(call) or by_name.get(call))) for row in rows)
    sizes = {tool.id: estimate(tool.definition.decode()) for tool in tools}
    return Log(folder.name, [definition_fields(tool) for tool in tools], sizes, [each for each in found if each])


# Lists


def fill(log: Log, order: Order, budget: int) -> list[ToolId]:
    """Fill one list."""
    return fill_budget(order(log.tools), log.sizes.__getitem__, budget)


def hidden(log: Log, listed: Sequence[ToolId]) -> float:
    """The share of all calls whose tool is not in the list."""
    return 1.0 - sum(map(log.counts.__getitem__, listed)) / log.counts.total()


def hidden_interval(log: Log, listed: Sequence[ToolId]) -> list[float]:
    """`hidden` between the ends of its 95 % bootstrap interval over tasks."""
    shown = set(listed)
    tasks = [(sum(tool not in shown for tool in each), len(each)) for each in log.calls]
    draw = random.Random(SEED)
    shares: list[float] = []
    for _ in range(RESAMPLES):
        missed, calls = map(sum, zip(*draw.choices(tasks, k=len(tasks)), strict=True))
        shares.append(missed / calls)
    shares.sort()
    ends = shares[int(0.025 * RESAMPLES)], shares[int(0.975 * RESAMPLES)]
    return [round(share, 3) for share in (ends[0], hidden(log, listed), ends[1])]


def by(known: Priors, log: Log, budget: int) -> Order:
    return lambda tools: known.order(tools, log.sizes.__getitem__, budget)


def smallest(log: Log) -> Order:
    return lambda tools: sorted((tool.id for tool in tools), key=lambda tool: (log.sizes[tool], tool))


def shuffled(seed: int) -> Order:
    def order(tools: Sequence[Fields]) -> list[ToolId]:
        found = [tool.id for tool in tools]
        random.Random(seed).shuffle(found)
        return found

    return order


def examine(log: Log, known: Priors, budget: int) -> Iterator[Row]:
    """A row for the whole set, and one for a few servers of it if it has several."""
    listed = fill(log, by(known, log, budget), budget)
    yield {
        "set": log.name, "part": "whole", "tools": len(log.tools), "tasks": len(log.calls),
        "calls": log.counts.total(), "listed": len(listed), "tokens": sum(map(log.sizes.__getitem__, listed)),
        "hidden": hidden_interval(log, listed),
        "smallest": round(hidden(log, fill(log, smallest(log), budget)), 3),
        "random": round(fmean(hidden(log, fill(log, shuffled(seed), budget)) for seed in range(20)), 3),
    }  # fmt: skip
    if len(log.servers) > 3:
        groups = [some for size in SIZES for some in log.some(size, DRAWS) if some.calls]
        shares = [hidden(some, fill(some, by(known, some, budget), budget)) for some in groups]
        low, high = interval(shares)
        yield {
            "set": log.name, "part": "some servers", "tools": round(fmean(len(some.tools) for some in groups)),
            "tasks": round(fmean(len(some.calls) for some in groups)),
            "hidden": [round(low, 3), round(fmean(shares), 3), round(high, 3)],
            "smallest": round(fmean(hidden(some, fill(some, smallest(some), budget)) for some in groups), 3),
            "random": round(fmean(hidden(some, fill(some, shuffled(1), budget)) for some in groups), 3),
        }  # fmt: skip


def examine_edges(log: Log) -> Row:
    """How often the sure edges of the schema graph came true in the tasks of a set."""
    graph = Graph(schema_edges(log.tools))
    sure = [edge for edge in graph if edge.confidence >= SURE]
    after: dict[ToolId, list[ToolId]] = defaultdict(list)
    before: dict[ToolId, list[ToolId]] = defaultdict(list)
    for edge in sure:
        after[edge.before].append(edge.after)
        before[edge.after].append(edge.before)
    shown = following = later = needed = preceded = 0
    for calls in log.calls:
        for at, call in enumerate(calls):
            rest, told = calls[at + 1 :], after[call][:MOST_NEXT]
            shown += len(told) if rest else 0
            following += bool(rest) and rest[0] in told
            later += sum(tool in rest for tool in told)
            needed += len(before[call])
            preceded += sum(tool in calls[:at] for tool in before[call])
    return {
        "set": log.name, "edges": len(sure), "calls": log.counts.total(), "shown": shown, "next": following,
        "followed": later, "needed": needed, "preceded": preceded,
    }  # fmt: skip


# The fit


def fit_first(logs: Sequence[Log], pull: float) -> dict[str, float]:
    """Fit which tool of a server is called by Newton's method: a softmax over the tools of each server. A server counts
    by its calls up to `ENOUGH`, a set by the root of its servers."""
    names = sorted({name for log in logs for tool in log.tools for name, _ in priors.features(tool)})
    place = {name: at for at, name in enumerate(names)}
    samples: list[tuple[np.ndarray, np.ndarray, float]] = []
    for log in logs:
        groups: list[tuple[np.ndarray, np.ndarray, float]] = []
        for tools in log.servers.values():
            y = np.array([log.counts[tool.id] for tool in tools], float)
            if not SMALL <= len(tools) <= LARGE or y.sum() < FEW_CALLS:
                continue
            x = np.zeros((len(tools), len(names)))
            for row, tool in enumerate(tools):
                for name, value in priors.features(tool):
                    x[row, place[name]] = value
            groups.append((x, y / y.sum(), min(y.sum(), ENOUGH) / ENOUGH))
        weight = sum(share for *_, share in groups)
        samples += [(x, y, share / sqrt(weight)) for x, y, share in groups]
    total = sum(weight for *_, weight in samples)
    beta = np.zeros(len(names))
    for _ in range(30):
        gradient, hessian = pull * beta, pull * np.eye(len(names))
        for x, y, weight in samples:
            p = np.exp(x @ beta - np.max(x @ beta))
            p /= p.sum()
            mean = x.T @ p
            gradient = gradient + weight / total * (mean - x.T @ y)
            hessian = hessian + weight / total * ((x * p[:, None]).T @ x - np.outer(mean, mean))
        beta = beta - np.linalg.solve(hessian, gradient)
    return {name: round(float(weight), 3) for name, weight in zip(names, beta, strict=True)}


def fit(logs: Sequence[Log], budget: int) -> tuple[Priors, Row]:
    """Fit the priors with the pull and the size penalty that hide least in sets that are left out one by one."""
    trials: dict[tuple[float, float], float] = {}
    groups = {log.name: [some for size in SIZES for some in log.some(size, DRAWS // 2) if some.calls] for log in logs}
    several = [log for log in logs if len(log.servers) > 3]
    for pull in PULLS:
        weights = {log.name: fit_first([other for other in logs if other is not log], pull) for log in several}
        for penalty in PENALTIES:
            trials[pull, penalty] = fmean(
                hidden(some, fill(some, by(Priors("", weights[log.name], penalty), some, budget), budget))
                for log in several
                for some in groups[log.name]
            )
    pull, penalty = min(product(PULLS, PENALTIES), key=trials.__getitem__)
    told = ", ".join(f"{log.name} ({FITTED[log.name]})" for log in logs)
    report: Row = {"pull": pull, "size_penalty": penalty, "hidden": round(trials[pull, penalty], 4),
                   "tried": {f"{a}/{b}": round(share, 4) for (a, b), share in trials.items()}}  # fmt: skip
    return Priors(f"train splits of {told}", fit_first(logs, pull), penalty), report


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments; measure or fit."""
    parser = make_parser("bench.retrieval.priors", __doc__)
    parser.add_argument("data", type=Path, help="folder of data sets")
    parser.add_argument("--fit", action="store_true", help="write retrieval/priors.json instead of examining it")
    parser.add_argument("--edges", action="store_true", help="measure the sure part of the schema graph instead")
    parser.add_argument("--budget", type=int, default=1650, help="tokens for tools of servers; default %(default)s")
    arguments = parser.parse_args(argv)
    budget: int = arguments.budget
    logs = [read_log(arguments.data / name, "train") for name in FITTED if (arguments.data / name).is_dir()]
    if arguments.fit:
        known, report = fit(logs, budget)
        text = json.dumps(to_builtins(known), indent=1, ensure_ascii=False) + "\n"
        priors.FILE.write_text(text, "utf-8")
        print(json.dumps({**report, "written": f"{priors.FILE.name}, {len(text)} bytes"}))
        return
    if arguments.edges:
        unseen = [read_log(arguments.data / name, "dev") for name in UNSEEN if (arguments.data / name).is_dir()]
        for log in [*unseen, *logs]:
            print(json.dumps(examine_edges(log)), flush=True)
        return
    for name in UNSEEN:
        if is_there(arguments.data / name / "dev.jsonl"):
            for row in examine(read_log(arguments.data / name, "dev"), priors.shipped(), budget):
                print(json.dumps(row), flush=True)
    for log in logs:
        if len(log.servers) > 3:
            known, _ = fit([other for other in logs if other is not log], budget)
            for row in examine(log, known, budget):
                print(json.dumps({**row, "left out": True}), flush=True)


if __name__ == "__main__":
    main()
