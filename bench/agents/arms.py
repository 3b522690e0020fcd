"""The arms: what a model is given to work with, and how its calls are carried out.

    needed    the definitions of the tools that the task needs, and no others: the best that any choice of tools can be
    all       the definitions of all tools
    search    none at first; the model's own search (BM25 over names, descriptions and parameters, five at a time) adds
              what it finds, as clients do that defer definitions
    told      the same, and its answer says that nothing has run yet, as those of foretool do
    foretool  the list of foretool as it is installed, its `instructions`, and its lists as they change
    hook      the same, and behind the user's words what the prompt hook prints for them
    used      as foretool, but with the storage of a user who has worked on 200 tasks over the same servers, the first
              ones again and again (a script has written that log, `used.py`), and with what foretool learns from them
    used_hook the same, with the hook
    step      what the library's `step()` gives for each decision (ITR): a prompt, tools of this step, `discover_tools`

The first four reach the servers directly, under the names that foretool gives their tools. `bench/agents/peers.py` has
other proxies as arms.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

from bench.agents.catalogue import FAILURE
from bench.agents.decisions import BRIDGES
from bench.agents.tasks import Task
from bench.agents.used import work_through
from bench.clients.messages import Failed, Json
from bench.clients.stdio import StdioClient
from bench.retrieval.everyday import wait_until_ready
from bench.retrieval.pool import Pool, bm25
from foretool.server.discovery.answer_text import NOT_DONE
from foretool.server.library import CallFailed, Step
from foretool.server.library import Foretool as Library
from foretool.storage.records import Tool, ToolId

ARMS: Final = ("needed", "all", "search", "told", "foretool", "hook", "used", "used_hook", "step")
DISCOVER: Final = "discover_tools"
OWN: Final = (DISCOVER, *BRIDGES)
SEARCH: Final = "search_tools"
HINT_MS: Final = 10_000
"""The hook's deadline: on a machine that a model keeps busy it would be over before the hook has begun."""
TYPING_S: Final = 5.0
"""What a user needs to type a wish into a window that has just started; the proxy opens its encoder meanwhile."""
USED: Final = 200
"""Tasks that a user has worked on before the arms `used` and `used_hook` begin."""
FOUND: Final = 5
"""Definitions that the model's own search adds."""
SEARCH_DEFINITION: Final[Json] = {
    "name": SEARCH,
    "description": "Searches the tools that are not loaded yet and loads the best ones, so that you can call them.",
    "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}

_NAMED: Final = re.compile(r"([\w-]+)__\{((?:[^{}]|\{[^{}]*\})*)\}|([\w-]+__[\w-]+)\(")
_CALL: Final = re.compile(r"([\w-]+)\(")


class Arm(Protocol):
    """One conversation's tools."""

    @property
    def instructions(self) -> str: ...

    async def tools(self) -> list[Json]:
        """The definitions that the model is given now."""
        ...

    async def prompt(self, task: str) -> str:
        """What the model reads of the user's words, and with them."""
        ...

    async def call(self, name: str, arguments: Json) -> str:
        """The text of the result."""
        ...


class Servers:
    """The servers of the tasks, reached directly; those that take no part are definitions alone."""

    def __init__(self, clients: Mapping[str, StdioClient], catalogue: Mapping[str, Sequence[Json]]) -> None:
        self._clients = clients
        self.tools = [
            {**tool, "name": f"{server}__{tool['name']}"} for server, tools in catalogue.items() for tool in tools
        ]

    @classmethod
    @asynccontextmanager
    async def start(
        cls, entries: Mapping[str, Mapping[str, Any]], catalogue: Mapping[str, Sequence[Json]]
    ) -> AsyncIterator[Servers]:
        """Start the servers that have an entry; their own lists take the place of the definitions on file."""
        async with AsyncExitStack() as stack:
            clients, listed = {}, dict(catalogue)
            for name, entry in entries.items():
                client = await StdioClient.start([entry["command"], *entry["args"]], entry.get("env"))
                stack.push_async_callback(client.stop)
                await client.initialize()
                clients[name], listed[name] = client, await client.tools()
            yield cls(clients, listed)

    async def call(self, name: str, arguments: Json) -> str:
        server, _, tool = name.partition("__")
        if server not in self._clients:
            return FAILURE
        return await call(self._clients[server], tool, arguments)


class Direct:
    """The arms `needed` and `all`."""

    instructions = ""

    def __init__(self, servers: Servers, tools: Sequence[Json]) -> None:
        self._servers = servers
        self._tools = list(tools)

    async def tools(self) -> list[Json]:
        return list(self._tools)

    async def prompt(self, task: str) -> str:
        return task

    async def call(self, name: str, arguments: Json) -> str:
        return await self._servers.call(name, arguments)


class OwnSearch(Direct):
    """The arms `search` and `told`."""

    def __init__(self, servers: Servers, *, is_told: bool = False) -> None:
        """`is_told`: its answer says that nothing has run yet."""
        super().__init__(servers, [SEARCH_DEFINITION])
        self._behind = f". {NOT_DONE}" if is_told else ""
        self._deferred = {tool["name"]: tool for tool in servers.tools}
        self._find = bm25(Pool([as_record(tool) for tool in servers.tools], {}))

    async def call(self, name: str, arguments: Json) -> str:
        if name != SEARCH:
            return await super().call(name, arguments)
        found = [str(tool) for tool in self._find(str(arguments.get("query", "")))[:FOUND]]
        held = {tool["name"] for tool in self._tools}
        self._tools += [self._deferred[each] for each in found if each not in held]
        return f"Loaded: {', '.join(found)}{self._behind}" if found else "Nothing found."


class Stepped:
    """The arm `step`: each decision is given a step of its own."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._task = ""
        self._step: Step | None = None

    @classmethod
    @asynccontextmanager
    async def start(cls, config: Path) -> AsyncIterator[Stepped]:
        """Each conversation begins with a storage of its own, whose tools are known."""
        with TemporaryDirectory(prefix="conversation-", dir=config.parent, ignore_cleanup_errors=True) as folder:
            own = shared_config(config, Path(folder))
            async with Library(own, name="bench step") as library:
                yield cls(library)

    @property
    def instructions(self) -> str:
        return self._step.system_prompt if self._step is not None else ""

    async def tools(self) -> list[Json]:
        if not self._task:
            return []
        self._step = await self._library.step(self._task)
        return self._step.tools.mcp

    async def prompt(self, task: str) -> str:
        self._task = task
        await asyncio.sleep(TYPING_S)
        return task

    async def call(self, name: str, arguments: Json) -> str:
        try:
            return (await self._library.call(name, arguments)).text
        except CallFailed as error:
            return f"Error: {error}"


class ProxyClient(StdioClient):
    """A client that lists again once it is told that its list has changed."""

    is_stale = True

    def hear(self, message: Json) -> None:
        if message["method"] == "notifications/tools/list_changed":
            self.is_stale = True


class Proxied:
    """A proxy as it is: its `instructions`, its list as it changes, and the user's words alone."""

    def __init__(self, client: ProxyClient, instructions: str) -> None:
        self._client = client
        self._tools: list[Json] = []
        self.instructions = instructions

    async def tools(self) -> list[Json]:
        if self._client.is_stale:
            self._client.is_stale = False
            self._tools = await self._client.tools()
        return self._tools

    async def prompt(self, task: str) -> str:
        return task

    async def call(self, name: str, arguments: Json) -> str:
        return await call(self._client, name, arguments)


class Foretool(Proxied):
    """The arms `foretool`, `hook`, `used` and `used_hook`."""

    def __init__(self, client: ProxyClient, instructions: str, hook: Sequence[str] = ()) -> None:
        """`hook`: the command of the prompt hook."""
        super().__init__(client, instructions)
        self._hook = hook

    @classmethod
    @asynccontextmanager
    async def start(
        cls, command: Sequence[str], config: Path, *, has_hook: bool = False, is_used: bool = False
    ) -> AsyncIterator[Foretool]:
        """Serve on a config whose servers are known. Each conversation begins with the storage of the first day, or
        with that after `USED` tasks, and has a shared proxy of its own, which the hook asks as well."""
        kept = await keep_first_day(command, config)
        if is_used:
            kept = await asyncio.to_thread(use, command, config, kept)
        with TemporaryDirectory(prefix="conversation-", dir=config.parent, ignore_cleanup_errors=True) as folder:
            own = shared_config(config, Path(folder))
            shutil.copy(kept, own.with_name("foretool.sqlite3"))
            async with ProxyClient.serve(command, own) as client:
                begun = await client.initialize()
                yield cls(client, begun.get("instructions", ""), hook_of(command, own) if has_hook else ())

    async def prompt(self, task: str) -> str:
        if not self._hook:
            return task
        await asyncio.sleep(TYPING_S)
        hint = await asyncio.to_thread(ask_hook, self._hook, task)
        return f"{task}\n\n{hint}".strip()


def hook_of(command: Sequence[str], config: Path) -> list[str]:
    """The command of the prompt hook under a config."""
    return [*command, "hint", "--config", str(config)]


def ask_hook(hook: Sequence[str], prompt: str) -> str:
    """What a prompt hook prints for a prompt."""
    event = {"hook_event_name": "UserPromptSubmit", "prompt": prompt, "session_id": "bench", "cwd": str(Path.cwd())}
    environ = {**os.environ, "FORETOOL_HINT_MS": str(HINT_MS)}
    done = subprocess.run(hook, input=json.dumps(event), capture_output=True, text=True, check=True, env=environ)
    return done.stdout.strip()


async def keep_first_day(command: Sequence[str], config: Path) -> Path:
    """The storage of the first day, whose servers are known and embedded; made where there is none yet."""
    kept = config.with_name("first_day.sqlite3")
    if not kept.exists():
        async with StdioClient.serve(command, unrecorded(config)) as client:
            await client.initialize()
            await client.tools()
            await wait_until_ready(client, has_encoder(config))
        # A hook that was never used would rank its first prompt by words alone.
        await asyncio.to_thread(ask_hook, hook_of(command, config), "List my files")
        shutil.copy(config.with_name("foretool.sqlite3"), kept)
    return kept


def use(command: Sequence[str], config: Path, first: Path) -> Path:
    """The storage after `USED` tasks and a run of learning, made from that of the first day where there is none yet."""
    kept = config.with_name("used.sqlite3")
    if not kept.exists():
        own = config.with_name("foretool.sqlite3")
        shutil.copy(first, own)
        work_through(config, USED, time.time())
        subprocess.run([*command, "learn", "--config", str(config)], check=True, capture_output=True)
        shutil.copy(own, kept)
    return kept


def unrecorded(config: Path) -> Path:
    """The same config without a log: a search that waits for the servers is no task of the user's, whose words would
    choose tools of the list."""
    members = json.loads(config.read_text("utf-8"))
    members["foretool"] |= {"record": "off", "share": False}
    quiet = config.with_name("first_day.json")
    quiet.write_text(json.dumps(members), "utf-8")
    return quiet


def shared_config(config: Path, folder: Path) -> Path:
    """The same config in another folder, served by a shared proxy, as people run it."""
    members = json.loads(config.read_text("utf-8"))
    settings = members["foretool"]
    settings.pop("share", None)
    settings["storage"] = str(folder / "foretool.sqlite3")
    if (prepared := config.with_name("encoders")).exists():
        (folder / "encoders").symlink_to(prepared)
    own = folder / "mcp.json"
    own.write_text(json.dumps(members), "utf-8")
    return own


def has_encoder(config: Path) -> bool:
    """Whether tools are found by meaning under a config."""
    return bool(json.loads(config.read_text("utf-8"))["foretool"].get("encoder") != "none")


async def call(client: StdioClient, tool: str, arguments: Json) -> str:
    """The text of a result, or of what the call failed with."""
    try:
        result = await client.call(tool, arguments)
    except Failed as error:
        return f"Error: {error}"
    return "\n".join(block.get("text", f"({block['type']})") for block in result.get("content", ()))


def as_record(tool: Json) -> Tool:
    """A definition as retrieval reads it."""
    server, _, name = tool["name"].partition("__")
    return Tool(ToolId(tool["name"]), server, name, json.dumps({**tool, "name": name}).encode(), "")


def needed_tools(servers: Servers, task: Task) -> list[Json]:
    """The definitions of every tool that may serve a task."""
    names = {name for step in task.needs for name in step}
    return [tool for tool in servers.tools if tool["name"] in names]


def named_tools(tools: Sequence[Json]) -> set[str]:
    """The tools that the definitions of the bridges name: `a__{b(), c(x: string)}` or `a__b()`."""
    found = set[str]()
    for tool in tools:
        if tool["name"] in BRIDGES:
            for server, group, single in _NAMED.findall(tool["description"]):
                found |= {f"{server}__{name}" for name in _CALL.findall(group)} if group else {single}
    return found
