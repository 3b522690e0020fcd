"""What the tests of the core share: upstreams in memory, a store that fails on demand, a raw client, and the real
proxy between them. Nothing here starts a process or sleeps; whatever waits does so for an event, under `PATIENCE_S`.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from limits import write_settings

from foretool.server.app import UNWATCHED, App, Parts
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.search import Search
from foretool.server.config import loader
from foretool.server.config.loader import Config, LiveConfig
from foretool.server.config.servers import Server
from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.jsonrpc import BadMessage, Message, Raw
from foretool.server.protocol.loose_messages import find_broken_reply
from foretool.server.transports.client.stdio import StdioServer
from foretool.server.transports.upstream.base import LinkError, Receiver
from foretool.server.upstreams.lines import OpenLink
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Era, Miss
from foretool.storage.sqlite.database import SqliteDatabase
from foretool.storage.sqlite.migrations import migrate
from foretool.storage.store import Store

PATIENCE_S = 5.0
"""Nothing in memory takes a tenth of it; a test that hangs must end all the same."""

LEGACY: tuple[Era, ...] = ("legacy",)
MODERN: tuple[Era, ...] = ("modern",)
BOTH: tuple[Era, ...] = ("legacy", "modern")

Json = dict[str, Any]


def tool(name: str, description: str = "", properties: Json | None = None, **more: Any) -> Json:
    """A definition as an upstream lists it; `properties` of its arguments, `more` of its members."""
    schema = {"type": "object", "properties": properties or {}}
    return {"name": name, "description": description, "inputSchema": schema, **more}


def text(*lines: str, **more: Any) -> Json:
    """The result of a call that says something."""
    return {"content": [{"type": "text", "text": line} for line in lines], **more}


class SwiftLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer when nothing else is left to do, so that no test waits for one.

    While a thread works for the loop the clock stands still: on a busy machine the thread takes long, and whoever waits
    for it would run out of patience. A test that waits for what never comes runs into its own `PATIENCE_S`, at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0
        self._in_threads = 0

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        future = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._note_end)
        return future

    def _note_end(self, future: asyncio.Future[Any]) -> None:
        self._in_threads -= 1

    def _run_once(self) -> None:
        if not self._in_threads and not self._ready and not self._selector.select(0):
            due = [timer.when() for timer in self._scheduled if not timer.cancelled()]
            self._now = max(self._now, min(due, default=self._now))
        super()._run_once()


# Upstreams


class Asked:
    """One request that reached the upstream, and the means to answer it."""

    def __init__(self, link: FakeLink, message: Message) -> None:
        self.link = link
        self.message = message
        self.method = str(message.method)
        self.params: Json = jsonrpc.decode_value(message.params) if isinstance(message.params, Raw) else {}

    @property
    def meta(self) -> Json:
        return self.params.get("_meta", {})

    def reply(self, result: Any) -> None:
        """A value, or bytes that are sent as they stand."""
        raw = result if isinstance(result, bytes) else json.dumps(result).encode()
        self.link.answer(b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(self.message.id).encode(), raw))

    def fail(self, code: int, message: str, data: Any = None) -> None:
        error = {"code": code, "message": message} | ({} if data is None else {"data": data})
        self.link.answer(json.dumps({"jsonrpc": "2.0", "id": self.message.id, "error": error}).encode())

    def progress(self, progress: float, **more: Any) -> None:
        params = {"progressToken": self.meta["progressToken"], "progress": progress, **more}
        self.link.say("notifications/progress", params)

    async def ask(self, method: str, params: Json | None = None) -> Json:
        """Ask the client something in the course of this request; its whole reply."""
        return await self.link.ask(method, params)


Script = Callable[[Asked], None]


class FakeLink:
    """One connection to a fake: what `foretool.server.transports.upstream.base.Link` asks for."""

    is_loading = False

    def __init__(self, upstream: FakeUpstream, receiver: Receiver, era: Era, pid: int | None) -> None:
        self.upstream = upstream
        self.receiver = receiver
        self.era = era
        self.pid = pid
        self.open = True
        self._loop = asyncio.get_running_loop()
        self._replies: dict[Any, asyncio.Future[Json]] = {}
        self._last = 0

    # -- Link

    def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if not self.open:
            if isinstance(message.id, int) and message.method is not jsonrpc.UNSET:
                self.receiver.on_failed(message.id, "its input is closed", sent=False)
            return
        # As over a pipe, what is said is heard in a later turn of the loop, and as bytes.
        data = jsonrpc.without_line_breaks(jsonrpc.encode(message))
        self._loop.call_soon(self._heard, data)

    def abandon(self, request: int) -> bool:
        return False

    def stderr(self) -> tuple[str, ...]:
        return tuple(self.upstream.stderr)

    async def close(self) -> None:
        self.open = False
        if self in self.upstream.links:
            self.upstream.links.remove(self)

    # -- the upstream's side

    def _heard(self, data: bytes) -> None:
        if not self.open:
            return
        message = jsonrpc.decode(data)
        if message.method is jsonrpc.UNSET:
            reply = self._replies.pop(message.id, None)
            if reply is not None and not reply.done():
                reply.set_result(json.loads(data))
            return
        self.upstream.heard(Asked(self, message))

    def answer(self, line: bytes) -> None:
        """A reply; `upstream.saboteur` may put something else in its place."""
        self.upstream.answers += 1
        saboteur = self.upstream.saboteur
        if saboteur is None or not saboteur(self, self.upstream.answers, line):
            self.deliver(line)

    def deliver(self, line: bytes) -> None:
        """A line on its output, read as `links/stdio.py` reads it."""
        self._loop.call_soon(self._deliver, line)

    def _deliver(self, line: bytes) -> None:
        if not self.open:
            return
        try:
            message = jsonrpc.decode(line)
        except BadMessage:
            self.receiver.on_invalid_line(line)
            if (broken := find_broken_reply(line)) is not None:
                self.receiver.on_unreadable(broken.id)
        else:
            self.receiver.on_message(message, None)

    def noise(self) -> str:
        return self.upstream.noise

    def say(self, method: str, params: Json | None = None) -> None:
        self.deliver(json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}}).encode())

    async def ask(self, method: str, params: Json | None = None) -> Json:
        self._last += 1
        ident = f"{self.upstream.name}-{self._last}"
        reply = self._replies[ident] = self._loop.create_future()
        message = {"jsonrpc": "2.0", "id": ident, "method": method} | ({} if params is None else {"params": params})
        self.deliver(json.dumps(message).encode())
        async with asyncio.timeout(PATIENCE_S):
            return await reply

    def die(self, reason: str = "was ended by SIGKILL") -> None:
        if self.open:
            self.open = False
            self.upstream.links.remove(self)
            self.receiver.on_closed(reason)

    def expire(self, request: int) -> None:
        self.open = False
        self.upstream.links.remove(self)
        self.receiver.on_expired(request)


@dataclass(eq=False)
class FakeUpstream:
    """An upstream in memory; change its attributes at any time."""

    name: str
    tools: Sequence[str | Json] = ()
    eras: tuple[Era, ...] = LEGACY
    entry: Json = field(default_factory=dict)
    """Its further keys in `mcpServers`."""
    capabilities: Json = field(default_factory=lambda: {"tools": {"listChanged": True}})
    instructions: str = ""
    results: dict[str, Any] = field(default_factory=dict)
    """By tool; the others say their own name. Bytes are sent as they stand."""
    scripts: dict[str, Script] = field(default_factory=dict)
    """By tool, or by method: what to do instead of answering."""
    missing: str = ""
    """Why it cannot be started."""
    gate: asyncio.Event | None = None
    """Where set, a start waits for it."""
    pid: int | None = None
    noise: str = ""
    """What it writes to its stdout besides messages."""
    page: int = 0
    """Tools per page of its list; 0 for one page."""
    stderr: list[str] = field(default_factory=list)
    saboteur: Callable[[FakeLink, int, bytes], bool] | None = None
    """Sees each reply before it goes out, with its number from 1; True when it has dealt with it."""

    def __post_init__(self) -> None:
        self.links: list[FakeLink] = []
        self.starts = 0
        self.answers = 0
        self.requests: list[Asked] = []
        """Every request and notification that reached it."""
        self.calls: list[tuple[str, Any]] = []
        """Name and arguments of every `tools/call`."""
        self.listens: list[Asked] = []
        self._news = asyncio.Event()

    async def opened(self, receiver: Receiver, era: Era) -> FakeLink:
        self.starts += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.missing:
            raise LinkError(self.missing)
        link = FakeLink(self, receiver, era, self.pid)
        self.links.append(link)
        return link

    @property
    def link(self) -> FakeLink:
        """The latest connection."""
        return self.links[-1]

    def definitions(self) -> list[Any]:
        return [tool(each) if isinstance(each, str) else each for each in self.tools]

    def heard(self, asked: Asked) -> None:
        self.requests.append(asked)
        if asked.method == "tools/call":
            self.calls.append((asked.params["name"], asked.params.get("arguments")))
        script = self.scripts.get(str(asked.params.get("name"))) if asked.method == "tools/call" else None
        script = script or self.scripts.get(asked.method)
        if script is not None:
            script(asked)
        elif asked.message.id is not jsonrpc.UNSET:
            self._answer(asked)
        self._news.set()

    def _answer(self, asked: Asked) -> None:
        modern = versions.META_VERSION in asked.meta
        handlers = {"initialize": self._initialize, "tools/list": self._list, "tools/call": self._call}
        if asked.method == "server/discover" and "modern" in self.eras:
            self._discover(asked)
        elif asked.method == "initialize" and "legacy" not in self.eras:
            asked.fail(jsonrpc.METHOD_NOT_FOUND, "Method not found")
        elif asked.method == "subscriptions/listen" and modern:
            self.listens.append(asked)
            meta = {versions.META_SUBSCRIPTION: asked.message.id}
            accepted = {"_meta": meta, "notifications": asked.params["notifications"]}
            asked.link.say("notifications/subscriptions/acknowledged", accepted)
        elif asked.method in handlers:
            handlers[asked.method](asked)
        elif asked.method in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
            asked.reply({})
        else:
            asked.fail(jsonrpc.METHOD_NOT_FOUND, "Method not found")

    def _initialize(self, asked: Asked) -> None:
        greeting = {
            "protocolVersion": asked.params["protocolVersion"],
            "capabilities": self.capabilities,
            "serverInfo": {"name": self.name, "version": "1"},
        }
        asked.reply(greeting | ({"instructions": self.instructions} if self.instructions else {}))

    def _discover(self, asked: Asked) -> None:
        info = {versions.META_SERVER_INFO: {"name": self.name, "version": "1"}}
        greeting: Json = {
            "resultType": "complete",
            "supportedVersions": [versions.LATEST_MODERN],
            "capabilities": self.capabilities,
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": info,
        }
        asked.reply(greeting | ({"instructions": self.instructions} if self.instructions else {}))

    def _list(self, asked: Asked) -> None:
        start = int(asked.params.get("cursor", 0))
        tools = self.definitions()
        end = start + self.page if self.page else len(tools)
        result: Json = {"tools": tools[start:end]}
        if end < len(tools):
            result["nextCursor"] = str(end)
        asked.reply(result)

    def _call(self, asked: Asked) -> None:
        name = asked.params["name"]
        known = {each if isinstance(each, str) else each.get("name") for each in self.tools}
        if name in known:
            asked.reply(self.results.get(name, text(name)))
        else:
            asked.fail(jsonrpc.INVALID_PARAMS, f"Unknown tool: {name}")

    # -- what a test makes it do

    def change(self, *tools: str | Json) -> None:
        """List other tools from now on, and say so."""
        self.tools = tools
        for link in self.links:
            link.say("notifications/tools/list_changed")

    def die(self, reason: str = "was ended by SIGKILL") -> None:
        for link in list(self.links):
            link.die(reason)

    def hold(self, name: str) -> None:
        """Do not answer calls of this tool (or requests of this method); see `asked`."""
        self.scripts[name] = lambda asked: None

    async def asked(self, method: str, count: int = 1) -> Asked:
        """The `count`-th request or notification of this method, as soon as it is there."""
        return await self._found(lambda: [each for each in self.requests if each.method == method], count)

    async def called(self, name: str, count: int = 1) -> Asked:
        """The `count`-th call of this tool, as soon as it is there."""

        def calls() -> list[Asked]:
            return [each for each in self.requests if each.method == "tools/call" and each.params["name"] == name]

        return await self._found(calls, count)

    async def _found(self, look: Callable[[], list[Asked]], count: int) -> Asked:
        async with asyncio.timeout(PATIENCE_S):
            while len(found := look()) < count:
                self._news.clear()
                await self._news.wait()
        return found[count - 1]

    def count(self, method: str) -> int:
        return sum(each.method == method for each in self.requests)


# The store


class FailingConnection(sqlite3.Connection):
    """SQLite whose writes fail while `refuse` is set."""

    refuse: int = 0
    """An SQLite result code, or 0."""

    def __del__(self) -> None:
        # Tests let go of their databases in memory; Python 3.13 warns of those not closed.
        self.close()

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        self._check(sql)
        return super().execute(sql, *parameters)

    def executemany(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        self._check(sql)
        return super().executemany(sql, *parameters)

    def _check(self, sql: str) -> None:
        if self.refuse and sql.lstrip().split(None, 1)[0].upper() in ("INSERT", "UPDATE", "DELETE", "BEGIN"):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = self.refuse
            raise error


@cache
def _empty_tables() -> bytes:
    """The tables of a new file, whose making takes seven times as long as a copy."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        return connection.serialize()


def failing_store() -> tuple[Store, FailingConnection]:
    """A store in memory, and the connection below it that can be told to fail."""
    connection = sqlite3.connect(":memory:", isolation_level=None, factory=FailingConnection, check_same_thread=False)
    connection.deserialize(_empty_tables())
    return Store(SqliteDatabase(connection, ":memory:", 0)), connection


# Clients


class Failed(Exception):
    """The proxy answered a request with an error."""

    def __init__(self, error: Json) -> None:
        super().__init__(error.get("message"))
        self.code = error.get("code")
        self.message = str(error.get("message"))
        self.data = error.get("data")


class FakeClient(StdioServer):
    """A client of the real stdio server, without the pipes: what it writes is fed in, what comes out is kept."""

    def __init__(
        self, app: App, profile: str = "", transport: str = "stdio", principal: str = "", folder: str = ""
    ) -> None:
        super().__init__(app.router, profile, 64 * 1024 * 1024)
        self._front = app.router.open("legacy", transport, self, profile, principal, folder)
        self.lines: list[bytes] = []
        """Everything the proxy sent, in order."""
        self.messages: list[Json] = []
        self.questions: list[Json] = []
        """Requests of the proxy."""
        self.notices: list[tuple[str, Json]] = []
        """Notifications, method and params."""
        self.answers: dict[str, Any] = {}
        """By method: the result to answer questions with, or what makes one from the question's params."""
        self.envelope: Json | None = None
        """Goes into the `_meta` of each request, in the modern era."""
        self._last = 100
        self._replies: dict[Any, asyncio.Future[Json]] = {}
        self._raw: dict[Any, bytes] = {}
        self._news = asyncio.Event()

    # -- Channel: what the proxy sends

    def send(self, data: bytes) -> None:
        line = jsonrpc.without_line_breaks(data)
        self.lines.append(line)
        message = json.loads(line)
        self.messages.append(message)
        if "method" not in message:
            reply = self._replies.pop(message["id"], None)
            self._raw[message["id"]] = line
            if reply is not None and not reply.done():
                reply.set_result(message)
        elif "id" in message:
            self.questions.append(message)
            self._consider(message)
        else:
            self.notices.append((message["method"], message.get("params", {})))
        self._news.set()

    def _consider(self, question: Json) -> None:
        answer = self.answers.get(question["method"])
        if answer is not None:
            result = answer(question.get("params", {})) if callable(answer) else answer
            asyncio.get_running_loop().call_soon(self.respond, question, result)

    # -- what the client says

    def respond(self, question: Json, result: Any) -> None:
        """Answer a question of the proxy."""
        self.write({"jsonrpc": "2.0", "id": question["id"], "result": result})

    def write(self, message: Any) -> None:
        self.feed(json.dumps(message).encode() + b"\n")

    def post(self, method: str, params: Any = None, id: Any = None, meta: Json | None = None) -> Any:
        """Send a request; returns its id."""
        if id is None:
            self._last += 1
            id = self._last
        both = {**(self.envelope or {}), **(meta or {})}
        members = {**(params or {}), **({"_meta": both} if both else {})} if not isinstance(params, list) else params
        self._replies[id] = asyncio.get_running_loop().create_future()
        message: Json = {"jsonrpc": "2.0", "id": id, "method": method}
        self.write(message | ({"params": members} if members or params is not None else {}))
        return id

    async def reply(self, id: Any, patience: float = PATIENCE_S) -> Json:
        """The whole reply to a posted request."""
        if id in self._raw:
            return json.loads(self._raw[id])
        async with asyncio.timeout(patience):
            return await asyncio.shield(self._replies[id])

    async def result(self, id: Any) -> Any:
        """Its result. Raises `Failed`."""
        reply = await self.reply(id)
        if "error" in reply:
            raise Failed(reply["error"])
        return reply["result"]

    def raw(self, id: Any) -> bytes:
        """The bytes of a reply that has come."""
        return self._raw[id]

    async def ask(self, method: str, params: Json | None = None, **options: Any) -> Any:
        return await self.result(self.post(method, params, **options))

    def notify(self, method: str, params: Json | None = None) -> None:
        self.write({"jsonrpc": "2.0", "method": method} | ({"params": params} if params is not None else {}))

    async def initialize(
        self, name: str = "test", version: str = "1", capabilities: Json | None = None, protocol_version: str = ""
    ) -> Json:
        params = {
            "protocolVersion": protocol_version or versions.LATEST_LEGACY,
            "capabilities": capabilities or {},
            "clientInfo": {"name": name, "version": version},
        }
        result: Json = await self.ask("initialize", params)
        self.notify("notifications/initialized")
        return result

    def modern(
        self, name: str = "test", version: str = "1", capabilities: Json | None = None, **meta: Any
    ) -> FakeClient:
        """From now on its requests are of the modern era."""
        self.envelope = {
            versions.META_VERSION: versions.LATEST_MODERN,
            versions.META_CLIENT_INFO: {"name": name, "version": version},
            versions.META_CAPABILITIES: capabilities or {},
            **meta,
        }
        return self

    async def list_tools(self) -> list[str]:
        """The names in its list, in their order."""
        return [each["name"] for each in (await self.ask("tools/list"))["tools"]]

    async def call_tool(self, name: str, arguments: Any = None, **options: Any) -> Json:
        params = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
        result: Json = await self.ask("tools/call", params, **options)
        return result

    async def discover(self, task: str = "", **arguments: Any) -> Json:
        """The structured answer of `discover_tools`."""
        asked = {"structured": True, **arguments} | ({"task": task} if task else {})
        result = await self.call_tool("discover_tools", asked)
        structured: Json = result["structuredContent"]
        return structured

    async def heard(self, method: str, count: int = 1) -> Json:
        """Params of the `count`-th notification of this method, as soon as it is there."""
        await self.until(lambda: self.count(method) >= count)
        return [params for name, params in self.notices if name == method][count - 1]

    async def asked(self, method: str, count: int = 1) -> Json:
        """The `count`-th question with this method, as soon as it is there."""

        def found() -> list[Json]:
            return [each for each in self.questions if each["method"] == method]

        await self.until(lambda: len(found()) >= count)
        return found()[count - 1]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds; look at every message, and now and then for what no message tells."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._news.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 0.01)

    def count(self, method: str) -> int:
        return sum(name == method for name, _ in self.notices)


LIST_CHANGED = "notifications/tools/list_changed"


# The proxy between them


class FakeApp(App):
    """The real app; only its links lead to fakes, and no child process counts tokens."""

    fakes: dict[str, FakeUpstream]
    written: Json
    """What its config file says."""

    def _link_opener(self, server: Server, bearer: Any) -> OpenLink:
        return self.fakes[server.name].opened

    async def _count_tokens(self) -> None:
        estimates = {tool.schema_hash: self.catalog.tokens(tool.id) for tool in self.catalog.find_uncounted()}
        self.catalog.set_token_counts(estimates)


class Stage(NamedTuple):
    """A running proxy and what stands around it."""

    client: FakeClient
    store: Store
    app: FakeApp

    def connect(self, profile: str = "", transport: str = "stdio", folder: str = "") -> FakeClient:
        """One more client."""
        return FakeClient(self.app, profile, transport, folder=folder)

    def misses(self) -> list[Miss]:
        """The oldest first."""
        return self.store.calls.misses(0.0)[::-1]

    def calls(self) -> list[Call]:
        """The oldest first."""
        return self.store.calls.recent(-1)[::-1]


def config_of(*upstreams: FakeUpstream, environ: Mapping[str, str] | None = None, **settings: Any) -> Config:
    """The config with these upstreams; `settings` are keys of the `foretool` block, or limits."""
    written = write_entries(*upstreams, **settings)
    return loader.parse(json.dumps(written).encode(), Path("no-such-folder/mcp.json"), environ or {})


def bare_server(name: str) -> Server:
    """A server of a config that says nothing but its command."""
    return config_of(FakeUpstream(name)).servers[name]


def write_entries(*upstreams: FakeUpstream, **settings: Any) -> Json:
    """What the file of `config_of` says."""
    servers = {upstream.name: {"command": "fake", **upstream.entry} for upstream in upstreams}
    return {
        "mcpServers": servers,
        "foretool": write_settings(**{"storage": "unused.sqlite3", "skills": [], **settings}),
    }


@asynccontextmanager
async def proxy_over(
    *upstreams: FakeUpstream,
    store: Store | None = None,
    profile: str = "",
    environ: Mapping[str, str] | None = None,
    parts: Parts = UNWATCHED,
    **settings: Any,
) -> AsyncIterator[Stage]:
    """The real proxy over these upstreams, with one client; `settings` are keys of the `foretool` block."""
    kept = store or open_store(":memory:")
    app = FakeApp.__new__(FakeApp)
    app.fakes = {upstream.name: upstream for upstream in upstreams}
    app.written = write_entries(*upstreams, **settings)
    FakeApp.__init__(app, config_of(*upstreams, environ=environ, **settings), kept, parts=parts)
    try:
        async with app.running():
            client = FakeClient(app, profile)
            yield Stage(client, kept, app)
            if client._front is not None:
                client._front.close()
    finally:
        if store is None:
            kept.close()


def live_config(**settings: Any) -> LiveConfig:
    """The config in force of a proxy without upstreams."""
    return LiveConfig(config_of(**settings))


def set_settings(stage: Stage, **settings: Any) -> None:
    """Change settings of a running proxy, as a reload does to those that are read when they are used."""
    live = stage.app.live
    live.now = changed(live.now, settings=changed(live.settings, **settings))


def search_over(catalog: Catalog) -> Search:
    """A search over a catalog whose tools nobody has used."""
    return Search(catalog, lambda profile: [], time.time)


async def end_of_searches(search: Search) -> None:
    """Wait until every search that has begun has called back."""
    await asyncio.gather(*search._tasks)


def changed(record: Any, **fields: Any) -> Any:
    """A record with some fields set."""
    return msgspec.structs.replace(record, **fields)


def names_of(listed: Json) -> list[str]:
    return [each["name"] for each in listed["tools"]]


def said(result: Json) -> str:
    """The text of a result."""
    return "\n".join(each["text"] for each in result["content"] if each["type"] == "text")
