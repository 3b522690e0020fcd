"""Asks for tools with and without 300 skills beside them: are fewer needed tools shown, and is the right skill named?

    python -m bench.retrieval.skills_beside_tools FOLDER [--data DATA] [--sets livemcpbench,mcpbench] [--encoder auto]

The skills and their 60 tasks are those of `bench.retrieval.skills`, written into a folder of the user. The first world
has the servers of `bench.retrieval.everyday`, installed into FOLDER; with `--data`, each set of that folder is another
one, whose servers are stand-ins. Every world is asked twice over the library, once with `skills: []`, when all tools
and skills are embedded. `in five`: the share of the needed tools among the first five of an answer of `discover_tools`;
`shown`: among all that the answer names; `step`: among the tools of `step()`, which has one budget of 2,000 tokens for
both. A difference stands before its 95 % interval over tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench import options, processes
from bench.clients.messages import Json
from bench.datasets import read_rows, read_tasks, read_tools
from bench.metrics import recall
from bench.reports import Row, difference, print_row
from bench.retrieval import everyday, skills
from foretool import Foretool

WITHIN: Final = 5
MOST_NAMED: Final = 3
"""An answer names at most so many skills."""
READY_S: Final = 900.0
AGAIN_S: Final = 2.0

Needs = Sequence[frozenset[str]]
Asked = Sequence[tuple[str, Needs]]
"""Tasks, each with the names of the tools that meet each need."""
World = tuple[str, Mapping[str, Any], Asked]
"""Its name, the entries of its servers, and its tasks."""


def write_skills(folder: Path) -> None:
    """Write the skills as clients keep them."""
    for name, said in json.loads(skills.FILE.read_text("utf-8"))["skills"].items():
        place = folder / name
        place.mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: {json.dumps(said)}\n---\n{said}\n"
        (place / "SKILL.md").write_text(text, "utf-8")


def everyday_world(folder: Path) -> World:
    """Real servers, and tasks of which any of a few tools is the right one."""
    held = json.loads(everyday.FILE.read_text("utf-8"))
    entries = {name: found for name, each in held["servers"].items() if (found := everyday.entry(folder, each))}
    asked = [(each["task"], (frozenset(each["tools"]),)) for key in ("tasks", "check") for each in held[key]]
    return "everyday", entries, asked


def plain(name: str) -> str:
    """The name of a server or a tool as clients see it."""
    return re.sub(r"[^\w-]+", "_", name).strip("_")


def world_of(folder: Path, home: Path) -> World:
    """A data set, whose servers are stand-ins."""
    catalogs: dict[str, list[Json]] = {}
    for row in read_rows(folder / "tools.jsonl"):
        definition = {"name": row["name"], "description": row.get("description") or ""}
        schema = row.get("input_schema") or {"type": "object"}
        catalogs.setdefault(plain(row["server"]), []).append({**definition, "inputSchema": schema})
    asked = [
        (each.query, [frozenset("__".join(map(plain, name.split("/", 1))) for name in need) for need in each.gold])
        for each in read_tasks(folder / "dev.jsonl", read_tools(folder))
    ]
    return folder.name, processes.serve_tools(home, catalogs), asked


async def ask_all(config: Path, asked: Asked) -> tuple[list[Json], list[list[str]], list[Json]]:
    """The answers to each task, the tools of its step, and the answers to the tasks of the skills."""
    wishes = list(json.loads(skills.FILE.read_text("utf-8"))["tasks"])
    async with Foretool(config) as ft:

        async def discover(task: str) -> Json:
            found = (await ft.call("discover_tools", {"task": task, "structured": True})).structured
            assert isinstance(found, dict)
            return found

        said = await answer_when_ready(discover, wishes)
        return (
            [await discover(task) for task, _ in asked],
            [(await ft.step(task)).tools.names for task, _ in asked],
            said,
        )


async def answer_when_ready(discover: Any, wishes: Sequence[str]) -> list[Json]:
    """The answers to all wishes, once all tools are embedded and two rounds name the same skills."""
    async with asyncio.timeout(READY_S):
        before: list[list[str]] = []
        while True:
            answers = [await discover(each) for each in wishes]
            named = [names_of(each, "skills") for each in answers]
            if named == before and all(everyday.is_ready(each, False) for each in answers):
                return answers
            before = named
            await asyncio.sleep(AGAIN_S)


def names_of(answer: Json, key: str) -> list[str]:
    """The names of the matches or the skills of an answer."""
    return [each["name"] for each in answer.get(key, ())]


def measure(world: World, home: Path, encoder: str) -> Row:
    """Ask one world with and without skills."""
    name, entries, asked = world
    folder = home / "skills"
    write_skills(folder)
    shares: dict[bool, dict[str, list[float]]] = {}
    right = list(json.loads(skills.FILE.read_text("utf-8"))["tasks"].values())
    found = 0
    for has_skills in (False, True):
        place = home / f"proxy-{has_skills}"
        place.mkdir()
        config = processes.write_config(place, entries, encoder=encoder, skills=[str(folder)] if has_skills else [])
        answers, steps, said = asyncio.run(ask_all(config, asked))
        matches = [names_of(each, "matches") for each in answers]
        needs = [each for _, each in asked]
        shares[has_skills] = {
            "in five": [recall(each, need, WITHIN) for each, need in zip(matches, needs, strict=True)],
            "shown": [recall(each, need, len(each)) for each, need in zip(matches, needs, strict=True)],
            "step": [recall(each, need, len(each)) for each, need in zip(steps, needs, strict=True)],
        }
        found = sum(skill in names_of(each, "skills")[:MOST_NAMED] for each, skill in zip(said, right, strict=True))
    row: Row = {"set": name, "n": len(asked), "right skill": f"{found} of {len(right)}"}
    for key, without in shares[False].items():
        beside = shares[True][key]
        row |= {f"{key}, without": round(fmean(without), 3), f"{key}, with": round(fmean(beside), 3)}
        row[f"{key}, difference"] = difference(beside, without, 3)
    return row


def worlds(given: argparse.Namespace, home: Path) -> Iterator[World]:
    """What to ask."""
    folder: Path = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    yield everyday_world(folder)
    for name in given.sets.split(",") if given.data else ():
        place = home / name
        place.mkdir()
        yield world_of(given.data / name, place)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the rows."""
    parser = options.make_parser("bench.retrieval.skills_beside_tools", __doc__)
    parser.add_argument("folder", type=Path, help="where the servers are installed")
    parser.add_argument("--data", type=Path, help="the folder of the data sets")
    parser.add_argument("--sets", default="livemcpbench,mcpbench", help="default %(default)s")
    parser.add_argument("--encoder", default="auto", help="as the setting `encoder`; default %(default)s")
    options.add_json(parser)
    given = parser.parse_args(argv)
    with TemporaryDirectory() as home:
        for world in worlds(given, Path(home)):
            with TemporaryDirectory() as place:
                print_row(measure(world, Path(place), given.encoder), given.json)


if __name__ == "__main__":
    main()
