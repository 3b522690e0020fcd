"""Measures how often a tool stuffed with words of other tools appears in answers about these.

    python -m bench.trust.stuffing SET [--servers 8] [--draws 12] [--json]

SET is a data set as for `bench.retrieval.ranking`. Each draw takes some servers of it and the queries that need one of
their tools, and adds one stuffed tool of a server of its own. Its words are the most common ones of the whole set,
which an attacker can know; no query is about it. Words alone rank. `at_1`, `at_5` and `at_12` are the shares of answers
that have it among the first so many. `none` has no stuffed tool.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import options
from bench.datasets import Task, read_tasks, read_tools, tool_of
from bench.reports import Row, mean_row, print_row
from bench.retrieval.pool import Pool
from foretool.retrieval.document import document
from foretool.retrieval.glossary import FILE
from foretool.retrieval.ranking import Query
from foretool.retrieval.words import stem, terms
from foretool.storage.records import Tool

CUTS = (1, 5, 12)
STUFFER = "stuffer"
"""The name of the stuffed tool's server."""


def common_words(tools: Sequence[Tool]) -> list[str]:
    """The terms of names and descriptions that most tools have."""
    counts: Counter[str] = Counter()
    for tool in tools:
        read = document(tool)
        counts.update(set(terms(f"{read.name} {read.description}")))
    return [word for word, _ in counts.most_common(2000)]


def stuffed_tools(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Definitions stuffed with common words, by what is stuffed."""
    plain = {word: {"type": "string"} for word in words[:200]}
    texts = {f"p{at}": {"type": "string", "description": " ".join(words[at * 20 : at * 20 + 20])} for at in range(50)}
    values = {f"p{at}": {"type": "string", "enum": words[at * 12 : at * 12 + 12]} for at in range(100)}
    return {
        "60 words": {"description": " ".join(words[:60])},
        "150 words": {"description": " ".join(words[:150])},
        "400 words": {"description": " ".join(words[:400])},
        "20 words 20 times": {"description": " ".join([*words[:20]] * 20)},
        "name of 300": {"name": "_".join(words[:300])},
        "200 parameters": {"inputSchema": {"type": "object", "properties": plain}},
        "texts of 1,000": {"inputSchema": {"type": "object", "properties": texts}},
        "enums of 1,200": {"inputSchema": {"type": "object", "properties": values}},
        **stuffed_in_chinese(words),
    }


def stuffed_in_chinese(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Definitions whose Chinese the glossary puts into these words, those that it can, alone and beside the words."""
    lines = (line.split("\t") for line in FILE.read_text("utf-8").splitlines())
    chinese: dict[str, str] = {}
    for word, english in lines:
        chinese.setdefault(stem(english), word)
    found = [chinese[word] for word in words if word in chinese]
    texts = {f"p{at}": {"type": "string", "description": "、".join(found[at * 20 : at * 20 + 20])} for at in range(50)}
    return {
        "Chinese for 60": {"description": "、".join(found[:60])},
        "Chinese for 150": {"description": "、".join(found[:150])},
        "Chinese for 400": {"description": "、".join(found[:400])},
        "name in Chinese": {"name": "".join(found[:100])},
        "texts in Chinese": {"inputSchema": {"type": "object", "properties": texts}},
        "both for 60": {"description": f"{' '.join(words[:60])} {'、'.join(found[:60])}"},
    }


def draw(tools: Sequence[Tool], tasks: Sequence[Task], servers: int, seed: int) -> tuple[list[Tool], list[Task]]:
    """Some servers, and the tasks that need a tool of theirs."""
    names = sorted({tool.upstream for tool in tools})
    chosen = set(random.Random(seed).sample(names, min(servers, len(names))))
    some = [tool for tool in tools if tool.upstream in chosen]
    ids = {tool.id for tool in some}
    return some, [task for task in tasks if any(ids & need for need in task.gold)]


def share_of_answers(
    draws: Sequence[tuple[Sequence[Tool], Sequence[Task]]], definition: Mapping[str, Any] | None
) -> Row:
    """How often the stuffed tool is among the first of an answer."""
    extra = {"name": "helper", "description": "Helps.", "inputSchema": {"type": "object"}, **(definition or {})}
    places: list[int] = []
    for tools, tasks in draws:
        added = [tool_of(STUFFER, extra)] if definition is not None else []
        pipeline = Pool([*tools, *added], {}).pipeline()
        for task in tasks:
            lines = tuple(line for line in task.query.splitlines() if line.strip())
            ranked = pipeline.rank(Query(lines), limit=max(CUTS)).ranked
            at = [place for place, each in enumerate(ranked, 1) if each.tool.startswith(f"{STUFFER}/")]
            places.append(at[0] if at else max(CUTS) + 1)
    row: Row = {"n": len(places)}
    for cut in CUTS:
        row |= mean_row(f"at_{cut}", [float(place <= cut) for place in places])
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options.make_parser("bench.trust.stuffing", __doc__)
    parser.add_argument("set", type=Path)
    parser.add_argument("--servers", type=int, default=8, help="servers of one draw; default %(default)s")
    parser.add_argument("--draws", type=int, default=12, help="default %(default)s")
    options.add_json(parser)
    given = parser.parse_args(arguments)
    tools = read_tools(given.set)
    tasks = read_tasks(given.set / "dev.jsonl", tools)
    draws = [draw(tools, tasks, given.servers, seed) for seed in range(given.draws)]
    for name, definition in {"none": None, **stuffed_tools(common_words(tools))}.items():
        print_row({"set": given.set.name, "method": name, **share_of_answers(draws, definition)}, given.json, width=18)


if __name__ == "__main__":
    main()
