"""The real edges and links in memory, with hostile peers at them, and what must hold after whatever those wrote.

Every stage has a peer that misbehaves and another that does not. Afterwards the second is served as if nothing had
been; every request was answered once, every call that reached an upstream is on record once, nothing is left waiting,
and nothing was logged that says a mistake of ours.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import httpx2
from fakes import (
    BOTH,
    LEGACY,
    MODERN,
    PATIENCE_S,
    Asked,
    FakeClient,
    FakeLink,
    FakeUpstream,
    Stage,
    SwiftLoop,
    proxy_over,
)
from hostile import DEPTH, HttpRequest
from http_callers import http_rules

from foretool.server.app import App
from foretool.server.protocol import versions
from foretool.server.transports.allowance import Allowance
from foretool.server.transports.client.http import HttpServer
from foretool.server.transports.client.stdio import StdioServer
from foretool.server.transports.pipes import Turn
from foretool.server.transports.upstream import http as links_http
from foretool.server.transports.upstream import http_client
from foretool.server.transports.upstream import sse as links_sse
from foretool.server.transports.upstream.base import Link, Receiver
from foretool.server.transports.upstream.stdio import StdioLink
from foretool.server.upstreams.lines import BACKOFF_S
from foretool.storage.records import Era


@contextmanager
def long_numbers() -> Iterator[None]:
    """Some hostile numbers have more digits than Python reads by default; the fakes and the checks here read them."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)


Json = dict[str, Any]

LIMIT = 1024 * 1024
"""Bytes of one message."""
QUIET_S = 30.0
"""Of the loop's own time, which jumps: everything that was put off has happened by then."""
SETTLED_S = 3.0
"""Of the same time: what a client missed that has gone is written with the next second, also behind a search that a
thread was busy with."""


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """On a clock that jumps; fails for whatever is logged as a mistake, and for tasks that are left."""
    with complaints() as heard, asyncio.Runner(loop_factory=SwiftLoop) as runner:
        runner.run(_watched(scenario))
    assert not heard, heard[0]


async def _watched(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    before = asyncio.all_tasks()
    trouble: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: trouble.append(repr(context)))
    await scenario()
    for _ in range(3):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert trouble == [], trouble[0][:3000]


class _Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.ERROR or "mistake" in record.getMessage():
            self.heard.append(logging.Formatter().format(record)[-3000:])


@contextmanager
def complaints() -> Iterator[list[str]]:
    """What is logged of mistakes of ours meanwhile."""
    handler, logger = _Complaints(), logging.getLogger()
    logger.addHandler(handler)
    try:
        yield handler.heard
    finally:
        logger.removeHandler(handler)


# What a line asks for, read by Python's own parser


def asks(line: bytes) -> tuple[str, Any]:
    """`request` and its id, `nothing` (a notification, a reply), `bad`, or `unclear` where readers may differ."""
    if line.count(b"[") + line.count(b"{") > DEPTH:
        return "unclear", None
    try:
        message = json.loads(line.decode(), parse_constant=_refuse)
    except ValueError:
        return "bad", None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return "bad", None
    method, ident = message.get("method", ...), message.get("id", ...)
    usable = isinstance(ident, int | str) and not isinstance(ident, bool)
    if isinstance(method, str):
        return ("nothing", None) if ident is ... else ("request", ident) if usable else ("bad", None)
    if method is ... and ("result" in message or "error" in message) and (usable or ident in (None, ...)):
        return "nothing", None
    return "bad", None


def _refuse(name: str) -> None:
    raise ValueError(name)


class RoughClient(StdioServer):
    """The real stdio server without pipes; keeps the lines that come out as they are."""

    def __init__(self, app: App) -> None:
        super().__init__(app.router, "", LIMIT, app.turn)
        self._front = self.client = app.router.open("legacy", "stdio", self)
        self.lines: list[bytes] = []

    def send(self, data: bytes) -> None:
        assert b"\n" not in data
        self.lines.append(data)

    def replies(self) -> Counter[str]:
        """How often each id was replied to."""
        messages = [json.loads(line) for line in self.lines]
        return Counter(repr(message["id"]) for message in messages if "method" not in message)


def echo(name: str, **more: Any) -> FakeUpstream:
    upstream = FakeUpstream(name, ["echo", "hold"], **more)
    upstream.capabilities = {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True},
        "prompts": {},
        "logging": {},
    }
    upstream.hold("hold")
    for method, key in (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")):
        upstream.scripts[method] = lambda asked, key=key: asked.reply({key: []})
    upstream.scripts["prompts/list"] = lambda asked: asked.reply({"prompts": []})
    return upstream


async def still_served(stage: Stage) -> None:
    """Another client, and the upstream that does not misbehave."""
    client = stage.connect()
    await client.initialize()
    assert await client.ask("ping") == {}
    assert {"discover_tools", "call_tool", "call_tool_write"} <= set(await client.list_tools())
    said = await client.call_tool("good__echo", {"n": 1})
    assert said["content"][0]["text"] == "echo"
    assert (await client.discover("echo"))["matches"]
    assert client._front is not None
    client._front.close()


def recorded(stage: Stage, *upstreams: FakeUpstream, resends: bool = False) -> None:
    """Every call that reached an upstream is on record, once, however often a modern upstream has it sent again.

    `resends`: whether an upstream may ask for that; elsewhere a client alone may have written what looks like it.
    """
    called = Counter(f"{upstream.name}__{name}" for upstream in upstreams for name, _ in upstream.calls)
    again = sum(resends and is_sent_again(asked) for upstream in upstreams for asked in upstream.requests)
    kept = Counter(call.tool for call in stage.calls() if call.sent)
    # A name too long or too odd to be exposed has another one here.
    assert sum(kept.values()) == sum(called.values()) - again, (kept, called, again)


def is_sent_again(asked: Asked) -> bool:
    """Return whether this is a call that was answered with `input_required` before."""
    return asked.method == "tools/call" and not {"inputResponses", "requestState"}.isdisjoint(asked.params)


def nothing_waits(stage: Stage) -> None:
    for client in stage.app.clients:
        assert not client.exchanges, client.exchanges
    for upstream in stage.app.upstreams:
        assert upstream.in_flight == 0, upstream.name
    backlog = stage.app.recorder.backlog
    counts = (backlog.waiting, backlog.dropped, backlog.failures)
    assert counts == (0, 0, 0), (counts, backlog.refusal)


# A client on stdio


def client_over_stdio(chunks: Sequence[bytes]) -> None:
    """`chunks` are lines without their ends."""

    async def scenario() -> None:
        bad, good = echo("bad"), echo("good")
        async with proxy_over(bad, good, record="full") as stage:
            rough = RoughClient(stage.app)
            for line in chunks:
                rough.feed(line[: len(line) // 2])
                rough.feed(line[len(line) // 2 :] + b"\n")
            await asyncio.sleep(QUIET_S)
            _answered(rough, chunks)
            await still_served(stage)
            rough.client.close()
            await asyncio.sleep(SETTLED_S)
            nothing_waits(stage)
            recorded(stage, bad, good)

    run(scenario)


def _answered(rough: RoughClient, lines: Sequence[bytes]) -> None:
    """Each request once, unless it was cancelled or waits for what never comes; each bad message once."""
    replies = rough.replies()
    asked = [asks(line) for line in lines if line.strip()]
    wanted = Counter(repr(ident) for kind, ident in asked if kind == "request")
    unclear = sum(kind == "unclear" for kind, _ in asked)
    bad = sum(kind == "bad" for kind, _ in asked)
    waiting = {repr(exchange.id) for exchange in rough.client.exchanges.values()}
    excused = waiting | _cancelled(lines)
    surplus = sum((replies - wanted).values())
    assert surplus <= bad + unclear, (replies - wanted, bad, unclear)
    if not unclear:
        short = {ident: count for ident, count in (wanted - replies).items() if ident not in excused}
        assert not short, short
        assert surplus >= bad or excused, (replies - wanted, bad)


def _cancelled(lines: Sequence[bytes]) -> set[str]:
    found = set()
    for line in lines:
        if b"notifications/cancelled" in line and asks(line)[0] == "nothing":
            params = json.loads(line).get("params")
            found.add(repr(params.get("requestId")) if isinstance(params, dict) else "")
    return found


# A client over HTTP


class _Transport:
    def abort(self) -> None:
        pass


class _Connection:
    transport = _Transport()
    source = ""
    principal: str | None = None

    def recognise(self, principal: str) -> None:
        pass


class Asker:
    """One HTTP request to the server's application, without a network."""

    def __init__(self, verb: str, path: str, lines: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        extensions = {"foretool.connection": {"foretool.connection": _Connection()}}
        self.scope = {"type": "http", "method": verb, "path": path, "headers": list(lines), "extensions": extensions}
        self._parts = [body[: len(body) // 2], body[len(body) // 2 :]]
        self.gone = asyncio.Event()
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.is_over = False
        self.was_kept_waiting = False

    async def receive(self) -> Json:
        if self._parts:
            return {"type": "http.request", "body": self._parts.pop(0), "more_body": bool(self._parts)}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Json) -> None:
        assert not self.is_over
        if event["type"] == "http.response.start":
            assert not self.status
            self.status, self.headers = event["status"], dict(event["headers"])
            for name, value in event["headers"]:
                assert not re.search(rb"[\r\n\0]", name + value)
        else:
            assert self.status
            self.body += event["body"]
            self.is_over = not event["more_body"]

    async def ask(self, server: HttpServer, patience_s: float = 5.0) -> Asker:
        """Until it is answered; a client that is kept waiting goes away."""
        task = asyncio.create_task(server.app(self.scope, self.receive, self.send))
        await asyncio.wait([task], timeout=patience_s)
        self.was_kept_waiting = not task.done()
        self.gone.set()
        await asyncio.wait([task], timeout=PATIENCE_S)
        assert task.done()
        task.result()
        return self

    def messages(self) -> list[Json]:
        if self.headers.get(b"content-type") == b"text/event-stream":
            lines = [line[6:] for line in self.body.splitlines() if line.startswith(b"data: ") and len(line) > 6]
            return [json.loads(line) for line in lines]
        return [json.loads(self.body)] if self.body else []


BASE = [(b"host", b"localhost"), (b"accept", b"*/*"), (b"content-type", b"application/json")]
MODERN_META = {versions.META_VERSION: "2026-07-28", versions.META_CAPABILITIES: {}}


def posted(method: str, params: Json, **headers: str) -> Asker:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    more = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Asker("POST", "/mcp", [*BASE, *more], body)


async def greeted(server: HttpServer) -> str:
    """Opens a session; its id."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    answer = await posted("initialize", hello).ask(server)
    assert answer.status == 200, answer.body
    return answer.headers[b"mcp-session-id"].decode()


async def served_over_http(server: HttpServer) -> None:
    """A client of each era."""
    session = await greeted(server)
    legacy = {"mcp_session_id": session}
    modern = {"mcp_protocol_version": "2026-07-28"}
    call: Json = {"name": "good__echo", "arguments": {}}
    for asked in (
        posted("tools/call", call, **legacy),
        posted("tools/call", call | {"_meta": MODERN_META}, **modern, mcp_method="tools/call", mcp_name="good__echo"),
    ):
        (message,) = (await asked.ask(server)).messages()
        assert message["result"]["content"][0]["text"] == "echo", message
    ended = await Asker("DELETE", "/mcp", [*BASE, (b"mcp-session-id", session.encode())], b"").ask(server)
    assert ended.status == 200


STATUSES = {200, 202, 400, 403, 404, 405, 406, 408, 413, 415, 421, 503}


def client_over_http(requests: Sequence[HttpRequest]) -> None:
    """Each as verb, path, header lines, body; in a header `SESSION` stands for a living session."""

    async def scenario() -> None:
        bad, good = echo("bad"), echo("good")
        async with proxy_over(bad, good, record="full") as stage:
            rules = http_rules(profiles=list(stage.app.config.profiles), max_body=LIMIT)
            server = HttpServer(stage.app.router, rules, input_schema=stage.app.answering.annotated_schema)
            living: list[bytes] = [(await greeted(server)).encode()]
            for verb, path, lines, body in requests:
                at = living[-1]
                told = [(name, at if value == b"SESSION" else value) for name, value in lines]
                asked = await Asker(verb, path, told, body).ask(server)
                assert asked.status in STATUSES or asked.was_kept_waiting, (asked.status, asked.body)
                assert asked.is_over or asked.was_kept_waiting
                asked.messages()
                if at.decode() not in server.legacy.sessions:
                    living.append((await greeted(server)).encode())
            await served_over_http(server)
            await still_served(stage)
            server.close_clients()
            await asyncio.sleep(SETTLED_S)
            nothing_waits(stage)
            recorded(stage, bad, good)
            assert len(server.legacy.sessions) == 0
            assert not server.modern.open

    run(scenario)


# An upstream on stdio


class _Child:
    """Of a child process what the link looks at before it ends."""

    pid = 1 << 22

    def poll(self) -> int | None:
        return None


class _Watcher:
    def forget(self, group: int) -> None:
        pass


class _Output:
    """A pipe in memory: what was written while its reader rests is read afterwards."""

    def __init__(self, feed: Callable[[bytes], None]) -> None:
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        self._unread = bytearray()
        self._is_resting = False

    def write(self, data: bytes) -> None:
        self._unread += data
        if not self._is_resting:
            self._read()

    def rest(self, seconds: float, then: Callable[[], None] | None = None) -> None:
        self._is_resting = True
        self._loop.call_later(seconds, self._go_on, then)

    def _go_on(self, then: Callable[[], None] | None) -> None:
        self._is_resting = False
        if then is not None:
            then()
        if not self._is_resting:
            self._read()

    def _read(self) -> None:
        data, self._unread = bytes(self._unread), bytearray()
        if data:
            self._feed(data)


class PipedLink(FakeLink):
    """A fake whose output is read by the real stdio link."""

    def __init__(self, upstream: FakeUpstream, receiver: Receiver, era: Era) -> None:
        super().__init__(upstream, receiver, era, None)
        allowance = Allowance(self._loop.time)
        self.real = StdioLink(_Child(), "mark", receiver, _Watcher(), LIMIT, Turn(), allowance)  # type: ignore[arg-type]
        self._output = _Output(self._wrote)
        self.real._outputs.append(self._output)  # type: ignore[arg-type]

    def deliver(self, line: bytes) -> None:
        self.write(line + b"\n")

    def write(self, data: bytes) -> None:
        self._loop.call_soon(self._output.write, data)

    def _wrote(self, data: bytes) -> None:
        if self.open:
            self.real._on_output(data)


class PipedUpstream(FakeUpstream):
    """See `PipedLink`."""

    async def opened(self, receiver: Receiver, era: Era) -> FakeLink:
        self.starts += 1
        link = PipedLink(self, receiver, era)
        self.links.append(link)
        return link

    def heard(self, asked: Asked) -> None:
        super().heard(asked)


MANNERS = ("before", "after", "instead", "twice", "result", "error", "list")
"""What becomes of a hostile line: said before or after a proper answer, in its place, with the answer twice, as its
result or error, or as the next list of tools."""

Said = tuple[str, str, bytes]


ERAS: tuple[tuple[Era, tuple[Era, ...]], ...] = (
    ("legacy", LEGACY),
    ("modern", MODERN),
    ("modern", LEGACY),
    ("legacy", MODERN),
)
"""Of the client, and of the upstream."""

ASKED: dict[str, Json] = {
    "tools/call": {"name": "bad__echo", "arguments": {}},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "file:///a"},
    "prompts/list": {},
    "prompts/get": {"name": "bad__p"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "bad__p"}, "argument": {"name": "a", "value": ""}},
}
METHODS = ("tools/call",) * 6 + tuple(ASKED)


def upstream_over_stdio(said: Sequence[Said]) -> None:
    """The n-th of `said` (method, manner, line) is what the upstream does when it is asked for the n-th time."""

    async def scenario() -> None:
        era, eras = ERAS[len(said) % len(ERAS)]
        bad = PipedUpstream("bad", ["echo", "hold"], eras=eras)
        good = echo("good")
        good.scripts["resources/read"] = lambda asked: asked.fail(-32002, "not here")
        bad.capabilities = good.capabilities | {"completions": {}}
        hostile = iter(said)
        lists: list[bytes] = []
        for method in ASKED:
            key = "echo" if method == "tools/call" else method
            # What the proxy asks for itself has no progress token.
            bad.scripts[key] = lambda asked: (
                _act(asked, lists, *next(hostile, ("", "", b""))[1:])
                if asked.meta.get("progressToken")
                else asked.fail(-32601, "no")
            )
        bad.scripts["tools/list"] = lambda asked: _list(asked, bad, lists)
        async with proxy_over(bad, good, record="full") as stage:
            client = await _answering(stage, era)
            posts = []
            for method, _, _ in said:
                posts.append(client.post(method, {**ASKED[method], "_meta": {"progressToken": 1}}))
                await asyncio.sleep(0.01)
            await asyncio.sleep(QUIET_S)
            counts = Counter(message["id"] for message in client.messages if "method" not in message)
            assert max(counts.values()) == 1, counts
            instead = sum(manner == "instead" for _, manner, _ in said)
            assert sum(post not in counts for post in posts) <= instead
            await _recovers(stage, bad, client)
            await still_served(stage)
            client._front.close()  # type: ignore[union-attr]
            await asyncio.sleep(SETTLED_S)
            stage.app.answering.server_requests.expire()
            nothing_waits(stage)
            recorded(stage, bad, good, resends=True)

    run(scenario)


async def _all_answered(client: FakeClient, posts: Sequence[Any]) -> Counter[Any]:
    """How often each request was answered, once all were; a stream that broke is resumed a few times before."""
    counts: Counter[Any] = Counter()
    async with asyncio.timeout(1000):
        while not all(post in counts for post in posts):
            await asyncio.sleep(QUIET_S)
            counts = Counter(message["id"] for message in client.messages if "method" not in message)
    return counts


async def _answering(stage: Stage, era: Era = "legacy") -> FakeClient:
    """A client that answers every question."""
    client = stage.client
    client.answers = {method: {} for method in ("sampling/createMessage", "elicitation/create", "roots/list")}
    capabilities: Json = {"sampling": {}, "elicitation": {}, "roots": {}}
    if era == "legacy":
        await client.initialize(capabilities=capabilities)
    else:
        client.modern(capabilities=capabilities)
    assert "bad__echo" in (await client.list_tools()) or (await client.discover("echo"))["matches"]
    return client


async def _recovers(stage: Stage, bad: FakeUpstream, client: FakeClient) -> None:
    """What was hostile answers properly again, and is served."""
    bad.scripts = {"hold": lambda asked: None}
    for link in bad.links:
        if isinstance(link, PipedLink):
            link.write(b"\n")
    bad.change("echo", "hold")
    await asyncio.sleep(QUIET_S)
    said = await client.call_tool("bad__echo", {"n": 2})
    assert said["content"][0]["text"] == "echo", said


def _act(asked: Asked, lists: list[bytes], manner: str, line: bytes) -> None:
    link, ident = asked.link, json.dumps(asked.message.id).encode()
    proper = b'{"jsonrpc":"2.0","id":%b,"result":{"content":[]}}' % ident
    in_place = {
        "instead": [line],
        "before": [line, proper],
        "after": [proper, line],
        "twice": [proper, line, proper],
        "result": [b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (ident, line), proper],
        "error": [b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (ident, line), proper],
    }
    if manner == "list":
        lists.append(line)
        link.say("notifications/tools/list_changed")
    for each in in_place.get(manner, [proper]):
        link.deliver(each)


def _list(asked: Asked, upstream: FakeUpstream, lists: list[bytes]) -> None:
    if lists:
        asked.link.deliver(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (asked.message.id, lists[-1]))
        # A list that cannot be read is no answer at all.
        asked.link.deliver(b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[]}}' % asked.message.id)
    else:
        asked.reply({"tools": upstream.definitions()})


# An upstream that greets

Greeting = tuple[bytes, bytes, bytes]


def upstream_that_greets(greetings: Sequence[Greeting]) -> None:
    """Each: what it answers to `initialize`, `server/discover` and `tools/list` after one more start."""

    async def scenario() -> None:
        bad = PipedUpstream(
            "bad", ["echo", "hold"], eras=(LEGACY, MODERN, BOTH)[len(greetings) % 3], entry={"trust": "auto"}
        )
        good = echo("good")
        at = -1

        def greet(asked: Asked, which: int) -> None:
            nonlocal at
            if which != 2:
                at += 1
            if 0 <= at < len(greetings):
                _act(asked, [], "result", greetings[at][which])
            else:
                bad._answer(asked)

        for which, method in enumerate(("initialize", "server/discover", "tools/list")):
            bad.scripts[method] = lambda asked, which=which: greet(asked, which)
        async with proxy_over(bad, good, record="full", cold_list_s=0.1) as stage:
            client = await _answering(stage, "modern" if len(greetings) % 2 else "legacy")
            posts = []
            for _ in greetings:
                posts.append(client.post("tools/call", {"name": "bad__echo", "arguments": {}}))
                await asyncio.sleep(1)
                assert (await client.call_tool("good__echo", {}))["content"]
                bad_link = bad.links[-1] if bad.links else None
                if bad_link is not None:
                    bad_link.die()
            await asyncio.sleep(200)
            counts = Counter(message["id"] for message in client.messages if "method" not in message)
            assert max(counts.values()) == 1, counts
            assert all(post in counts for post in posts)
            bad.scripts = {}
            for link in list(bad.links):
                link.die()
            await asyncio.sleep(2 * BACKOFF_S[-1])
            said = await client.call_tool("bad__echo", {"n": 2})
            assert said["content"][0]["text"] == "echo", said
            await still_served(stage)
            client._front.close()  # type: ignore[union-attr]
            await asyncio.sleep(SETTLED_S)
            nothing_waits(stage)
            recorded(stage, bad, good, resends=True)

    run(scenario)


# An upstream over HTTP

Answer = tuple[int, str, bytes]


@contextmanager
def answered_by(handler: Callable[[httpx2.Request], Coroutine[Any, Any, httpx2.Response]]) -> Iterator[None]:
    """HTTP clients of links reach the handler instead of the network."""

    def new_client(url: str, headers: Mapping[str, str]) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(handler), headers=dict(headers))

    real, http_client.new_client = http_client.new_client, new_client
    try:
        yield
    finally:
        http_client.new_client = real


class Remote(FakeUpstream):
    """A fake behind the real links over HTTP: `opens` makes the link."""

    opens: Callable[[Receiver, Era], Coroutine[Any, Any, Link]]

    async def opened(self, receiver: Receiver, era: Era) -> Any:
        return await self.opens(receiver, era)


class HostileHttpServer:
    """A server of streamable HTTP whose every answer to a call is hostile in its turn."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = iter(answers)
        self.calls = 0
        self.hostile = True

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if request.method != "POST":
            return httpx2.Response(405, content=_pieces(b""))
        message = json.loads(await request.aread())
        if "id" not in message or "method" not in message:
            return httpx2.Response(202, content=_pieces(b""))
        if message["method"] == "tools/call":
            self.calls += 1
            answer = next(self.answers, None) if self.hostile else None
            if answer is not None:
                status, kind, body = answer
                headers = {"content-type": kind} if kind else {}
                return httpx2.Response(
                    status, headers=headers, content=_pieces(body.replace(b"CALL", b"%d" % message["id"]))
                )
        results: dict[str, Any] = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {}},
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "echo"}]},
        }
        body = {"jsonrpc": "2.0", "id": message["id"], "result": results.get(message["method"], {})}
        headers = {"content-type": "application/json", "mcp-session-id": "s"}
        return httpx2.Response(200, headers=headers, content=_pieces(json.dumps(body).encode()))


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(body), max(1, len(body) // 3)):
        yield body[at : at + max(1, len(body) // 3)]


def upstream_over_http(answers: Sequence[Answer]) -> None:
    """Each is status, content type and body; `CALL` in it stands for the id of the call it answers."""

    async def scenario() -> None:
        server = HostileHttpServer(answers)
        bad, good = Remote("bad"), echo("good")

        async def open_link(receiver: Receiver, era: Era) -> Link:
            return links_http.HttpLink("http://bad/mcp", {}, "legacy", receiver, LIMIT)

        bad.opens = open_link
        bad.eras = LEGACY
        await _called_often(server, bad, good, len(answers))

    run(scenario)


async def _called_often(server: HostileHttpServer | SseServer, bad: Remote, good: FakeUpstream, times: int) -> None:
    """Call the tool of an upstream that misbehaves so often; each call has one answer and one record, and once it
    behaves it is served again, as the other one is all along."""
    with answered_by(server):
        async with proxy_over(bad, good, record="full") as stage:
            client = await _answering(stage)
            posts = []
            for _ in range(times):
                posts.append(client.post("tools/call", {"name": "bad__echo", "arguments": {}}))
                await asyncio.sleep(0.01)
            counts = await _all_answered(client, posts)
            assert max(counts.values()) == 1, counts
            server.hostile = False
            said = await client.call_tool("bad__echo", {"n": 2})
            assert said["content"][0]["text"] == "echo", said
            await still_served(stage)
            assert len([call for call in stage.calls() if call.upstream == "bad"]) == len(posts) + 1
            client._front.close()  # type: ignore[union-attr]
            await asyncio.sleep(SETTLED_S)
            nothing_waits(stage)


class SseServer:
    """A server of 2024-11-05: a stream, and a POST for each message, to which the stream answers."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self.chunks = iter(chunks)
        self.hostile = True
        self.out: asyncio.Queue[bytes] = asyncio.Queue()

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            self.out = asyncio.Queue()
            self.out.put_nowait(b"event: endpoint\ndata: /messages\n\n")
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=self._stream())
        message = json.loads(await request.aread())
        if "id" in message and "method" in message:
            self._answer(message)
        return httpx2.Response(202, content=_pieces(b""))

    async def _stream(self) -> AsyncIterator[bytes]:
        while True:
            yield await self.out.get()

    def _answer(self, message: Json) -> None:
        results: dict[str, Any] = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {}},
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "echo"}]},
        }
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": results.get(message["method"], {})}
        if message["method"] == "tools/call" and self.hostile:
            self.out.put_nowait(next(self.chunks, b"") + b"\n\n")
        self.out.put_nowait(b"data: " + json.dumps(reply).encode() + b"\n\n")


def upstream_over_sse(chunks: Sequence[bytes]) -> None:
    """What stands on the stream before the answer of the n-th call."""

    async def scenario() -> None:
        server = SseServer(chunks)
        bad, good = Remote("bad"), echo("good")
        bad.opens = lambda receiver, era: links_sse.open_sse("http://bad/sse", {}, receiver, LIMIT)
        await _called_often(server, bad, good, len(chunks))

    run(scenario)
