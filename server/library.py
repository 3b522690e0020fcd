"""foretool as a library: picks what a step of an agent needs out of the user's MCP servers (ITR, Algorithm 1).

    async with Foretool("mcp.json") as ft:
        step = await ft.step("find the newest issue and answer it")
        reply = ask(step.system_prompt, step.tools.openai)
        result = await step.call(reply.name, reply.arguments)

It is the proxy without a client at the other end: the same config, catalog, upstreams, ranking and store. It records
steps as discoveries, calls as calls, and a call of a tool that the step did not have as a miss. Leave the block in the
task that entered it; every server that it started has ended then.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from msgspec import Struct

from foretool._version import __version__
from foretool.retrieval.itr import THRESHOLD
from foretool.server.app import App
from foretool.server.catalog.definitions import write_definition
from foretool.server.catalog.names import DISCOVER
from foretool.server.clients.client import Client
from foretool.server.clients.session import Session
from foretool.server.config.loader import Config, load, parse
from foretool.server.discovery.agent_step import BUDGET, StepPlan
from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.jsonrpc import UNSET, Message, Raw
from foretool.storage.episodes import are_alike
from foretool.storage.opening import open_serving_store
from foretool.storage.records import Level, ToolId
from foretool.storage.store import Store

_GRACE_S: Final = 2.0
"""How long calls under way may still be answered when the block ends."""

T = TypeVar("T")


class CallFailed(Exception):
    """The proxy refused a call: no such tool, not in this profile, or a rule denies it. A tool that failed returns a
    `Result` with `is_error` instead."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Result(Struct, frozen=True):
    """What a tool returned."""

    text: str
    """Its text blocks, joined by line breaks."""
    content: list[dict[str, Any]]
    """All its blocks, as the server wrote them."""
    structured: Any = None
    is_error: bool = False


class Tools(Struct, frozen=True):
    """Tools in the shapes that APIs take. The last one of a step is `discover_tools`.

    Exposed names consist of at most 49 letters, digits, `_` and `-`, so every API takes them as they are.
    """

    mcp: list[dict[str, Any]]
    """As in `tools/list`."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.mcp)

    @property
    def names(self) -> list[str]:
        return [str(tool["name"]) for tool in self.mcp]

    @property
    def openai(self) -> list[dict[str, Any]]:
        """As OpenAI's chat completions and compatible APIs take `tools`."""
        return [
            {"type": "function", "function": {**_head(tool), "parameters": tool["inputSchema"]}} for tool in self.mcp
        ]

    @property
    def anthropic(self) -> list[dict[str, Any]]:
        """As Anthropic's messages take `tools`."""
        return [{**_head(tool), "input_schema": tool["inputSchema"]} for tool in self.mcp]


def _head(tool: dict[str, Any]) -> dict[str, Any]:
    return {"name": tool["name"], "description": tool.get("description") or ""}


class Step(Struct, frozen=True, eq=False):
    """What one step of an agent is given."""

    query: str
    """The task that the step was made for."""
    system_prompt: str
    """Safety overlay, instructions that apply, routing note. It leaves out the tools, for which every API has a place
    of its own."""
    tools: Tools
    instructions: list[str]
    """Where the instructions in the prompt come from, chunk by chunk."""
    confidence: Level
    """How sure foretool is that a needed tool is among the first five."""
    probability: float
    """The same as a number, 0 to 1."""
    tokens: int
    """Tokens of the prompt and the tools."""
    fallback: str
    """`none`, or how the step was widened: `expand` (more tools) or `discover` (the names of the others)."""
    _owner: Foretool
    _plan: StepPlan

    async def widen(self, sufficiency: float) -> Step:
        """Return a step with more tools if the model rated these below the threshold (0 to 1), else this step."""
        if sufficiency >= self._owner.threshold:
            return self
        app, client, _ = self._owner._running()
        return self._owner._make_step(app.answering.steps.widen(self._plan, sufficiency, client.profile))

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Result:
        """Call a tool of the step, or any other. Raises `CallFailed`."""
        return await self._owner.call(name, arguments)


class Reply(Struct, Generic[T], frozen=True):
    """What a model made of a step, and how sufficient it finds the tools, 0 to 1."""

    value: T
    sufficiency: float = 1.0


Model = Callable[[Step], Awaitable[Reply[T]]]


class Foretool:
    """The user's MCP servers, started as they are needed, and the steps that are picked out of their tools."""

    def __init__(
        self,
        config: Path | str | Mapping[str, Any] | Config | None = None,
        *,
        profile: str = "",
        name: str = "foretool library",
        threshold: float = THRESHOLD,
        patience_s: float = 30.0,
    ) -> None:
        """`config`: the file, its content, or a config that was read; None for the file that the command line takes.

        `name`: your program, as `foretool status --clients` and `foretool misses` show it. `threshold`: tau of ITR, the
        self-rating below which a step is widened. `patience_s`: longest wait, at the beginning, for servers whose tools
        are not known from an earlier run. Raises `ConfigError`.
        """
        self.threshold = threshold
        self.patience_s = patience_s
        if isinstance(config, Mapping):
            config = parse(json.dumps(config).encode(), Path.cwd() / "mcp.json")
        self._config = config if isinstance(config, Config) else load(Path(config) if config is not None else None)
        self._config.require_profile(profile)
        self._profile = profile
        self._name = name
        self._stack = AsyncExitStack()
        self._app: App | None = None
        self._client: Client | None = None
        self._asked = 0
        self._task = self._searched = ""
        """What the last step was for, and the last search of the model's own."""
        self._found: list[ToolId] = []
        """The tools that this search has shown."""

    async def __aenter__(self) -> Self:
        if self._app is not None:
            raise RuntimeError("a Foretool is entered once; make another one")
        store = self._stack.enter_context(open_serving_store(self._config.storage))
        try:
            app = self._make(self._config, store)
            # The program goes on, unlike a proxy, with whose end its watcher ends.
            self._stack.push_async_callback(asyncio.to_thread, app.children.close)
            await self._stack.enter_async_context(app.running())
            client = app.router.open("legacy", "library", _Answer(), self._profile)
            self._app, self._client = app, client
            info = {"name": self._name, "version": __version__}
            greeting = {"protocolVersion": versions.LATEST_LEGACY, "capabilities": {}, "clientInfo": info}
            await self._ask(client, "initialize", greeting)
            end = time.monotonic() + self.patience_s
            while app.upstreams.still_coming() and time.monotonic() < end:
                await asyncio.sleep(0.02)
            # Steps are always searched, unlike lists, so the encoders may be loaded.
            app.search.is_wanted = True
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None and self._app is not None:
            if error is None:
                await self._app.clients.wait_for_answers(_GRACE_S)
            self._client.close()
        await self._stack.aclose()

    @property
    def tools(self) -> Tools:
        """Every tool that the profile finds, as its server defines it, without `discover_tools`."""
        app, client, _ = self._running()
        app.catalog.fix_names()
        finds = app.policy.reach(client.profile).finds
        return Tools([jsonrpc.decode_value(write_definition(tool)) for tool in app.catalog.tools() if finds(tool)])

    async def step(self, query: str, history: Sequence[str] | None = None, budget: int = BUDGET) -> Step:
        """Return what the next step needs. `query`: the task in words, one need a line; `history`: the tools called so
        far, oldest first, by default those called through this object; `budget`: tokens of prompt and tools.

        What `discover_tools` showed last, called through this object, is in each step of the same task, before what is
        ranked for it: a model that searched can call what it found."""
        app, client, session = self._running()
        chat = session.conversations.whole
        if not (are_alike(query, self._task) or are_alike(query, self._searched)):
            self._found = []
        self._task = query
        chat.note_task(tuple(line.strip() for line in query.splitlines() if line.strip()), app.recorder.now())
        wanted = app.answering.steps.query(query, chat.steps if history is None else history)
        planned: asyncio.Future[StepPlan] = asyncio.get_running_loop().create_future()

        def ready(plan: StepPlan) -> None:
            if not planned.done():  # the caller may have stopped waiting
                planned.set_result(plan)

        app.answering.steps.plan(wanted, client, budget, ready, self._found)
        return self._make_step(await planned)

    async def answer(
        self, query: str, model: Model[T], history: Sequence[str] | None = None, budget: int = BUDGET
    ) -> tuple[T, Step]:
        """Run Algorithm 1: ask the model with a step, and once more with a wider one if its tools do not suffice. An
        error of the model is recorded and raised."""
        step = await self.step(query, history, budget)
        try:
            reply = await model(step)
            wider = await step.widen(reply.sufficiency)
            if wider is not step:
                step, reply = wider, await model(wider)
        except Exception as error:
            app, _, session = self._running()
            app.answering.steps.record(session, step._plan, type(error).__name__)
            app.parties.outbox.flush()
            raise
        return reply.value, step

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Result:
        """Call any tool, in the step or not. Raises `CallFailed`."""
        _, client, session = self._running()
        result = await self._ask(client, "tools/call", {"name": name, "arguments": dict(arguments or {})})
        if name == DISCOVER:
            given = arguments or {}
            # An answer hands out a handle, and the next search that has it belongs to a conversation of its own.
            self._found = session.conversations.of(str(given.get("handle") or "")).last_shown()
            self._searched = str(given.get("task") or self._task)
        content = result.get("content")
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
        return Result(text, blocks, result.get("structuredContent"), result.get("isError") is True)

    def _make_step(self, plan: StepPlan) -> Step:
        """Show and record a plan, and return it as a step."""
        app, client, session = self._running()
        app.catalog.fix_names()
        app.answering.steps.record(session, plan)
        app.answering.steps.show(session, plan, client.profile)
        app.parties.outbox.flush()
        shown = [*plan.tools, app.answering.steps.discover(client.profile)]
        tools = Tools([jsonrpc.decode_value(each.definition) for each in shown])
        sources = [fragment.id for fragment in plan.fragments]
        return Step(
            plan.task, plan.prompt, tools, sources, plan.level, plan.probability, plan.tokens, plan.fallback, self, plan
        )

    async def _ask(self, client: Client, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a request. Raises `CallFailed`. Cancelling the wait cancels the request."""
        self._asked = ident = self._asked + 1
        answer = _Answer()
        client.receive(Message(id=ident, method=method, params=jsonrpc.raw(params)), answer)
        try:
            message = await answer.future
        except asyncio.CancelledError:
            params_of = jsonrpc.raw({"requestId": ident, "reason": "cancelled"})
            client.receive(Message(method="notifications/cancelled", params=params_of), answer)
            raise
        if message.error is not UNSET:
            code, said = jsonrpc.error_of(message.error)
            raise CallFailed(code, said)
        assert isinstance(message.result, Raw)
        result: dict[str, Any] = jsonrpc.decode_value(message.result)
        return result

    def _running(self) -> tuple[App, Client, Session]:
        if self._app is None or self._client is None or self._client.session is None:
            raise RuntimeError("a Foretool works inside `async with` only")
        return self._app, self._client, self._client.session

    def _make(self, config: Config, store: Store) -> App:
        return App(config, store)


class _Answer:
    """Takes the answer to one request, and drops notifications."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def send(self, data: bytes) -> None: ...

    def poll(self) -> None: ...

    def finish(self, data: bytes, code: int | None) -> None:
        if not self.future.done():
            self.future.set_result(jsonrpc.decode(data))

    def end(self) -> None:
        error = {"code": jsonrpc.INTERNAL_ERROR, "message": "foretool: the Foretool ended before the answer came"}
        self.finish(jsonrpc.failure(None, jsonrpc.raw(error)), None)
