"""Asks a model for its first decision on foretool's list alone: does it reach a tool that the list does not define?

    python -m bench.agents.asking RESULTS --catalogs FOLDER --modules node_modules --gguf FILE
    AGENT_URL=https://host/v1 AGENT_KEY=... python -m bench.agents.asking RESULTS --catalogs FOLDER --model NAME

A task takes one turn of few tokens here, so that wordings and kinds of lists can be compared. The wishes are the
everyday ones of `bench/retrieval/everyday.json` that the catalogue serves: `tasks` is the working half, `check` the
closed one. No server runs: definitions of `--catalogs` stand for all of them. `--settings` is what foretool's config
says beside its servers, as JSON. RESULTS gets a JSON line a decision in `decisions.jsonl`, under the name of the
`--variant`; a decision that is there is not asked for again.

  listed   it calls a right tool that the list defines
  bridged  it calls a right tool through a bridge
  asked    it calls `discover_tools`
  other    it calls another tool of the list
  lost     it calls a bridge with the name of another tool, or with one that does not exist
  prose    it calls nothing
  shown    of the lost calls: those whose answer names a right tool
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
from msgspec import Struct

from bench import processes
from bench.agents.arms import DISCOVER, Foretool, named_tools
from bench.agents.catalogue import read_catalogue, stand_in
from bench.agents.decisions import BRIDGES, Decision
from bench.agents.drivers import Driver, add_model, open_driver
from bench.clients.messages import Json
from bench.options import add_foretool, make_parser
from bench.reports import Row, line_of, mean_row
from bench.retrieval.everyday import FILE

WISHES: Final = {"working": "tasks", "closed": "check"}
KINDS: Final = ("listed", "bridged", "asked", "other", "lost", "prose")
LEADS: Final = KINDS[:3]
"""The decisions that lead to a right tool."""


class Asked(Struct, frozen=True):
    """The first decision on one wish."""

    model: str
    variant: str
    half: str
    size: int
    wish: str
    place: str
    """Where a right tool is: `listed`, `named` or `hidden`."""
    kind: str
    tool: str
    meant: str
    is_shown: bool
    """Whether the answer to a lost call names a right tool."""
    read: int
    seconds: float

    @property
    def key(self) -> tuple[str, str, str, int, str]:
        return self.model, self.variant, self.half, self.size, self.wish


def kind_of(decision: Decision, right: Sequence[str]) -> str:
    """Which kind of decision it is."""
    if not decision.tool:
        return "prose"
    if decision.tool == DISCOVER:
        return "asked"
    if decision.tool in BRIDGES:
        return "bridged" if decision.meant in right else "lost"
    return "listed" if decision.tool in right else "other"


def place_of(right: Sequence[str], tools: Sequence[Json]) -> str:
    """Where the nearest right tool is on a list."""
    if any(tool["name"] in right for tool in tools):
        return "listed"
    return "named" if named_tools(tools) & {*right} else "hidden"


@asynccontextmanager
async def open_list(command: Sequence[str], catalogs: Path, size: int, settings: Json) -> AsyncIterator[Foretool]:
    """foretool as a client has it on the first day."""
    with TemporaryDirectory(prefix="bench-asking-") as name:
        folder = Path(name)
        servers = {name: stand_in(folder, name, tools) for name, tools in read_catalogue(catalogs, size).items()}
        config = processes.write_config(folder, servers, **settings)
        async with Foretool.start(command, config) as arm:
            yield arm


def read_wishes(half: str, catalogs: Path, size: int) -> list[Json]:
    """The wishes that a catalogue serves."""
    there = {f"{server}__{tool['name']}" for server, tools in read_catalogue(catalogs, size).items() for tool in tools}
    wishes: list[Json] = json.loads(FILE.read_text("utf-8"))[WISHES[half]]
    return [wish for wish in wishes if there & {*wish["tools"]}]


def read_asked(results: Path) -> list[Asked]:
    """The decisions that are there."""
    file = results / "decisions.jsonl"
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [msgspec.json.decode(line, type=Asked) for line in lines]


async def ask_all(arguments: argparse.Namespace, driver: Driver) -> None:
    """Ask for the decisions that are missing, keep and print them."""
    file = arguments.results / "decisions.jsonl"
    done = {asked.key for asked in read_asked(arguments.results)}
    command, settings = processes.installed(arguments.foretool), json.loads(arguments.settings)
    async with open_list(command, arguments.catalogs, arguments.size, settings) as arm:
        tools = await arm.tools()
        for wish in read_wishes(arguments.half, arguments.catalogs, arguments.size):
            right: list[str] = wish["tools"]
            if (driver.name, arguments.variant, arguments.half, arguments.size, wish["task"]) in done:
                continue
            said = await asyncio.to_thread(partial(driver.decide, arm.instructions, tools, wish["task"], is_brief=True))
            kind = kind_of(said, right)
            answer = await arm.call(said.tool, {"name": said.meant, "arguments": {}}) if kind == "lost" else ""
            asked = Asked(
                driver.name, arguments.variant, arguments.half, arguments.size, wish["task"], place_of(right, tools),
                kind, said.tool, said.meant, any(name in answer for name in right), said.read, said.seconds,
            )  # fmt: skip
            append(file, asked)
            print(f"{kind:<8} {asked.place:<7} {asked.wish}: {asked.meant or asked.tool}", flush=True)


def append(file: Path, asked: Asked) -> None:
    """Keep a decision."""
    with file.open("ab") as out:
        out.write(msgspec.json.encode(asked) + b"\n")


def figures(decisions: Sequence[Asked]) -> Iterator[Row]:
    """A row for each model, half, size, variant and place of the right tool: how many decisions led to it."""
    groups: dict[tuple[str, str, int, str, str], list[Asked]] = {}
    for each in decisions:
        for place in (each.place, "all"):
            groups.setdefault((each.model, each.half, each.size, each.variant, place), []).append(each)
    for (model, half, size, variant, place), found in sorted(groups.items()):
        row: Row = {"set": f"{model} {half} {size}", "method": f"{variant}, {place}", "n": len(found)}
        row |= mean_row("leads", [float(each.kind in LEADS) for each in found], 3)
        counts = Counter(each.kind for each in found)
        row |= {kind: counts[kind] for kind in KINDS if counts[kind]}
        yield {**row, "shown": sum(each.is_shown for each in found)} if counts["lost"] else row


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = make_parser("bench.agents.asking", __doc__)
    parser.add_argument("results", type=Path, help="the folder of results")
    parser.add_argument("--catalogs", type=Path, required=True, help="the folder of tools/list answers of real servers")
    parser.add_argument("--modules", type=Path, help="the node_modules with node-llama-cpp")
    add_model(parser)
    parser.add_argument("--size", type=int, default=128, help="tools of the catalogue; default %(default)s")
    parser.add_argument("--half", default="working", choices=WISHES, help="default %(default)s")
    parser.add_argument("--variant", default="as installed", help="the name of this list; default %(default)s")
    parser.add_argument("--settings", default="{}", metavar="JSON", help="of foretool's config; default %(default)s")
    add_foretool(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments, ask for what is missing, and print the figures."""
    options = parser()
    arguments = options.parse_args(argv)
    driver = open_driver(options, arguments, arguments.modules)
    arguments.results.mkdir(parents=True, exist_ok=True)
    asyncio.run(ask_all(arguments, driver))
    for row in figures(read_asked(arguments.results)):
        print(line_of(row, 24))


if __name__ == "__main__":
    main()
