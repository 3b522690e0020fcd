"""Measures what wordings of wishes (`foretool enrich`) change, with stand-ins that need no language model.

    python -m bench.retrieval.wordings FOLDER [--encoder minilm-tools] [--queries 300] [--json]
    python -m bench.retrieval.wordings CATALOGS --known

With `--known` CATALOGS has what real servers list. The tools that foretool knows (`retrieval/known_tools.tsv`) are read
with the plain request and the search words of each, and asked for by its question and its vague wish. One
writer wrote all four, so the rows say that the mechanism works, and not how well it does with other people.

Otherwise FOLDER is a set with a training part (`train.jsonl`). Its tasks are shuffled with a fixed seed. One half is
searched with, the other half makes wordings: `tasks` gives each tool the first 14 words of up to three other tasks
that needed it, which a good model might come near to; `near` gives it words that mean nearly the same as those of its
name, which says what useless wordings do. The rows compare with no wordings on the same queries, with 95 % intervals.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from bench import metrics, options
from bench.datasets import Task, catalog_tools, read_tasks, read_tools
from bench.kept_encoder import KeptEncoder
from bench.reports import difference
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.encoders import resolve_weights
from foretool.retrieval.known_tools import known_tools
from foretool.retrieval.near_words import near_terms
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.ranking import Query
from foretool.retrieval.words import in_words, stem
from foretool.server.catalog.encoders import open_any_encoder
from foretool.storage.opening import open_store
from foretool.storage.records import Tool, ToolId

SEED = 5
MOST_TASKS = 4000
SHARE, WORDS = 3, 14
CUTS = (1, 5, 10)

Wordings = dict[ToolId, tuple[str, ...]]


def words_of_tasks(tasks: Sequence[Task]) -> Wordings:
    """Up to three tasks of each tool as its wordings."""
    said = defaultdict[ToolId, list[str]](list)
    for task in tasks:
        for tool in set().union(*task.gold):
            if len(said[tool]) < SHARE:
                said[tool].append(" ".join(task.query.split()[:WORDS]))
    return {tool: tuple(texts) for tool, texts in said.items()}


def near_wordings(tools: Sequence[Tool]) -> Wordings:
    """Words that mean nearly the same as those of each tool's name."""
    found = {}
    for tool in tools:
        words = [word for word, _ in near_terms({stem(word): 1.0 for word in in_words(tool.name).split()}).values()]
        found[tool.id] = tuple(" ".join(words[at : at + 6]) for at in (0, 6) if words[at : at + 6])
    return found


def recalls(
    tools: Sequence[Tool], wordings: Wordings, encoder: KeptEncoder | None, tasks: Sequence[Task]
) -> list[list[float]]:
    """The recalls of each task, by cut."""
    plain = Corpus(tools)
    corpus = Corpus()
    keys = {plain.digests[plain.slot_of[tool]]: texts for tool, texts in wordings.items()}
    corpus.take_wordings(keys)
    by_server: dict[str, list[Tool]] = {}
    for tool in tools:
        by_server.setdefault(tool.upstream, []).append(tool)
    for server, theirs in by_server.items():
        corpus.replace(server, theirs)
    pipeline = Pipeline(corpus)
    if encoder is not None:
        from foretool.retrieval.rankers.dense import DenseEnsemble

        pipeline.dense = DenseEnsemble([encoder])
        pipeline.dense.heads[0].add(encoder.rows([embedded_text(corpus.read(tool)[0]) for tool in tools]))
    ranked = [
        [each.tool for each in pipeline.rank(Query(tuple(task.query.splitlines())), limit=max(CUTS)).ranked]
        for task in tasks
    ]
    return [[metrics.recall(found, task.gold, cut) for found, task in zip(ranked, tasks, strict=True)] for cut in CUTS]


def measure(folder: Path, encoder: KeptEncoder | None, most: int) -> list[Mapping[str, object]]:
    """The rows of one set."""
    tools = read_tools(folder)
    tasks = read_tasks(folder / "train.jsonl", tools)
    random.Random(SEED).shuffle(tasks)
    tasks = tasks[:MOST_TASKS]
    asked = tasks[1::2][:most]
    rows: list[Mapping[str, object]] = []
    for ranks, head in (("words", None), *((("encoder", encoder),) if encoder else ())):
        base = recalls(tools, {}, head, asked)
        means = [round(fmean(each), 3) for each in base]
        rows.append(
            {"set": folder.name, "ranked by": ranks, "wordings": "none", "queries": len(asked), "recall": means}
        )
        for name, wordings in (("tasks", words_of_tasks(tasks[::2])), ("near", near_wordings(tools))):
            found = recalls(tools, wordings, head, asked)
            changes = [difference(new, old) for new, old in zip(found, base, strict=True)]
            rows.append({"set": folder.name, "ranked by": ranks, "wordings": name, "change": changes})
    return rows


def measure_known(catalogs: Path, encoder: KeptEncoder | None, most: int) -> list[Mapping[str, object]]:
    """The rows of the tools that foretool knows, asked for by wishes that are not read."""
    read = ((tool, known_tools().find(document(tool))) for tool in catalog_tools(catalogs))
    known = {tool.id: (tool, found.wishes) for tool, found in read if found is not None}
    drawn = random.Random(SEED).sample(sorted(known), min(most // 2, len(known)))
    asked = [Task(known[tool][1][place], (frozenset({tool}),)) for tool in drawn for place in (1, 2)]
    tools = [tool for tool, _ in known.values()]
    wordings: Wordings = {name: (wishes[0], wishes[3]) for name, (_, wishes) in known.items()}
    rows: list[Mapping[str, object]] = []
    for ranks, head in (("words", None), *((("encoder", encoder),) if encoder else ())):
        base, found = recalls(tools, {}, head, asked), recalls(tools, wordings, head, asked)
        means = [round(fmean(each), 3) for each in base]
        changes = [difference(new, old) for new, old in zip(found, base, strict=True)]
        head_of_row = {"tools": len(tools), "ranked by": ranks, "queries": len(asked)}
        rows.append({**head_of_row, "wordings": "none", "recall": means})
        rows.append({**head_of_row, "wordings": "known", "change": changes})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options.make_parser("bench.retrieval.wordings", __doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoder", default="minilm-tools", help="which encoder; none for words alone")
    parser.add_argument("--queries", type=int, default=300, help="how many tasks are searched with")
    parser.add_argument("--known", action="store_true", help="FOLDER has catalogs: measure the wishes of known tools")
    options.add_json(parser)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "vectors.sqlite3") as store:
        found = resolve_weights(given.encoder)[:1]
        encoders = [KeptEncoder(open_any_encoder(each, Path(folder)), store.vectors, each.key) for each in found]
        measure_one = measure_known if given.known else measure
        for row in measure_one(given.folder, encoders[0] if encoders else None, given.queries):
            sys.stdout.write((json.dumps(row) if given.json else "  ".join(map(str, row.values()))) + "\n")


if __name__ == "__main__":
    main()
