"""foretool as a library: what a step of an agent needs, out of the user's MCP servers (ITR, Algorithm 1).

    async with Foretool("mcp.json") as ft:
        step = await ft.step("find the newest issue and answer it")
        reply = ask(step.system_prompt, step.tools.openai)
        result = await step.call(reply.name, reply.arguments)

It is the proxy without a client at the other end: the same config, catalog, upstreams, ranking and store. Steps are on
record as discoveries, calls as calls, and a call of a tool that the step did not have is a miss. One event loop, one
task: leave the block in the task that entered it; then every server it started has ended.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from msgspec import Struct

from foretool._version import __version__
from foretool.retrieval.itr import PUBLISHED
from foretool.server.app import App
from foretool.server.clients.session import Session
from foretool.server.config.loader import Config, Profile, default_config, load, parse
from foretool.server.methods.agent_step import BUDGET, Plan
from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.jsonrpc import UNSET, Message, Raw
from foretool.storage.opening import open_store
from foretool.storage.records import Level
from foretool.storage.stores import Store

GRACE_S: Final = 2.0
"""At the end, calls under way have so long to be answered."""

LOOK_S: Final = 0.02

T = TypeVar("T")


class CallFailed(Exception):
    """The proxy refused a call: no such tool, or not in this profile. What a tool says of its own failure is a `Result`
    with `is_error`."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Result(Struct, frozen=True):
    """What a tool returned."""

    text: str
    """Its text blocks, one after the other."""
    content: list[dict[str, Any]]
    """All its blocks, as the server wrote them."""
    structured: Any = None
    is_error: bool = False


class Tools(Struct, frozen=True):
    """The tools of a step, `discover_tools` the last of them, in the shapes that APIs take.

    Exposed names have letters, digits, `_` and `-` only and at most 49 of them, so every API takes them as they are.
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
        """For `tools` of OpenAI's chat completions and whatever is compatible with them."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool["name"],
                    "description": tool.get("description") or "",
                    "parameters": tool["inputSchema"],
                },
            }
            for tool in self.mcp
        ]

    @property
    def anthropic(self) -> list[dict[str, Any]]:
        """For `tools` of Anthropic's messages."""
        return [
            {
                "name": tool["name"],
                "description": tool.get("description") or "",
                "input_schema": tool["inputSchema"],
            }
            for tool in self.mcp
        ]


class Step:
    """What one step of an agent is given."""

    def __init__(self, owner: Foretool, plan: Plan) -> None:
        self._owner = owner
        self._plan = plan

    @property
    def query(self) -> str:
        """The task it was made for."""
        return self._plan.task

    @property
    def system_prompt(self) -> str:
        """Safety overlay, instructions that apply, routing note. The tools are not in it: they have their own place in
        every API."""
        return self._plan.prompt

    @cached_property
    def tools(self) -> Tools:
        shown = [*self._plan.tools, self._owner.discover_tool()]
        return Tools([jsonrpc.plain(each.definition) for each in shown])

    @property
    def instructions(self) -> list[str]:
        """Where the instructions in the prompt are from, chunk by chunk."""
        return [fragment.id for fragment in self._plan.fragments]

    @property
    def confidence(self) -> Level:
        """How sure we are that a needed tool is among the first five."""
        return self._plan.level

    @property
    def probability(self) -> float:
        """The same as a number, 0 to 1."""
        return self._plan.probability

    @property
    def tokens(self) -> int:
        """Of prompt and tools."""
        return self._plan.tokens

    @property
    def fallback(self) -> str:
        """`none`, or how it was widened: `expand` (more tools) or `discover` (the names of the others)."""
        return self._plan.fallback

    async def widen(self, sufficiency: float) -> Step:
        """The step after the model has rated its tools, 0 to 1: below the threshold with more of them, else itself."""
        return await self._owner.widen(self, sufficiency)

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Result:
        """Call a tool of the step, or any other. Raises `CallFailed`."""
        return await self._owner.call(name, arguments)


class Reply(Struct, Generic[T], frozen=True):
    """What a model made of a step, and how far it finds its tools sufficient, 0 to 1."""

    value: T
    sufficiency: float = 1.0


Model = Callable[[Step], Awaitable[Reply[T]]]


class Foretool:
    """See the module."""

    def __init__(
        self,
        config: Path | str | Mapping[str, Any] | Config | None = None,
        *,
        profile: str = "",
        name: str = "foretool library",
        threshold: float = PUBLISHED.threshold,
        patience_s: float = 30.0,
    ) -> None:
        """`config`: the file, what would stand in it, or a config that was read; without one that of the command line.

        `name`: of your program, as `foretool clients` and `foretool misses` show it. `threshold`: tau of ITR, the
        self-rating below which a step is widened. `patience_s`: longest wait, at the beginning, for servers whose tools
        are not known from an earlier run. Raises `ConfigError`.
        """
        self.threshold = threshold
        self.patience_s = patience_s
        self._config = _read(config)
        self._config.require_profile(profile)
        self._profile = profile
        self._name = name
        self._stack = AsyncExitStack()
        self._app: App | None = None
        self._caller: _Caller | None = None

    async def __aenter__(self) -> Self:
        if self._app is not None:
            raise RuntimeError("a Foretool is entered once; make another one")
        store = self._stack.enter_context(open_store(self._config.storage))
        try:
            app = self._make(self._config, store)
            await self._stack.enter_async_context(app.running())
            self._app, self._caller = app, _Caller(app, self._profile)
            info = {"name": self._name, "version": __version__}
            greeting = {"protocolVersion": versions.LATEST_LEGACY, "capabilities": {}, "clientInfo": info}
            await self._caller.ask("initialize", greeting)
            await self._caller.listed(self.patience_s)
            # A list might never be searched, steps always are: the encoders may be loaded.
            app.search.want_encoders()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._caller is not None and self._app is not None:
            if error is None:
                await self._app.clients.wait_for_answers(GRACE_S)
            self._caller.client.close()
        await self._stack.aclose()

    async def step(self, query: str, history: Sequence[str] | None = None, budget: int = BUDGET) -> Step:
        """What the next step needs: `query` in words, one need a line; `history`: the tools called so far, oldest
        first, by default those called through this object; `budget`: tokens of prompt and tools."""
        app, caller = self._running()
        chat = caller.session.conversation()
        chat.note_task(tuple(line.strip() for line in query.splitlines() if line.strip()), app.recorder.now())
        wanted = app.steps.query(query, chat.steps if history is None else history)
        planned: asyncio.Future[Plan] = asyncio.get_running_loop().create_future()

        def ready(plan: Plan) -> None:
            if not planned.done():  # nobody waits for it any more
                planned.set_result(plan)

        app.steps.plan(wanted, caller.profile, budget, ready)
        return self._given(await planned)

    async def widen(self, step: Step, sufficiency: float) -> Step:
        """See `Step.widen`."""
        if sufficiency >= self.threshold:
            return step
        app, caller = self._running()
        return self._given(app.steps.widen(step._plan, sufficiency, caller.profile))

    async def answer(
        self, query: str, model: Model[T], history: Sequence[str] | None = None, budget: int = BUDGET
    ) -> tuple[T, Step]:
        """Algorithm 1: ask the model with a step, and once more with a wider one where its tools do not suffice. What
        the model raises is on record and goes on."""
        step = await self.step(query, history, budget)
        try:
            reply = await model(step)
            wider = await self.widen(step, reply.sufficiency)
            if wider is not step:
                step, reply = wider, await model(wider)
        except Exception as error:
            app, caller = self._running()
            app.steps.record(caller.session, step._plan, type(error).__name__)
            app.outbox.flush()
            raise
        return reply.value, step

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Result:
        """Call any tool, in the step or not. Raises `CallFailed`."""
        _, caller = self._running()
        return _result(await caller.ask("tools/call", {"name": name, "arguments": dict(arguments or {})}))

    def discover_tool(self) -> Any:
        """`discover_tools`, which every step has."""
        app, caller = self._running()
        return app.steps.discover(caller.profile)

    def _given(self, plan: Plan) -> Step:
        app, caller = self._running()
        app.catalog.fix_names()
        app.steps.record(caller.session, plan)
        app.steps.show(caller.session, plan, caller.profile)
        app.outbox.flush()
        return Step(self, plan)

    def _running(self) -> tuple[App, _Caller]:
        if self._app is None or self._caller is None:
            raise RuntimeError("a Foretool works inside `async with` only")
        return self._app, self._caller

    def _make(self, config: Config, store: Store) -> App:
        return App(config, store)


class _Caller:
    """Requests in memory, answered as those of a client are."""

    def __init__(self, app: App, profile: str) -> None:
        self._upstreams = app.upstreams
        self.client = app.router.open("legacy", "library", _Nowhere(), profile)
        self._last = 0

    @property
    def profile(self) -> Profile:
        """As the config says now."""
        return self.client.profile

    @property
    def session(self) -> Session:
        assert self.client.session is not None, "not initialized"
        return self.client.session

    async def listed(self, patience_s: float) -> None:
        """Until every server has listed its tools, or failed to, or had its time."""
        end = time.monotonic() + patience_s
        while self._upstreams.still_coming() and time.monotonic() < end:
            await asyncio.sleep(LOOK_S)

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """A result. Raises `CallFailed`. A cancelled wait is a cancelled request."""
        self._last += 1
        answer = _Answer()
        self.client.receive(Message(id=self._last, method=method, params=jsonrpc.raw(params)), answer)
        try:
            message = await answer.future
        except asyncio.CancelledError:
            params_of = jsonrpc.raw({"requestId": self._last, "reason": "cancelled"})
            self.client.receive(Message(method="notifications/cancelled", params=params_of), _Nowhere())
            raise
        if message.error is not UNSET:
            code, said = jsonrpc.error_of(message.error)
            raise CallFailed(code, said)
        assert isinstance(message.result, Raw)
        result: dict[str, Any] = jsonrpc.plain(message.result)
        return result


class _Nowhere:
    """Where what belongs to no request goes: nobody listens."""

    def send(self, data: bytes) -> None: ...

    def finish(self, data: bytes, code: int | None) -> None: ...

    def poll(self) -> None: ...

    def end(self) -> None: ...


class _Answer(_Nowhere):
    """Where the answer to one request goes."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def finish(self, data: bytes, code: int | None) -> None:
        if not self.future.done():
            self.future.set_result(jsonrpc.decode(data))

    def end(self) -> None:
        self.future.cancel()


def _read(config: Path | str | Mapping[str, Any] | Config | None) -> Config:
    if isinstance(config, Config):
        return config
    if isinstance(config, Mapping):
        return parse(json.dumps(config).encode(), Path.cwd() / "mcp.json")
    return load(Path(config) if config is not None else default_config())


def _result(result: Mapping[str, Any]) -> Result:
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
    return Result(text, blocks, result.get("structuredContent"), result.get("isError") is True)
