"""Asks a running proxy over real servers in eleven languages: is the right tool first, or among the first five?

    python -m bench.retrieval.languages FOLDER [--foretool COMMAND] [--show] [--json]

The servers are those of `bench.retrieval.everyday`, installed into FOLDER. `languages.json` has their 65 everyday tasks
as people say them in ten languages (Chinese is in `everyday_chinese.json`), 20 of them in four languages that no
glossary reads, 40 vague ones in four, 30 that mix English into another language, and tools that are described in German
and in Japanese, with tasks for them in English and in that language. Every second task of a set showed which words the
glossaries lacked; the others were only counted. The glossaries were written after the tasks, and by the same hand.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from bench import options, processes
from bench.clients.messages import Json
from bench.reports import Row, print_row
from bench.retrieval import everyday

FILE = Path(__file__).with_name("languages.json")
EVERYDAY = ("en", "zh", "de", "es", "fr", "pt", "ja", "ru", "it", "ko", "nl", "pl")
BEYOND = ("tr", "uk", "ar", "hi")
"""Languages that no glossary reads."""
VAGUE = ("en", "de", "es", "fr", "ja")
WITHIN = 5

Sets = dict[str, list[Json]]
"""By name, the tasks of a set with their right tools."""


def read_sets(held: Mapping[str, Any]) -> Sets:
    """The sets of tasks over the servers of `everyday`."""
    tasks = json.loads(everyday.FILE.read_text("utf-8"))
    english = [*tasks["tasks"], *tasks["check"]]
    in_these = {"en": english, "zh": everyday.in_chinese(english)}
    found: Sets = {}
    for language in EVERYDAY:
        found[f"everyday {language}"] = in_these.get(language) or [
            {**each, "task": held["everyday"][each["task"]][language]} for each in english
        ]
    by_text = {each["task"]: each for each in english}
    for language in BEYOND:
        found[f"no glossary, {language}"] = [
            {**by_text[task], "task": said[language]} for task, said in held["beyond"].items()
        ]
    for language in VAGUE:
        found[f"vague {language}"] = [{"task": each[language], "tools": each["tools"]} for each in held["vague"]]
    found["mixed, in English"] = [{**each, "task": each["en"]} for each in held["mixed"]]
    found["mixed"] = held["mixed"]
    return found


def read_described(language: str, described: Mapping[str, Any]) -> Sets:
    """The sets of tasks for tools that are described in another language."""
    names = {name: f"{server}__{name}" for server, name, _, _ in described["tools"]}
    return {
        f"{language} tools, {asked_in}": [{"task": task[at], "tools": [names[task[2]]]} for task in described["tasks"]]
        for at, asked_in in enumerate(("en", language))
    }


def catalogs_of(described: Mapping[str, Any]) -> dict[str, list[Json]]:
    """The tools that are described in another language, by server."""
    found: dict[str, list[Json]] = {}
    for server, name, text, parameters in described["tools"]:
        properties = {each: {"type": "string"} for each in parameters.split(",")}
        schema = {"type": "object", "properties": properties}
        found.setdefault(server, []).append({"name": name, "description": text, "inputSchema": schema})
    return found


def row_of(name: str, places: Sequence[int]) -> Row:
    """How many right tools were first and among five, by half."""
    row: Row = {"set": name, "n": len(places)}
    for half, start in (("choose", 0), ("report", 1)):
        part = places[start::2]
        row[f"{half} first"] = round(fmean(place == 1 for place in part), 2)
        row[f"{half} in five"] = round(fmean(0 < place <= WITHIN for place in part), 2)
    return row


def ask(sets: Sets, entries: Mapping[str, Any], home: Path, given: argparse.Namespace) -> Iterator[Row]:
    """Ask all tasks of some sets of one proxy."""
    config = processes.write_config(home, entries, encoder=given.encoder)
    tasks = [task for each in sets.values() for task in each]
    command = processes.installed(given.foretool)
    answers = iter(asyncio.run(everyday.ask_all(command, config, tasks, given.encoder != "none")))
    for name, asked in sets.items():
        places = [everyday.place_of(next(answers), task) for task in asked]
        if given.show:
            missed = [(place, task["task"]) for place, task in zip(places, asked, strict=True) if place != 1]
            print(f"{name}: {missed[::2]}")
        yield row_of(name, places)


def measure(given: argparse.Namespace) -> Iterator[Row]:
    """The rows."""
    held = json.loads(FILE.read_text("utf-8"))
    folder: Path = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    servers = json.loads(everyday.FILE.read_text("utf-8"))["servers"]
    entries = {name: found for name, each in servers.items() if (found := everyday.entry(folder, each))}
    with TemporaryDirectory() as home:
        yield from ask(read_sets(held), entries, Path(home), given)
    for language, described in held["described"].items():
        with TemporaryDirectory() as home:
            served = processes.serve_tools(Path(home), catalogs_of(described))
            yield from ask(read_described(language, described), {**entries, **served}, Path(home), given)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the rows."""
    parser = options.make_parser("bench.retrieval.languages", __doc__)
    parser.add_argument("folder", type=Path, help="where the servers are installed")
    parser.add_argument("--foretool", help="command of the foretool to measure; default: the one beside this Python")
    parser.add_argument("--encoder", default="auto", help="as the setting `encoder`; default %(default)s")
    parser.add_argument("--show", action="store_true", help="print the tasks whose right tool is not first")
    options.add_json(parser)
    given = parser.parse_args(argv)
    for row in measure(given):
        print_row(row, given.json)


if __name__ == "__main__":
    main()
