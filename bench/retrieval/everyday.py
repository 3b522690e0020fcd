"""Asks a running proxy over real servers for everyday tasks: is the right tool first, and what does an answer cost?

    python -m bench.retrieval.everyday FOLDER [--check] [--chinese] [--servers NAMES] [--after SECONDS]
        [--foretool COMMAND] [--show] [--json]

`everyday.json` holds the servers (packages of npm and PyPI that list their tools without a token), the tasks, which
were written before any answer was seen, and the tasks of `--check`, written later over the same servers and before any
answer to them was seen. With `--chinese` they are asked in Chinese (`everyday_chinese.json`); the glossary was finished
before they were read. Each server is installed into FOLDER where it is missing; one that does not install is left out
and named, and its tasks count as failed. `--servers` leaves the others out, with their tasks. With `--after` the first
task is asked so long after the first list of a new store, whatever is ready by then. `--show` prints every answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from bench import options, processes
from bench.clients.messages import Json
from bench.clients.stdio import StdioClient
from bench.reports import Row, print_row
from foretool.retrieval import tokens

FILE = Path(__file__).with_name("everyday.json")
CHINESE = Path(__file__).with_name("everyday_chinese.json")
"""By task, the same in Chinese."""
CALL_S = 120.0
READY_S = 1200.0
WARM_UP = {"task": "xyzzy plugh", "limit": 20, "structured": True}
"""No tool has these words, so whatever is found is found by meaning."""


def entry(folder: Path, server: Json) -> Json | None:
    """The `mcpServers` entry of a server, installed if it was missing; None if it cannot be installed."""
    program = program_of(folder, server)
    if not program.exists():
        install(folder, server)
        program = program_of(folder, server)
    if not program.exists():
        return None
    arguments = [each.replace("{folder}", str(folder)) for each in server.get("args", ())]
    if server["from"] == "pypi":
        return {"command": str(program), "args": arguments}
    return {"command": "node", "args": [str(program), *arguments]}


def program_of(folder: Path, server: Json) -> Path:
    """Where the program of a package lies, or will."""
    package: str = server["package"]
    program: str = server.get("program", package)
    if server["from"] == "pypi":
        return folder / f"v-{package}" / "bin" / program
    home = folder / "node_modules" / package
    manifest = home / "package.json"
    if not manifest.exists():
        return manifest
    found = json.loads(manifest.read_text("utf-8"))["bin"]
    return home / (found if isinstance(found, str) else next(iter(found.values())))


def install(folder: Path, server: Json) -> None:
    """Install a package with the client of its registry."""
    package: str = server["package"]
    if server["from"] == "npm":
        command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", package]
    else:
        home = folder / f"v-{package}"
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        command = [str(home / "bin" / "pip"), "install", "--quiet", package, *server.get("with", ())]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)


async def ask_all(
    command: Sequence[str], config: Path, tasks: Sequence[Json], by_meaning: bool, after_s: float | None = None
) -> list[Json]:
    """The answer to each task: so long after the first list, or once every server has listed its tools or failed to."""
    async with StdioClient.serve(command, config) as client:
        await client.initialize()
        await client.ask("tools/list", {}, CALL_S)
        if after_s is None:
            await wait_until_ready(client, by_meaning)
        else:
            await asyncio.sleep(after_s)
        return [
            await client.call("discover_tools", {"task": each["task"], "structured": True}, CALL_S) for each in tasks
        ]


async def wait_until_ready(client: StdioClient, by_meaning: bool) -> None:
    """Ask until every server has listed its tools or failed to, and tools are embedded if they are to be."""
    async with asyncio.timeout(READY_S):
        while not is_ready((await client.call("discover_tools", WARM_UP, CALL_S))["structuredContent"], by_meaning):
            await asyncio.sleep(1.0)


def is_ready(answer: Json, by_meaning: bool) -> bool:
    """Whether no server is starting any more, and tools are found by meaning: they are embedded in the background."""
    if "starting" in answer.get("absent", "") or "by meaning" in answer.get("note", ""):
        return False
    return not by_meaning or any("meaning" in match["why"] for match in answer["matches"])


def in_chinese(tasks: Sequence[Json]) -> list[Json]:
    """The same tasks, asked in Chinese."""
    chinese: dict[str, str] = json.loads(CHINESE.read_text("utf-8"))
    return [{**task, "task": chinese[task["task"]]} for task in tasks]


def place_of(answer: Json, task: Json) -> int:
    """The place of the first right tool, 0 if it is not shown."""
    names = [match["name"] for match in answer["structuredContent"]["matches"]]
    return next((place for place, name in enumerate(names, 1) if name in task["tools"]), 0)


def text_of(answer: Json) -> str:
    """What a model reads of an answer."""
    return "\n".join(block["text"] for block in answer["content"])


def results(arguments: argparse.Namespace) -> Row:
    """Ask for every task and count."""
    held = json.loads(FILE.read_text("utf-8"))
    folder: Path = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    chosen: list[str] = arguments.servers or list(held["servers"])
    entries: dict[str, Any] = {name: entry(folder, held["servers"][name]) for name in chosen}
    tasks = held["check" if arguments.check else "tasks"]
    tasks = [task for task in tasks if all(tool.partition("__")[0] in chosen for tool in task["tools"])]
    if arguments.chinese:
        tasks = in_chinese(tasks)
    with TemporaryDirectory() as home:
        config = processes.write_config(
            Path(home),
            {name: each for name, each in entries.items() if each},
            encoder=arguments.encoder,
            shipped_wordings=not arguments.without_wordings,
        )
        command = processes.installed(arguments.foretool)
        answers = asyncio.run(ask_all(command, config, tasks, arguments.encoder != "none", arguments.after))
    places = [place_of(answer, task) for answer, task in zip(answers, tasks, strict=True)]
    if arguments.show:
        for task, answer, place in zip(tasks, answers, places, strict=True):
            print(f"\n=== {task['task']}  (place {place})\n{text_of(answer)}")
    sizes = tokens.count_tokens([text_of(answer) for answer in answers])
    levels = [answer["structuredContent"]["confidence"] for answer in answers]
    return {
        "tasks": len(tasks),
        "servers": sum(each is not None for each in entries.values()),
        "left_out": [name for name, each in entries.items() if each is None],
        "first": sum(place == 1 for place in places),
        "in_five": sum(0 < place <= 5 for place in places),
        "not_first": {task["task"]: place for task, place in zip(tasks, places, strict=True) if place != 1},
        "tokens_mean": round(fmean(sizes)),
        "tokens_most": max(sizes),
        "levels": {level: levels.count(level) for level in ("high", "medium", "low", "none")},
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the row."""
    parser = options.make_parser("bench.retrieval.everyday", __doc__)
    parser.add_argument("folder", type=Path, help="where the servers are installed")
    parser.add_argument("--check", action="store_true", help="ask the tasks that were written later")
    parser.add_argument("--servers", help="names of servers; default: all")
    parser.add_argument("--after", type=float, metavar="SECONDS", help="ask so long after the first list")
    parser.add_argument("--chinese", action="store_true", help="ask in Chinese")
    parser.add_argument("--foretool", help="command of the foretool to measure; default: the one beside this Python")
    parser.add_argument("--encoder", default="auto", help="as the setting `encoder`; default %(default)s")
    parser.add_argument("--without-wordings", action="store_true", help="as without those that come with foretool")
    parser.add_argument("--show", action="store_true", help="print every answer")
    options.add_json(parser)
    arguments = parser.parse_args(argv)
    if arguments.servers:
        known = json.loads(FILE.read_text("utf-8"))["servers"]
        arguments.servers = options.split_names(parser, "--servers", arguments.servers, known)
    print_row(results(arguments), arguments.json)


if __name__ == "__main__":
    main()
