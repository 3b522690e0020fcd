"""Measures how well and how fast tools are found, method by method.

    python -m bench.retrieval.ranking FOLDER [--queries FILE] [--methods a,b] [--json]

FOLDER holds `tools.jsonl` (`server`, `name`, `description`, `input_schema`; optionally `servers.jsonl` with `server`,
`description`) and queries (`id`, `query`, `calls`; optionally `accept`, `ambiguous`), plain or gzipped; the default is
`dev.jsonl`. FOLDER may also be one JSON file: `{"servers": {name: [tool, ...]}, "queries": [{"query", "gold"}]}`.

Words are read from name, server, description, parameter names, parameter descriptions and enum values; encoders read
server, name, description, parameter names; with `--server-texts` both read the servers' descriptions too. Every method
of `bench.retrieval.ranking_methods` runs by its name: `--methods served,minilm,lexical+hash`. With --wordings the
proxy's ranking reads those of a file: server, tool and wishes in each line, tabs between. `over_bm25` and `over_light`
are paired tests against those methods, where they ran before; `--over` names others. `possible@5` is the highest r@5
that any ranking can have: five tools do not meet seven needs.

The output is one line per method, with --json one JSON object. With --head-to-head it has the lines of the harness that
measures other proxies (`bench.proxy.peers search`), to be put beside theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec.structs import replace

from bench import metrics, options, processes
from bench.datasets import Task, catalog_tools, read_search_file, read_server_texts, read_tasks, read_tools
from bench.kept_encoder import KeptEncoder
from bench.reports import Row, difference, mean_row, print_row, times_row
from bench.retrieval.pool import DEPTH, Pool
from bench.retrieval.ranking_methods import build_method
from foretool.retrieval import encoders, tokens
from foretool.retrieval.confidence import level
from foretool.retrieval.corpus import Corpus, Shipped
from foretool.retrieval.known_tools import shipped_wordings
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.ranking import Query
from foretool.retrieval.tokens import fill_budget
from foretool.server.catalog.encoders import open_any_encoder
from foretool.storage.opening import open_store
from foretool.storage.records import Tool, ToolId
from foretool.storage.store import Store

RECALLS = (1, 2, 5, 10, 20)
POSSIBLE = (1, 5, 10)
TOKENS_AT = (5, 10)
BUDGETS = (2000, 4000)
CHARGED = 300
"""Most tokens one tool costs of a budget; a bigger schema is shown trimmed."""
KEY = "FORETOOL_ENCODER_KEY"
PAIRED = "bm25,light"
"""Methods that the others are tested against, where they ran before."""


@dataclass(frozen=True)
class Run:
    """The answers of one method to every task."""

    ranked: list[list[ToolId]]
    milliseconds: list[float]
    build_s: float


def run(method: str, pool: Pool, tasks: Sequence[Task]) -> Run:
    """Build the method once, warm it with some queries, then ask every query and keep answers and times."""
    started = time.perf_counter()
    search = build_method(method, pool)
    build_s = time.perf_counter() - started
    for task in tasks[:20]:
        search(task.query)
    ranked, milliseconds = [], []
    for task in tasks:
        started = time.perf_counter()
        ranked.append(search(task.query))
        milliseconds.append(1e3 * (time.perf_counter() - started))
    return Run(ranked, milliseconds, build_s)


def figures(answers: Run, tasks: Sequence[Task], sizes: Mapping[ToolId, int]) -> Row:
    """Every metric of a run; metrics of quality have their 95 % interval."""
    pairs = [(ranked, task.gold) for ranked, task in zip(answers.ranked, tasks, strict=True)]
    found: Row = {}
    for k in RECALLS:
        found |= mean_row(f"r@{k}", [metrics.recall(ranked, gold, k) for ranked, gold in pairs])
    for k in POSSIBLE:
        found[f"possible@{k}"] = round(fmean(metrics.possible_recall(gold, k) for _, gold in pairs), 4)
    found |= mean_row("hit@1", [metrics.hit(ranked, gold, 1) for ranked, gold in pairs])
    for k in (5, 10):
        found |= mean_row(f"ndcg@{k}", [metrics.ndcg(ranked, gold, k) for ranked, gold in pairs])
        found |= mean_row(f"complete@{k}", [metrics.completeness(ranked, gold, k) for ranked, gold in pairs])
    found |= mean_row("mrr", [metrics.reciprocal_rank(ranked, gold) for ranked, gold in pairs])
    for k in TOKENS_AT:
        found[f"tokens@{k}"] = round(fmean(sum(sizes[tool] for tool in ranked[:k]) for ranked, _ in pairs))
    for budget in BUDGETS:
        values = [metrics.recall(fitting(ranked, sizes, budget), gold, DEPTH) for ranked, gold in pairs]
        found[f"r_in_{budget}_tokens"] = round(fmean(values), 4)
    return {**found, "build_s": round(answers.build_s, 3), **times_row(answers.milliseconds, digits=3)}


def fitting(ranked: Sequence[ToolId], sizes: Mapping[ToolId, int], budget: int) -> list[ToolId]:
    """The tools that fit, taken greedily down the list; a tool is charged at most `CHARGED`."""
    return fill_budget(ranked, lambda tool: min(sizes[tool], CHARGED), budget)


def paired(answers: Run, other: Run, tasks: Sequence[Task]) -> dict[str, list[float]]:
    """Mean difference of the recalls to another method on the same queries, with its 95 % interval."""
    found = {}
    for k in (1, 5, 10):
        ours, theirs = (
            [metrics.recall(ranked, task.gold, k) for ranked, task in zip(each.ranked, tasks, strict=True)]
            for each in (answers, other)
        )
        found[f"r@{k}"] = difference(ours, theirs)
    return found


def levels(pool: Pool, tasks: Sequence[Task]) -> dict[str, dict[str, float]]:
    """How often the gate gives each level, and how often a gold tool is then among the first five."""
    pipeline = pool.pipeline()
    right: dict[str, list[float]] = {"high": [], "medium": [], "low": [], "none": []}
    for task in tasks:
        query = Query(tuple(task.query.splitlines()))
        ranking = pipeline.rank(query, limit=5)
        right[level(ranking)].append(metrics.hit([each.tool for each in ranking.ranked], task.gold, 5))
    return {
        name: {"share": round(len(hits) / len(tasks), 3), "right": round(fmean(hits), 3) if hits else 0.0}
        for name, hits in right.items()
    }


def token_sizes(tools: Sequence[Tool]) -> dict[ToolId, int]:
    """The tokens of every definition: counted where the tokenizer is installed, else estimated."""
    texts = [tool.definition.decode() for tool in tools]
    counted = tokens.count_tokens(texts) if tokens.available() else [tokens.estimate(text) for text in texts]
    return {tool.id: size for tool, size in zip(tools, counted, strict=True)}


def repeated(tools: Sequence[Tool], size: int) -> list[Tool]:
    """The catalog repeated until it has this many tools, each copy from other servers."""
    return [
        replace(tool, id=ToolId(f"{at // len(tools)}-{tool.id}"), upstream=f"{tool.upstream} {at // len(tools)}")
        for at, tool in ((at, tools[at % len(tools)]) for at in range(size))
    ]


def timed(pipeline: Pipeline, query: Query) -> float:
    """Milliseconds of one search for as many tools as an answer shows."""
    started = time.perf_counter()
    pipeline.rank(query, limit=15)
    return 1e3 * (time.perf_counter() - started)


def latency(pool: Pool, tasks: Sequence[Task], size: int) -> dict[str, Any]:
    """Build time, memory and search times (best of three) over `size` tools, by length of the query in words."""
    many = repeated(pool.tools, size)
    before = processes.memory_mib(os.getpid())[0]
    started = time.perf_counter()
    corpus = Corpus(many)
    found: dict[str, Any] = {"tools": size, "build_s": round(time.perf_counter() - started, 3)}
    found["index_mib"] = round(processes.memory_mib(os.getpid())[0] - before, 1)
    last = many[-1].upstream
    theirs = [tool for tool in many if tool.upstream == last]
    corpus.replace(last, ())
    started = time.perf_counter()
    corpus.replace(last, theirs)
    found[f"add_{len(theirs)}_tools_ms"] = round(1e3 * (time.perf_counter() - started), 2)
    pipeline = Pool(many, {}, pool.encoders).pipeline() if pool.encoders else Pipeline(corpus)
    times: dict[str, list[float]] = {}
    for task in tasks:
        words = len(task.query.split())
        bucket = "1-25" if words <= 25 else "26-150" if words <= 150 else "151+"
        query = Query((" ".join(task.query.split()),))
        times.setdefault(bucket, []).append(min(timed(pipeline, query) for _ in range(3)))
    for bucket, values in sorted(times.items()):
        found[f"words_{bucket}"] = {"n": len(values), **times_row(values, digits=3)}
    found["index_warm_mib"] = round(processes.memory_mib(os.getpid())[0] - before, 1)
    found["process_mib"] = round(processes.memory_mib(os.getpid())[0], 1)
    return found


def open_encoders(arguments: argparse.Namespace, store: Store, setting: str) -> list[KeptEncoder]:
    """Open the encoders of a setting. The vectors of tools are kept in `--vectors`."""
    endpoint = encoders.Endpoint(arguments.encoder_url, os.environ.get(KEY, ""))
    return [
        KeptEncoder(open_any_encoder(weights, key=endpoint.key), store.vectors, weights.key)
        for weights in encoders.resolve_weights(setting, endpoint)
    ]


def read_set(arguments: argparse.Namespace) -> tuple[list[Tool], list[Task], dict[str, str]]:
    """The tools, tasks and server texts that the arguments name."""
    source: Path = arguments.folder
    if source.is_file():
        tools, tasks = read_search_file(source, not arguments.no_servers)
        texts: dict[str, str] = {}
    else:
        tools = read_tools(source)
        tasks = read_tasks(arguments.queries or source / "dev.jsonl", tools)
        texts = read_server_texts(source) if arguments.server_texts else {}
    if arguments.pool:
        own = {tool.id for tool in tools}
        tools = [*tools, *(tool for tool in catalog_tools(arguments.pool) if tool.id not in own)]
    if not tasks:
        raise SystemExit(f"{source}: no query whose gold tools are in tools.jsonl; give another file with --queries")
    if arguments.needing:
        tasks = needing(tasks, tools, arguments.needing)
    if arguments.sample and arguments.sample < len(tasks):
        tasks = random.Random(7).sample(tasks, arguments.sample)
    return tools, tasks[: arguments.limit], texts


def needing(tasks: Sequence[Task], tools: Sequence[Tool], pattern: str) -> list[Task]:
    """The tasks with only those needs that a tool meets whose description matches; tasks without any are left out."""
    matching = {
        tool.id for tool in tools if re.search(pattern, str(json.loads(tool.definition).get("description") or ""))
    }
    found = (Task(task.query, tuple(need for need in task.gold if need & matching)) for task in tasks)
    return [task for task in found if task.gold]


def results(arguments: argparse.Namespace) -> Iterator[Row]:
    """A row of figures per method, then a row of the gate; or only the row of latency."""
    tools, tasks, texts = read_set(arguments)
    name = arguments.folder.stem if arguments.folder.is_file() else arguments.folder.name
    with open_store(arguments.vectors or ":memory:") as store:
        opener = partial(open_encoders, arguments, store)
        pool = Pool(tools, texts, opener(arguments.encoder), opener, choose_wordings(arguments))
        head = {"set": name, "n": len(tasks), "encoders": "+".join(each.name for each in pool.encoders)}
        if arguments.latency:
            yield {**head, "method": "latency", **latency(pool, tasks, arguments.latency)}
            return
        sizes = token_sizes(tools)
        runs: dict[str, Run] = {}
        for method in arguments.methods.split(","):
            try:
                runs[method] = run(method, pool, tasks)
            except (encoders.EncoderError, ValueError) as error:
                raise SystemExit(f"--methods: {error}") from None
            tests = {
                f"over_{other}": paired(runs[method], runs[other], tasks)
                for other in arguments.over.split(",")
                if other in runs and other != method
            }
            yield {**head, "method": method, "tools": len(tools), **figures(runs[method], tasks, sizes), **tests}
        yield {**head, "method": "gate", **levels(pool, tasks)}


def choose_wordings(arguments: argparse.Namespace) -> Shipped | None:
    """What gives tools their wordings: a file, foretool's own, or nothing."""
    if arguments.without_wordings:
        return None
    if arguments.wordings is None:
        return shipped_wordings
    written = read_wordings(arguments.wordings)
    return lambda read: written.get((read.server, read.name)) or shipped_wordings(read)


def read_wordings(file: Path) -> dict[tuple[str, str], tuple[str, ...]]:
    """The wordings of a file, by server and tool. Raises `SystemExit` for a line of another form."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for at, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        server, *rest = line.split("\t")
        if len(rest) < 2:
            raise SystemExit(f"{file}:{at}: expected server, tool and wishes with tabs between, found {line[:60]!r}")
        found[server, rest[0]] = tuple(each.strip() for each in rest[1:] if each.strip())
    return found


def head_to_head(result: Mapping[str, Any]) -> dict[str, Any]:
    """The row as the harness for other proxies prints it."""
    kept = {f"recall@{k}": result[f"r@{k}"] for k in (1, 5, 10)}
    kept |= {"hit@1": result["hit@1"], "p50_ms": result["p50_ms"], "p95_ms": result["p95_ms"], "tools": result["tools"]}
    name = f"foretool {result['method']}"
    return {"test": "search", "data": result["set"], "peer": name, "queries": result["n"], **kept}


def make_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """The arguments that name a set and its encoders, for this benchmark and for `bench.papers.itr`."""
    known = options.make_parser(module, description)
    known.add_argument("folder", type=Path, help="a data set: a folder, or one JSON file of servers and queries")
    known.add_argument("--queries", type=Path, help="default: dev.jsonl of the folder")
    known.add_argument("--limit", type=int, help="only the first so many queries")
    known.add_argument("--sample", type=int, help="only so many queries, drawn with a fixed seed")
    known.add_argument("--needing", metavar="REGEX", help="only needs of tools whose description matches")
    known.add_argument("--pool", type=Path, help="folder of server catalogs to hide the tools among")
    known.add_argument("--server-texts", action="store_true", help="index what servers say of themselves as well")
    known.add_argument("--no-servers", action="store_true", help="one JSON file: its server names mean nothing")
    known.add_argument("--encoder", default="auto", help="as the setting `encoder`; default %(default)s")
    known.add_argument("--encoder-url", default="", help=f"as the setting `encoder_url`; its key is in {KEY}")
    known.add_argument("--vectors", type=Path, help="SQLite file that keeps embeddings between runs")
    options.add_json(known)
    return known


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print as results come."""
    parser = make_parser("bench.retrieval.ranking", __doc__)
    parser.add_argument(
        "--methods", default="bm25,lexical,served", help="methods to run, with commas; default %(default)s"
    )
    parser.add_argument("--over", default=PAIRED, help="methods to test later ones against; default %(default)s")
    parser.add_argument(
        "--wordings", type=Path, metavar="FILE", help="what a language model wrote, as `foretool enrich` would have it"
    )
    parser.add_argument("--without-wordings", action="store_true", help="as without those that come with foretool")
    parser.add_argument("--latency", type=int, metavar="N", help="repeat the tools to N and time the pipeline instead")
    parser.add_argument(
        "--head-to-head", action="store_true", help="as `bench.proxy.peers search` prints other proxies"
    )
    arguments = parser.parse_args(argv)
    for result in results(arguments):
        if not arguments.head_to_head:
            print_row(result, arguments.json)
        elif "r@1" in result:
            print(json.dumps(head_to_head(result)), flush=True)


if __name__ == "__main__":
    main()
