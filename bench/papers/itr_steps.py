"""The steps on which `bench.papers.itr_tables` measures ITR, and the catalogue around each.

A step is a task in words with the tools that it needs. Three sets have some: `livemcpbench` and `mcpbench` (development
halves, on which no default of foretool was chosen) and `world` (the tasks of `bench.agents`). Around the servers of a
set stand the real servers of `mcp_catalogs`; one with the name of a server of the set, or with half of its tools'
names, is left out, so that nothing is there twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from bench.agents import later_tasks, tasks
from bench.agents.catalogue import NEEDED
from bench.datasets import is_there, read_catalogs, read_instructions, read_tasks, read_tools, tool_of
from foretool.storage.records import Tool, ToolId

SETS: Final = ("livemcpbench", "mcpbench", "world")
POOL: Final = "mcp_catalogs"
SEED: Final = 7
PLACES: Final = {
    "files": "/home/ada/files",
    "repository": "/home/ada/repository",
    "page": "http://127.0.0.1:8000/museum",
}
"""What the tasks of `world` say of it."""


class Step(Struct, frozen=True):
    """A task in words, and the tools that it needs."""

    words: str
    gold: tuple[frozenset[ToolId], ...]
    """One set for each need: the tools that meet it."""
    needed: tuple[ToolId, ...]
    """A tool for each need, which a small catalogue has surely."""


class Server(Struct, frozen=True):
    """A server and what it lists."""

    name: str
    tools: tuple[Tool, ...]
    instructions: str = ""


class Catalogue(Struct, frozen=True):
    """All servers that stand behind one client."""

    servers: tuple[Server, ...]

    @property
    def tools(self) -> list[Tool]:
        return [tool for server in self.servers for tool in server.tools]

    @property
    def key(self) -> frozenset[ToolId]:
        """What tells it from another one."""
        return frozenset(tool.id for tool in self.tools)


class StepSet:
    """The steps of one set, with its own servers and those around them."""

    def __init__(self, name: str, steps: Sequence[Step], own: Sequence[Server], pool: Sequence[Server]) -> None:
        self.name = name
        self.steps = steps
        # Sets share the order of the pool, and so most of their catalogues.
        drawn = (
            _shuffled(own),
            (server for server in _shuffled(pool) if not any(_is_like(server, each) for each in own)),
        )
        self._servers = {each.name: each for each in chain(*drawn)}

    def sample(self, most: int | None) -> StepSet:
        """The same with at most so many steps, drawn with a fixed seed; all without a number."""
        if most is not None and most < len(self.steps):
            self.steps = random.Random(SEED).sample(self.steps, most)
        return self

    @cached_property
    def size(self) -> int:
        """How many tools there are."""
        return sum(len(server.tools) for server in self._servers.values())

    def around(self, step: Step, size: int) -> Catalogue:
        """The catalogue of a step: the tools that it needs, the other tools of their servers, those of further servers
        of the set, then of the pool in a drawn order, until there are `size`."""
        first = dict.fromkeys(tool.partition("/")[0] for tool in step.needed)
        order = [*first, *(name for name in self._servers if name not in first)]
        tools = chain(step.needed, (tool.id for name in order for tool in self._servers[name].tools))
        kept = set[ToolId]()
        for tool in tools:
            if len(kept) == size:
                break
            kept.add(tool)
        found = (
            Server(each.name, tuple(tool for tool in each.tools if tool.id in kept), each.instructions)
            for each in self._servers.values()
        )
        return Catalogue(tuple(each for each in found if each.tools))

    def catalogues(self, size: int) -> Iterator[tuple[Catalogue, list[Step]]]:
        """Each catalogue of so many tools with its steps. A step whose needs would be more than half of it has none,
        and all steps have none where there are not so many tools."""
        if size > self.size:
            return
        found: dict[frozenset[ToolId], tuple[Catalogue, list[Step]]] = {}
        for step in self.steps:
            if 2 * len(step.needed) <= size:
                catalogue = self.around(step, size)
                found.setdefault(catalogue.key, (catalogue, []))[1].append(step)
        yield from found.values()


def _shuffled(servers: Sequence[Server]) -> list[Server]:
    return random.Random(SEED).sample(servers, len(servers))


def _is_like(server: Server, other: Server) -> bool:
    """Whether a server has the name of another, or half of its tools' names."""
    names = {tool.name for tool in server.tools}
    return server.name == other.name or 2 * len(names & {tool.name for tool in other.tools}) >= len(names)


def read_pool(data: Path) -> list[Server]:
    """The real servers around each set."""
    said = read_instructions(data / POOL)
    return [_server(name, tools, said.get(name, "")) for name, tools in read_catalogs(data / POOL)]


def _server(name: str, tools: Sequence[Mapping[str, Any]], instructions: str = "") -> Server:
    # Some list a name twice; the first is served.
    by_name = {tool["name"]: tool_of(name, tool) for tool in reversed(tools)}
    return Server(name, tuple(reversed(by_name.values())), instructions)


def read_step_set(data: Path, name: str, pool: Sequence[Server]) -> StepSet | None:
    """One of `SETS`; None where its data are not there."""
    if name == "world":
        return read_world(pool)
    if not is_there(data / name / "dev.jsonl"):
        return None
    tools = read_tools(data / name)
    servers: dict[str, dict[str, Tool]] = {}
    for tool in tools:
        servers.setdefault(tool.upstream, {}).setdefault(tool.name, tool)
    steps = (
        Step(each.query, each.gold, _one_of_each(each.gold)) for each in read_tasks(data / name / "dev.jsonl", tools)
    )
    own = [Server(server, tuple(by_name.values())) for server, by_name in servers.items()]
    return StepSet(name, list(steps), own, pool)


def _one_of_each(gold: Sequence[frozenset[ToolId]]) -> tuple[ToolId, ...]:
    return tuple(dict.fromkeys(min(need) for need in gold))


def read_world(pool: Sequence[Server]) -> StepSet | None:
    """The tasks of `bench.agents` that need a tool, over the real definitions of their servers."""
    held = {server.name: server for server in pool}
    if not held.keys() >= set(NEEDED.values()):
        return None
    own = [_renamed(held[file], name) for name, file in NEEDED.items()]
    known = {f"{tool.upstream}__{tool.name}": tool.id for server in own for tool in server.tools}
    steps = []
    for task in (*tasks.TASKS, *later_tasks.LATER):
        needs = [[known[name] for name in need if name in known] for need in task.needs]
        if needs and all(needs):
            words = task.text.format(**PLACES)
            steps.append(Step(words, tuple(map(frozenset, needs)), tuple(need[0] for need in needs)))
    return StepSet("world", steps, own, [server for server in pool if server.name not in NEEDED.values()])


def _renamed(server: Server, name: str) -> Server:
    """The server under the name that the tasks give it."""
    tools = (replace(tool, id=ToolId(f"{name}/{tool.name}"), upstream=name) for tool in server.tools)
    return Server(name, tuple(tools), server.instructions)
