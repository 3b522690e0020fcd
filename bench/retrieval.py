"""How well and how fast tools are found: `python -m bench.retrieval FOLDER [--queries FILE] [--methods a,b] [--json]`.

FOLDER holds `tools.jsonl` (`server`, `name`, `description`, `input_schema`; optionally `servers.jsonl` with `server`,
`description`) and queries (`id`, `query`, `calls`; optionally `accept`, `ambiguous`), plain or gzipped; the default is
`dev.jsonl`. Text used: name, server, description, parameter names, parameter descriptions and enum values; with
`--server-texts` the servers' descriptions too. With --json one object a line per method, else a table.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec.structs import replace

from foretool.retrieval import evaluation, tokens
from foretool.retrieval.pipeline import Corpus, Pipeline
from foretool.retrieval.ranking import Query
from foretool.retrieval.selection import level
from foretool.retrieval.words import terms
from foretool.storage.records import Tool, ToolId

DEPTH = 20
RECALLS = (1, 2, 5, 10, 20)
TOKENS_AT = (5, 10)

Search = Callable[[str], list[ToolId]]
Method = Callable[[Sequence[Tool], Mapping[str, str]], Search]


@dataclass(frozen=True)
class Task:
    """A query and what it needs."""

    query: str
    gold: tuple[frozenset[ToolId], ...]


@dataclass(frozen=True)
class Run:
    """What one method answered to every task."""

    ranked: list[list[ToolId]]
    milliseconds: list[float]
    build_s: float


def read_lines(path: Path) -> list[dict[str, Any]]:
    """JSON lines of a file, or of the same file gzipped."""
    packed = path if path.suffix == ".gz" else path.with_name(path.name + ".gz")
    if path.suffix != ".gz" and path.exists():
        text = path.read_text("utf-8")
    else:
        text = gzip.decompress(packed.read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def tool_of(server: str, name: str, definition: Mapping[str, Any]) -> Tool:
    """A tool as the catalog would hold it; its id is `server/name`, or the name where no server is known."""
    raw = json.dumps(definition, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return Tool(ToolId(f"{server}/{name}" if server else name), server, name, raw, sha256(raw).hexdigest())


def read_tools(folder: Path) -> list[Tool]:
    """The tools of a set."""
    return [
        tool_of(
            row.get("server") or "",
            row["name"],
            {
                "name": row["name"],
                "description": row.get("description") or "",
                "inputSchema": row.get("input_schema") or {},
            },
        )
        for row in read_lines(folder / "tools.jsonl")
    ]


def read_server_texts(folder: Path) -> dict[str, str]:
    """What the servers of a set say of themselves, if it is known."""
    path = folder / "servers.jsonl"
    return {row["server"]: row.get("description") or "" for row in read_lines(path)} if path.exists() else {}


def read_catalogs(folder: Path) -> list[Tool]:
    """Tools of real servers, one file a server with its `tools/list`."""
    catalogs = (json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json")))
    return [tool_of(each["server"], tool["name"], tool) for each in catalogs for tool in each["tools"]]


def read_tasks(path: Path, tools: Sequence[Tool]) -> list[Task]:
    """The queries whose gold tools exist; a name without server stands for the first tool that has it."""
    by_name: dict[str, ToolId] = {}
    for tool in tools:
        by_name.setdefault(tool.name, tool.id)
    known = {str(tool.id): tool.id for tool in tools} | {n: t for n, t in by_name.items() if n == str(t)}

    def need(names: Sequence[str]) -> frozenset[ToolId]:
        found = (known.get(name) or by_name.get(name) for name in names)
        return frozenset(tool for tool in found if tool)

    tasks = []
    for row in read_lines(path):
        ambiguous = row.get("ambiguous") or {}
        wanted = row.get("accept") or [[call, *ambiguous.get(call.rpartition("/")[2], ())] for call in row["calls"]]
        needs = dict.fromkeys(found for names in wanted if (found := need(names)))
        if needs:
            tasks.append(Task(row["query"], tuple(needs)))
    return tasks


def served(tools: Sequence[Tool], server_texts: Mapping[str, str]) -> Search:
    """The pipeline as the proxy runs it: names first, each line a need."""
    pipeline = Pipeline(Corpus(tools, server_texts))

    def search(text: str) -> list[ToolId]:
        return [each.tool for each in pipeline.rank(Query(tuple(text.splitlines())), limit=DEPTH).ranked]

    return search


def lexical(tools: Sequence[Tool], server_texts: Mapping[str, str]) -> Search:
    """Our fielded BM25 alone, the query as one text."""
    corpus = Corpus(tools, server_texts)

    def search(text: str) -> list[ToolId]:
        scores = corpus.lexical.score(Query((text,)))
        slots = sorted((slot for slot, score in enumerate(scores) if score > 0), key=lambda slot: -scores[slot])
        return [tool for slot in slots[:DEPTH] if (tool := corpus.ids[slot])]

    return search


def bm25(tools: Sequence[Tool], server_texts: Mapping[str, str], k1: float = 1.2, b: float = 0.75) -> Search:
    """Textbook BM25 over name and description as one field: the baseline."""
    rows = [json.loads(tool.definition) for tool in tools]
    counts = [Counter(terms(f"{row['name']} {row.get('description') or ''}")) for row in rows]
    frequency = Counter(term for count in counts for term in count)
    mean = fmean(count.total() for count in counts) or 1.0

    def score(wanted: Sequence[str], count: Counter[str]) -> float:
        norm = k1 * (1 - b + b * count.total() / mean)
        idf = {term: log(1 + (len(tools) - frequency[term] + 0.5) / (frequency[term] + 0.5)) for term in wanted}
        return sum(idf[term] * count[term] * (k1 + 1) / (count[term] + norm) for term in wanted)

    def search(text: str) -> list[ToolId]:
        wanted = terms(text)
        scores = [score(wanted, count) for count in counts]
        slots = sorted((slot for slot in range(len(tools)) if scores[slot] > 0), key=lambda slot: -scores[slot])
        return [tools[slot].id for slot in slots[:DEPTH]]

    return search


METHODS: dict[str, Method] = {"lexical": lexical, "bm25": bm25, "served": served}


def run(method: Method, tools: Sequence[Tool], texts: Mapping[str, str], tasks: Sequence[Task]) -> Run:
    """Build once, ask everything, keep answers and times; asked twice where it is quick, so that caches are warm."""
    started = time.perf_counter()
    search = method(tools, texts)
    build_s = time.perf_counter() - started
    for task in tasks[:20]:
        search(task.query)
    ranked, milliseconds = [], []
    for task in tasks:
        started = time.perf_counter()
        ranked.append(search(task.query))
        milliseconds.append(1e3 * (time.perf_counter() - started))
    return Run(ranked, milliseconds, build_s)


def figures(answers: Run, tasks: Sequence[Task], sizes: Mapping[ToolId, int]) -> dict[str, Any]:
    """Every metric of a run, recalls with their 95 % interval."""
    pairs = [(ranked, task.gold) for ranked, task in zip(answers.ranked, tasks, strict=True)]
    found: dict[str, Any] = {}
    for k in RECALLS:
        values = [evaluation.recall(ranked, gold, k) for ranked, gold in pairs]
        found[f"r@{k}"] = round(fmean(values), 4)
        found[f"r@{k}_interval"] = [round(end, 4) for end in evaluation.interval(values)]
    found["hit@1"] = round(fmean(evaluation.hit(ranked, gold, 1) for ranked, gold in pairs), 4)
    for k in (5, 10):
        found[f"ndcg@{k}"] = round(fmean(evaluation.ndcg(ranked, gold, k) for ranked, gold in pairs), 4)
        found[f"complete@{k}"] = round(fmean(evaluation.completeness(ranked, gold, k) for ranked, gold in pairs), 4)
    found["mrr"] = round(fmean(evaluation.reciprocal_rank(ranked, gold) for ranked, gold in pairs), 4)
    for k in TOKENS_AT:
        found[f"tokens@{k}"] = round(fmean(sum(sizes[tool] for tool in ranked[:k]) for ranked, _ in pairs))
    found["build_s"] = round(answers.build_s, 3)
    found["p50_ms"] = round(evaluation.quantile(answers.milliseconds, 0.50), 3)
    found["p95_ms"] = round(evaluation.quantile(answers.milliseconds, 0.95), 3)
    return found


def levels(tools: Sequence[Tool], texts: Mapping[str, str], tasks: Sequence[Task]) -> dict[str, dict[str, float]]:
    """How often the gate gives each level, and how often a gold tool is then among the first five."""
    pipeline = Pipeline(Corpus(tools, texts))
    right: dict[str, list[float]] = {"high": [], "medium": [], "low": [], "none": []}
    for task in tasks:
        query = Query(tuple(task.query.splitlines()))
        ranking = pipeline.rank(query, limit=5)
        right[level(ranking, query)].append(evaluation.hit([each.tool for each in ranking.ranked], task.gold, 5))
    return {
        name: {"share": round(len(hits) / len(tasks), 3), "right": round(fmean(hits), 3) if hits else 0.0}
        for name, hits in right.items()
    }


def token_sizes(tools: Sequence[Tool]) -> dict[ToolId, int]:
    """Tokens of every definition: counted where the tokenizer is installed, else estimated."""
    texts = [tool.definition.decode() for tool in tools]
    counted = tokens.count(texts) if tokens.available() else [tokens.estimate(text) for text in texts]
    return {tool.id: size for tool, size in zip(tools, counted, strict=True)}


def repeated(tools: Sequence[Tool], size: int) -> list[Tool]:
    """The catalog again and again until it has this many tools, each copy from a server of its own."""
    return [
        replace(tool, id=ToolId(f"{at // len(tools)}-{tool.id}"), upstream=f"{tool.upstream} {at // len(tools)}")
        for at, tool in ((at, tools[at % len(tools)]) for at in range(size))
    ]


def resident_mib() -> float:
    """Memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * 4096 / 2**20


def timed(pipeline: Pipeline, query: Query) -> float:
    """Milliseconds of one search for what an answer shows."""
    started = time.perf_counter()
    pipeline.rank(query, limit=15)
    return 1e3 * (time.perf_counter() - started)


def latency(tools: Sequence[Tool], tasks: Sequence[Task], size: int) -> dict[str, Any]:
    """Build time, memory and search times (best of three) over `size` tools, by length of the query in words."""
    many = repeated(tools, size)
    before = resident_mib()
    started = time.perf_counter()
    corpus = Corpus(many)
    found: dict[str, Any] = {"tools": size, "build_s": round(time.perf_counter() - started, 3)}
    found["index_mib"] = round(resident_mib() - before, 1)
    last = many[-1].upstream
    theirs = [tool for tool in many if tool.upstream == last]
    corpus.remove(last)
    started = time.perf_counter()
    corpus.replace(last, theirs)
    found[f"add_{len(theirs)}_tools_ms"] = round(1e3 * (time.perf_counter() - started), 2)
    pipeline = Pipeline(corpus)
    times: dict[str, list[float]] = {}
    for task in tasks:
        words = len(task.query.split())
        bucket = "1-25" if words <= 25 else "26-150" if words <= 150 else "151+"
        query = Query((" ".join(task.query.split()),))
        times.setdefault(bucket, []).append(min(timed(pipeline, query) for _ in range(3)))
    for bucket, values in sorted(times.items()):
        found[f"words_{bucket}"] = {
            "n": len(values),
            "p50_ms": round(evaluation.quantile(values, 0.50), 3),
            "p95_ms": round(evaluation.quantile(values, 0.95), 3),
        }
    found["index_warm_mib"] = round(resident_mib() - before, 1)
    found["process_mib"] = round(resident_mib(), 1)
    return found


def results(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line of figures per method, then the gate's, or the latency alone."""
    folder: Path = arguments.folder
    tools = read_tools(folder)
    tasks = read_tasks(arguments.queries or folder / "dev.jsonl", tools)[: arguments.limit]
    if not tasks:
        raise SystemExit(f"{folder}: no query whose gold tools are in tools.jsonl; give another file with --queries")
    texts = read_server_texts(folder) if arguments.server_texts else {}
    if arguments.pool:
        own = {tool.id for tool in tools}
        tools = [*tools, *(tool for tool in read_catalogs(arguments.pool) if tool.id not in own)]
    if arguments.latency:
        yield {"set": folder.name, "method": "latency", "n": len(tasks), **latency(tools, tasks, arguments.latency)}
        return
    sizes = token_sizes(tools)
    for name in arguments.methods.split(","):
        answers = run(METHODS[name], tools, texts, tasks)
        yield {
            "set": folder.name,
            "method": name,
            "n": len(tasks),
            "tools": len(tools),
            **figures(answers, tasks, sizes),
        }
    yield {"set": folder.name, "method": "gate", "n": len(tasks), **levels(tools, texts, tasks)}


def shown(result: Mapping[str, Any]) -> str:
    """A result for people: one line, intervals left out."""
    head = f"{result['set']:<18} {result['method']:<8} n={result['n']:<5}"
    rest = (f"{key} {value}" for key, value in result.items() if key not in ("set", "method", "n"))
    return head + "  ".join(part for part in rest if "_interval" not in part)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print as results come."""
    parser = argparse.ArgumentParser(prog="python -m bench.retrieval", description=__doc__)
    parser.add_argument("folder", type=Path, help="a data set")
    parser.add_argument("--queries", type=Path, help="default: dev.jsonl of the folder")
    parser.add_argument(
        "--methods", default="bm25,lexical,served", help=f"of {', '.join(METHODS)}; default %(default)s"
    )
    parser.add_argument("--limit", type=int, help="only the first so many queries")
    parser.add_argument("--pool", type=Path, help="folder of server catalogs to hide the tools among")
    parser.add_argument("--server-texts", action="store_true", help="index what servers say of themselves as well")
    parser.add_argument("--latency", type=int, metavar="N", help="repeat the tools to N and time the pipeline instead")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.methods.split(",")) - set(METHODS):
        parser.error(f"--methods: {', '.join(sorted(unknown))} is not known; choose from {', '.join(METHODS)}")
    for result in results(arguments):
        print(json.dumps(result) if arguments.json else shown(result), flush=True)


if __name__ == "__main__":
    main()
