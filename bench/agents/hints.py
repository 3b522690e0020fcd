"""Counts what the prompt hook names, on the first day and after 200 tasks.

    python -m bench.agents.hints RESULTS --catalogs FOLDER --servers FOLDER [--size 128]

There is no model. The tasks and catalogues are those of `bench.agents.work`; of the tasks the first ones are on record
after 200, the later ones are not. One line for each storage and kind of prompt:

  first     prompts whose first named tool is one that the first step needs
  held      steps for which a needed tool is named
  silent    prompts without a hint

`needless.txt` has prompts that no tool of these catalogues serves, as people write them to coding agents.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench import processes
from bench.agents.arms import TYPING_S, ProxyClient, ask_hook, hook_of, keep_first_day, shared_config, use
from bench.agents.catalogue import read_catalogue, write_config
from bench.agents.later_tasks import LATER
from bench.agents.tasks import TASKS
from bench.agents.world import World, serve_page
from bench.options import add_foretool, make_parser
from bench.reports import Row

NEEDLESS: Final = Path(__file__).with_name("needless.txt")
_NAMED: Final = re.compile(r"\b[\w-]+?__[\w-]+")
_EXAMPLE: Final = "\nFor example:"

Needs = Sequence[Sequence[str]]


def named_tools(hint: str) -> list[str]:
    """The tools that a hint names, in its order."""
    return list(dict.fromkeys(_NAMED.findall(hint.partition(_EXAMPLE)[0])))


def count_hints(hints: Sequence[tuple[str, Needs]]) -> Row:
    """Count what hints name that stand behind prompts with these needs."""
    named = [(named_tools(hint), needs) for hint, needs in hints]
    return {
        "prompts": len(named),
        "first": sum(bool(tools and needs) and tools[0] in needs[0] for tools, needs in named),
        "held": sum(not {*tools}.isdisjoint(need) for tools, needs in named for need in needs),
        "steps": sum(len(needs) for _, needs in named),
        "silent": sum(not tools for tools, _ in named),
    }


def prompts_of(words: Mapping[str, str]) -> Iterator[tuple[str, list[tuple[str, Needs]]]]:
    """Yield each kind of prompt with its prompts and the tools that their steps need."""
    for kind, tasks in (("on record", TASKS), ("others", LATER)):
        yield kind, [(task.text.format_map(words), task.needs) for task in tasks if task.needs]
    needless = [line for line in NEEDLESS.read_text("utf-8").splitlines() if line]
    none = [task.text.format_map(words) for task in (*TASKS, *LATER) if not task.needs]
    yield "needless", [(text, ()) for text in (*needless, *none)]


async def ask_all(command: Sequence[str], config: Path, kept: Path, words: Mapping[str, str]) -> list[Row]:
    """Ask the hook of a proxy that serves a copy of a storage for every prompt."""
    folder = config.parent / f"asked-{kept.stem}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    own = shared_config(config, folder)
    shutil.copy(kept, own.with_name("foretool.sqlite3"))
    hook = hook_of(command, own)
    found = []
    async with ProxyClient.serve(command, own) as client:
        await client.initialize()
        await client.tools()
        await asyncio.sleep(TYPING_S)
        for kind, prompts in prompts_of(words):
            hints = [(await asyncio.to_thread(ask_hook, hook, text), needs) for text, needs in prompts]
            found.append({"storage": kept.stem, "kind": kind, **count_hints(hints)})
    return found


async def run_all(arguments: Namespace) -> None:
    """Print a line for each storage and kind of prompt."""
    results: Path = arguments.results
    command = processes.installed(arguments.foretool)
    with serve_page() as page:
        world = World(results / "world", page)
        world.reset()
        entries = world.servers(arguments.servers)
        catalogue = read_catalogue(arguments.catalogs, arguments.size, arguments.longest)
        config = write_config(results / f"config-{arguments.size}", entries, catalogue)
        first = await keep_first_day(command, config)
        for kept in (first, await asyncio.to_thread(use, command, config, first)):
            for row in await ask_all(command, config, kept, world.words()):
                print(json.dumps(row), flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and run."""
    parser = make_parser("bench.agents.hints", __doc__)
    parser.add_argument("results", type=Path, help="the folder of results")
    parser.add_argument("--catalogs", type=Path, required=True, help="the folder of tools/list answers of real servers")
    parser.add_argument("--servers", type=Path, required=True, help="the folder of the packages")
    parser.add_argument("--size", type=int, default=128, help="tools of the catalogue; default %(default)s")
    parser.add_argument(
        "--longest", type=int, default=900, metavar="N", help="as in bench.agents.work; default %(default)s"
    )
    add_foretool(parser)
    asyncio.run(run_all(parser.parse_args(argv)))


if __name__ == "__main__":
    main()
