"""Measures what a run of learning takes, and how well it ranks, by the number of tasks on record.

    python -m bench.growth.learning DATA [--set ultratool] [--tasks 100,1000,10000,100000] [--encoder none] [--searched]
        [--full]

A log is written with so many tasks of a set, each a session with a search and its calls. What goes beyond the set are
the same tasks with a fifth of their words left out and with other numbers. `foretool learn` then runs once, on one
thread. `mrr` and `top5` say how the models that serve then rank the next tool of tasks that nothing has seen (the set's
`dev`, `+-` is half of the 95 % interval); the same without models stands beside them. With `--searched` the store has
the vectors of all searches before, as proxies that rank by an encoder leave them. With `--full` the same log is also
learned from without the bounds of a run (`bench/growth/unbounded.py`), which takes minutes: `bounded less full` is the
mean difference over the same tasks with its 95 % interval.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Final

from msgspec import Struct

from bench.datasets import Json, read_rows, read_tools
from bench.growth import tables
from bench.options import add_json, make_parser
from foretool.learning.encoded_texts import EncodedTexts
from foretool.learning.training.replay import StepRanks, rank_steps
from foretool.retrieval.evaluation import interval, paired_difference
from foretool.retrieval.pipeline import Pipeline
from foretool.server import offline
from foretool.server.catalog import models
from foretool.server.catalog.search import Index
from foretool.server.config import loader as configs
from foretool.server.config.servers import fingerprint
from foretool.server.methods.query_vectors import texts_of_search
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, Episode, SessionRecord, Tool, ToolId, UpstreamRecord

SEED: Final = 7
APART_S: Final = 60.0
"""Seconds between two tasks."""
CHUNK: Final = 5_000
"""Tasks of one transaction."""
DROPPED: Final = 0.2
"""Share of the words that a repeated task loses."""
UNBOUNDED: Final = Path(__file__).with_name("unbounded.py")
_NUMBER = re.compile(r"\d+")


class Task(Struct, frozen=True):
    query: str
    calls: tuple[ToolId, ...]


def read_set(folder: Path) -> tuple[list[Tool], list[Task], list[Task]]:
    """Return the tools of a set as a catalog names them, the tasks to learn from in a fixed order, and others."""
    tools = []
    for each in read_tools(folder):
        upstream = re.sub(r"\W+", "_", each.upstream or "tools").strip("_")[:20] or "tools"
        name = re.sub(r"\W+", "_", each.name)
        definition = {**json.loads(each.definition), "name": name}
        raw = json.dumps(definition).encode()
        tools.append(Tool(ToolId(f"{upstream}__{name}"[:49]), upstream, name, raw, sha256(raw).hexdigest(), 60))
    known = {each.name: each.id for each in tools}

    def tasks(part: str) -> list[Task]:
        named = (
            (row["query"], [re.sub(r"\W+", "_", call.rpartition("/")[2]) for call in row["calls"]])
            for row in read_rows(folder / f"{part}.jsonl")
        )
        return [
            Task(query, tuple(known[name] for name in names))
            for query, names in named
            if names and all(name in known for name in names)
        ]

    given = tasks("train")
    random.Random(SEED).shuffle(given)
    return tools, given, tasks("dev")


def repeat(tasks: Sequence[Task], count: int) -> Iterator[Task]:
    """Yield so many tasks: those given, then the same in other words and with other numbers."""
    draw = random.Random(SEED)
    for place in range(count):
        task = tasks[place % len(tasks)]
        if place >= len(tasks):
            words = [word for word in task.query.split() if draw.random() >= DROPPED] or [task.query]
            said = _NUMBER.sub(lambda found: str(draw.randrange(10 ** len(found[0]))), " ".join(words))
            task = Task(said, task.calls)
        yield task


def fill(folder: Path, tools: Sequence[Tool], tasks: Iterator[Task], encoder: str) -> Path:
    """Write a config, and a store with these tasks on record, each a session with a search and its calls."""
    upstreams = dict.fromkeys(tool.upstream for tool in tools)
    path = folder / "mcp.json"
    own = {"storage": "foretool.sqlite3", "encoder": encoder}
    path.write_text(json.dumps({"mcpServers": {name: {"command": name} for name in upstreams}, "foretool": own}))
    config = configs.load(path)
    upstream_of = {tool.id: tool.upstream for tool in tools}
    with open_store(config.storage) as store:
        for name in upstreams:
            record = UpstreamRecord(name, fingerprint(config.servers[name]), "legacy", "", "", '{"tools": {}}', 1.0)
            store.catalog.save_upstream(record, [tool for tool in tools if tool.upstream == name])
        at, number = 1_600_000_000.0, 0
        while True:
            calls: list[Call] = []
            part = [task for task, _ in zip(tasks, range(CHUNK), strict=False)]
            if not part:
                return path
            with store.atomic():
                for task in part:
                    number, at = number + 1, at + APART_S
                    session = f"s{number}"
                    store.sessions.begin(SessionRecord(session, "bench", "1", "modern", "stdio", "", at))
                    found = store.discoveries.add(Discovery(session, at, task.query, (), None, "high", (), 80, 1.0))
                    calls += [
                        Call(session, at + 1 + place, tool, upstream_of[tool], "bridge", True, "ok", 5.0, True, "",
                             found if not place else 0)
                        for place, tool in enumerate(task.calls)
                    ]  # fmt: skip
                    store.sessions.end(session, at + 30)
            store.calls.record(calls)


def embed(path: Path, tasks: Iterable[Task]) -> None:
    """Keep the vectors of searches and of tools, as proxies do that have ranked by them."""
    config = configs.load(path)
    with offline.read(config) as app, open_store(config.storage) as store:
        if (texts := EncodedTexts.open(config.settings, store)) is not None:
            texts.queries([text for task in tasks for text in texts_of_search(task.query)])
            texts.meaning(app.catalog, Index(app.catalog).update().corpus)


def learn(path: Path, *, full: bool = False) -> tuple[float, float, float, dict[str, str]]:
    """Run `foretool learn`, without its bounds if `full`; return CPU seconds, wall seconds, peak MiB, and what came of
    each method."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    program = ["-P", str(UNBOUNDED)] if full else ["-m", "foretool"]
    command = [sys.executable, *program, "learn", "--json", "--config", str(path)]
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **single})
    assert child.stdout
    said = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"foretool learn ended with status {child.returncode}")
    outcomes = {each["kind"]: each["outcome"] for each in json.loads(said)["lessons"]}
    return used.ru_utime + used.ru_stime, time.perf_counter() - started, used.ru_maxrss / 1024, outcomes


def rank(path: Path, tasks: Sequence[Task], *, learned: bool = True) -> list[StepRanks]:
    """Rank the tools of tasks that nothing has seen, with the models that serve or without, and with the encoder of
    the config."""
    config = configs.load(path)
    with offline.read(config) as app:
        upstream_of = {tool.id: tool.upstream for tool in app.catalog.tools()}
        corpus = Index(app.catalog).update().corpus
        texts = EncodedTexts.open(config.settings, app.store)
        pipeline = Pipeline(corpus, texts.meaning(app.catalog, corpus) if texts else None)
        if learned:
            pipeline.learned = models.open_models(models.read_models(app.store)).learned
        episodes = [Episode(task.calls, (task.query,)) for task in tasks]
        return rank_steps(pipeline, episodes, upstream_of, {each.tool: each for each in app.store.calls.usage()})


def measure(
    folder: Path, data: Path, count: int, encoder: str = "none", *, searched: bool = False, full: bool = False
) -> Json:
    """Measure one run over so many tasks of a set, and one without bounds if `full`; `folder` is empty."""
    tools, given, held_out = read_set(data)
    path = fill(folder, tools, repeat(given, count), encoder)
    if searched:
        embed(path, repeat(given, count))
    cpu_s, wall_s, peak, outcomes = learn(path)
    before, after = (rank(path, held_out, learned=learned) for learned in (False, True))
    found = [each.reciprocal for each in after]
    low, high = interval(found)
    row: Json = {
        "CPU s": round(cpu_s, 1), "wall s": round(wall_s, 1), "peak MiB": round(peak),
        "mrr without": round(fmean(each.reciprocal for each in before), 3), "mrr": round(fmean(found), 3),
        "+-": round((high - low) / 2, 3), "top5": round(fmean(each.found(5) for each in after), 3),
        "promoted": _promoted(outcomes),
    }  # fmt: skip
    if full:
        row |= _measure_full(folder / "full", data, count, encoder, after)
    return row


def _measure_full(folder: Path, data: Path, count: int, encoder: str, bounded: Sequence[StepRanks]) -> Json:
    """Learn from the same log without bounds, and compare how both rank the same tasks."""
    tools, given, held_out = read_set(data)
    folder.mkdir()
    path = fill(folder, tools, repeat(given, count), encoder)
    cpu_s, _, peak, outcomes = learn(path, full=True)
    ranks = rank(path, held_out)
    mrr = paired_difference([each.reciprocal for each in bounded], [each.reciprocal for each in ranks], 3)
    top5 = paired_difference([each.found(5) for each in bounded], [each.found(5) for each in ranks], 3)
    return {
        "full: CPU s": round(cpu_s, 1), "full: peak MiB": round(peak), "full: promoted": _promoted(outcomes),
        "full: mrr": round(fmean(each.reciprocal for each in ranks), 3),
        "full: top5": round(fmean(each.found(5) for each in ranks), 3),
        "bounded less full, mrr": _interval(mrr), "bounded less full, top5": _interval(top5),
    }  # fmt: skip


def _promoted(outcomes: dict[str, str]) -> str:
    return " ".join(kind for kind, outcome in outcomes.items() if outcome == "promoted")


def _interval(difference: tuple[float, float, float]) -> str:
    low, mean, high = difference
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def rows(
    data: Path, sizes: Sequence[int], encoder: str = "none", *, searched: bool = False, full: bool = False
) -> Iterator[tuple[int, Json]]:
    """Measure each size in turn."""
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            yield size, measure(Path(name), data, size, encoder, searched=searched, full=full)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = make_parser("bench.growth.learning", __doc__)
    parser.add_argument("data", type=Path, help="folder of the data sets")
    parser.add_argument("--set", default="ultratool", help="default %(default)s")
    parser.add_argument("--tasks", default="100,1000,10000,100000", help="tasks on record; default %(default)s")
    parser.add_argument("--encoder", default="none", help="as in the config; default %(default)s")
    parser.add_argument("--searched", action="store_true", help="keep the vectors of the searches before")
    parser.add_argument("--full", action="store_true", help="also learn without bounds, and compare")
    add_json(parser)
    arguments = parser.parse_args(argv)
    found = []
    sizes = [int(each) for each in arguments.tasks.split(",")]
    options = {"searched": arguments.searched, "full": arguments.full}
    for size, row in rows(arguments.data / arguments.set, sizes, arguments.encoder, **options):
        found.append((size, row))
        tables.say(json.dumps({"tasks": size, **row}))
        if arguments.json:
            print(json.dumps({"tasks": size, **row}), flush=True)
    if not arguments.json:
        print(tables.table("tasks", found))


if __name__ == "__main__":
    main()
