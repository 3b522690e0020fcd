"""Sends randomised requests of many tenants to several replicas, and looks in each answer for what is somebody else's.

    python -m bench.fleet.isolation [--requests 10000] [--replicas 3] [--seed 1] [--json]

Half of the tenants are tokens of the config, each with a profile and a server of its own. The other half are people of
an authorization server who share one server with a token for each person (`per_user`), in a profile of their own each,
and two of them in one profile. Each tenant has a word that stands in all that is theirs: descriptions and answers of
their tools, the tasks that they search for. The requests list, search, call, read on, open the page of misses and go on
with sessions at other replicas; and they try what is another tenant's: tool names, profiles, sessions, events, handles
and rests of results, and tokens that have expired or are for others. An answer counts as `leaked` if it has the word of
another tenant, as `seen` if a list names a tool of another tenant, and as `let_in` if a request that has to be refused
was not. `--replicas 1` runs over SQLite, more over a PostgreSQL of the trial's own.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import httpx2
import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from bench.fleet.database import DatabaseServer
from bench.fleet.replicas import Replica
from bench.metrics import quantile
from bench.options import add_foretool, add_json, make_parser
from bench.processes import installed, load_average, write_config
from bench.reports import Row, print_row
from foretool.server.config.tokens import digest

MACHINES: Final = 4
PEOPLE: Final = 4
TOGETHER: Final = 2
"""People who share the profile `team`; the others have one each."""
MODERN: Final = "2026-07-28"
META: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "trial", "version": "1"},
}
ACCEPT: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
RESOURCE: Final = "https://tools.example.com/mcp"
KEY: Final = ec.generate_private_key(ec.SECP256R1())
PATIENCE_S: Final = 60.0
TOOLS: Final = ("read", "write", "fetch", "remove")


@dataclass
class Tenant:
    """Somebody whose things nobody else may see."""

    name: str
    word: str
    """Stands in all that is theirs, and in no request of somebody else."""
    profile: str
    prefix: str
    """Of the names of their tools."""
    issuer: str = ""
    token: str = ""
    handles: list[str] = field(default_factory=list)
    rests: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/mcp/{self.profile}"

    @property
    def tools(self) -> list[str]:
        return [f"{self.prefix}__{self.name}_{each}" for each in TOOLS]

    def authorization(self, **claims: Any) -> dict[str, str]:
        """The header that shows who it is; `claims` change the token of a person."""
        return {"authorization": f"Bearer {self.token or self.person(**claims)}"}

    def person(self, **claims: Any) -> str:
        now = int(time.time())
        said = {"iss": self.issuer, "sub": self.name, "aud": RESOURCE, "iat": now // 60 * 60, "exp": now + 3600}
        return jwt.encode({**said, **claims}, KEY, "ES256", {"kid": "k", "typ": "at+jwt"})


class World:
    """Everything around the replicas: the servers of the tenants, and the authorization server of the people."""

    def __init__(self, draw: random.Random) -> None:
        def word() -> str:
            return "".join(draw.choice("bcdfghjklmnpqrstvwxz") for _ in range(14))

        machines = [Tenant(f"m{n}", word(), f"p{n}", f"s{n}") for n in range(MACHINES)]
        for each in machines:
            each.token = "t-" + "".join(draw.choice("abcdefghkmnp23456789") for _ in range(32))
        people = [Tenant(f"u{n}", word(), "team" if n < TOGETHER else f"q{n}", "people") for n in range(PEOPLE)]
        self.tenants = [*machines, *people]
        self.by_name = {each.name: each for each in self.tenants}
        self.passed_on = 0
        """How often a server got a token that was not made for it."""
        self.base = ""

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """The ASGI application of all servers."""
        body = b""
        while (event := await receive())["type"] == "http.request":
            body += event["body"]
            if not event.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        status, answer, more = self._answer(scope["method"], scope["path"], headers, body)
        data = b"" if answer is None else json.dumps(answer).encode()
        lines = {"content-type": "application/json", "content-length": str(len(data)), **more}
        pairs = [(name.encode(), value.encode()) for name, value in lines.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": data})

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, dict[str, str]]:
        if path == "/keys":
            public = json.loads(ECAlgorithm.to_jwk(KEY.public_key()))
            return 200, {"keys": [{**public, "kid": "k", "use": "sig"}]}, {}
        if path == "/token":
            subject = parse_qs(body.decode())["subject_token"][0]
            who = str(jwt.decode(subject, options={"verify_signature": False})["sub"])
            return 200, {"access_token": f"made-for-{who}", "token_type": "Bearer", "expires_in": 60}, {}
        if method != "POST":
            return 405, {}, {}
        place, sent = path.split("/")[1], headers.get("authorization", "")
        if place == "people":
            if not sent.startswith("Bearer made-for-"):
                self.passed_on += bool(sent)
                return 401, {}, {"www-authenticate": "Bearer"}
            owner = self.by_name[sent.removeprefix("Bearer made-for-")]
        else:
            self.passed_on += bool(sent)
            owner = next(each for each in self.tenants if each.prefix == place)
        message = json.loads(body)
        if "id" not in message:
            return 202, None, {}
        result = self._serve(owner, message)
        if result is None:
            error = {"code": -32601, "message": "no such method"}
            return 200, {"jsonrpc": "2.0", "id": message["id"], "error": error}, {}
        return 200, {"jsonrpc": "2.0", "id": message["id"], "result": result}, {}

    def _serve(self, owner: Tenant, message: dict[str, Any]) -> Any:
        if message["method"] == "initialize":
            about = {"name": owner.prefix, "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
        if message["method"] == "tools/list":
            return {"tools": [
                {"name": f"{owner.name}_{each}", "description": f"{each.title()} a document of {owner.word}",
                 "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}}}
                for each in TOOLS
            ]}  # fmt: skip
        if message["method"] == "tools/call":
            text = "\n\n".join(f"{owner.word} says {message['params']['name']} line {line}" for line in range(60))
            return {"content": [{"type": "text", "text": text}]}
        return None


@dataclass
class Seen:
    """What went wrong, and how often."""

    leaked: int = 0
    seen: int = 0
    let_in: int = 0
    failed: int = 0
    """Requests of a tenant about their own things that were refused, or not answered."""
    kinds: Counter[str] = field(default_factory=Counter)
    took_ms: list[float] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)

    def note(self, kind: str, what: str) -> None:
        if len(self.examples) < 20:
            self.examples.append(f"{kind}: {what[:300]}")


class Trial:
    """Sends the requests."""

    def __init__(self, world: World, ports: Sequence[int], draw: random.Random) -> None:
        self._world = world
        self._ports = ports
        self._draw = draw
        self.seen = Seen()
        self._http = httpx2.AsyncClient(timeout=PATIENCE_S)
        self._own = {
            "list": self._list, "search": self._search, "call": self._call, "read on": self._read_on,
            "begin a session": self._begin, "go on with a session": self._go_on, "misses": self._misses,
        }  # fmt: skip
        self._others = {"another's tool": self._call_others, "another's profile": self._enter_others,
                        "another's session": self._steal_session, "another's events": self._steal_events,
                        "another's handle": self._steal_handle, "another's rest": self._steal_rest,
                        "another's misses": self._steal_misses, "a bad token": self._show_bad}  # fmt: skip

    async def run(self, requests: int, at_once: int = 16) -> None:
        """Send so many requests, some of them at the same time."""
        left = iter(range(requests))

        async def work() -> None:
            for _ in left:
                me = self._draw.choice(self._world.tenants)
                own = self._draw.random() < 0.5
                kind, send = self._draw.choice(list((self._own if own else self._others).items()))
                self.seen.kinds[kind] += 1
                try:
                    await send(me)
                except (httpx2.HTTPError, TimeoutError) as error:
                    self.seen.failed += 1
                    self.seen.note(kind, repr(error))

        await asyncio.gather(*(work() for _ in range(at_once)))
        await self._http.aclose()

    # One request

    async def _send(self, me: Tenant, method: str, path: str, body: Any, headers: dict[str, str]) -> httpx2.Response:
        url = f"http://127.0.0.1:{self._draw.choice(self._ports)}{path}"
        began = time.perf_counter()
        answer = await self._http.request(method, url, json=body, headers={**ACCEPT, **headers})
        self.seen.took_ms.append((time.perf_counter() - began) * 1000)
        text = f"{answer.headers} {answer.text}"
        for other in self._world.tenants:
            if other is not me and other.word in text:
                self.seen.leaked += 1
                self.seen.note("leaked", f"{me.name} got a word of {other.name} from {method} {path} {body}")
        return answer

    async def _ask(self, me: Tenant, name: str, path: str = "", /, **params: Any) -> tuple[httpx2.Response, Any]:
        headers = {"mcp-protocol-version": MODERN, "mcp-method": name, **me.authorization()}
        headers |= {"mcp-name": params["name"]} if "name" in params else {}
        body = {"jsonrpc": "2.0", "id": 1, "method": name, "params": {"_meta": META, **params}}
        answer = await self._send(me, "POST", path or me.path, body, headers)
        return answer, result_of(answer)

    async def _tool(self, me: Tenant, tool: str, **arguments: Any) -> str:
        _, result = await self._ask(me, "tools/call", name=tool, arguments=arguments)
        return json.dumps(result, ensure_ascii=False)

    def _other(self, me: Tenant) -> Tenant:
        return self._draw.choice([each for each in self._world.tenants if each is not me])

    def _expect(self, right: bool, kind: str, what: str) -> None:
        if not right:
            self.seen.failed += 1
            self.seen.note(kind, what)

    def _refuse(self, answer: httpx2.Response, *statuses: int) -> None:
        if answer.status_code not in statuses:
            self.seen.let_in += 1
            self.seen.note("let in", f"{answer.request.method} {answer.request.url}: {answer.status_code}")

    # What is one's own

    async def _list(self, me: Tenant) -> None:
        _, result = await self._ask(me, "tools/list")
        self._check_names(me, result)

    def _check_names(self, me: Tenant, result: Any) -> None:
        names = {each["name"] for each in (result or {}).get("tools", ())}
        own = {name for name in names if "__" in name}
        others = own - set(me.tools)
        self.seen.seen += bool(others)
        self._expect(own - others == set(me.tools), "list", f"{me.name} lists {sorted(names)}")

    async def _search(self, me: Tenant) -> None:
        verb = self._draw.choice(TOOLS)
        found = await self._tool(me, "discover_tools", task=f"{verb} a document about {me.word}")
        self._expect(f"{me.name}_{verb}" in found, "search", f"{me.name}: {found}")
        me.handles += re.findall(r"handle: ([\w-]+)", found.replace("\\n", "\n"))[:1]
        del me.handles[:-20]

    async def _call(self, me: Tenant) -> None:
        said = await self._tool(me, self._draw.choice(me.tools), q=me.word)
        self._expect(f"{me.word} says" in said, "call", f"{me.name}: {said}")
        me.rests += re.findall(r'\\"result\\": \\"([\w-]+)\\"', said)[:1]
        del me.rests[:-20]

    async def _read_on(self, me: Tenant) -> None:
        if me.rests:  # at another replica there is none
            await self._tool(me, "read_more", result=self._draw.choice(me.rests))

    async def _begin(self, me: Tenant) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        answer = await self._send(me, "POST", me.path, body, me.authorization())
        session = answer.headers.get("mcp-session-id", "")
        self._expect(bool(session), "session", f"{me.name}: {answer.status_code} {answer.text}")
        me.sessions.append(session)
        del me.sessions[:-5]

    async def _go_on(self, me: Tenant) -> None:
        if not me.sessions:
            return
        headers = {"mcp-session-id": self._draw.choice(me.sessions), **me.authorization()}
        if self._draw.random() < 0.5:
            body: dict[str, Any] = {"jsonrpc": "2.0", "id": self._draw.randrange(10**9), "method": "tools/list"}
        else:
            params = {"name": self._draw.choice(me.tools), "arguments": {"q": me.word}}
            body = {"jsonrpc": "2.0", "id": self._draw.randrange(10**9), "method": "tools/call", "params": params}
        answer = await self._send(me, "POST", me.path, body, headers)
        result = result_of(answer)
        me.events += re.findall(r"^id: (\S+)", answer.text, re.MULTILINE)[:2]
        del me.events[:-20]
        if body["method"] == "tools/list":
            self._check_names(me, result)
        else:
            self._expect(f"{me.word} says" in json.dumps(result), "session", f"{me.name}: {answer.text}")

    async def _misses(self, me: Tenant) -> None:
        if me.profile != "team":  # whoever opens a profile reads what all its people have asked for
            page = self._draw.choice(("", "misses", "sessions", "tools"))
            await self._send(me, "GET", f"/ui/profile/{me.profile}/{page}", None, me.authorization())

    # What is somebody else's

    async def _call_others(self, me: Tenant) -> None:
        tool = self._draw.choice(self._other(me).tools)
        if self._draw.random() < 0.5:
            said = await self._tool(me, tool, q="x")
        else:
            bridge = self._draw.choice(("call_tool", "call_tool_write"))
            said = await self._tool(me, bridge, name=tool, arguments={"q": "x"})
        self.seen.let_in += " says " in said

    async def _enter_others(self, me: Tenant) -> None:
        other = self._other(me)
        if other.profile != me.profile:
            answer, _ = await self._ask(me, self._draw.choice(("tools/list", "server/discover")), other.path)
            self._refuse(answer, 403, 404)

    async def _steal_session(self, me: Tenant) -> None:
        other = self._other(me)
        if not other.sessions:
            return
        headers = {"mcp-session-id": self._draw.choice(other.sessions), **me.authorization()}
        method = self._draw.choice(("POST", "GET", "DELETE"))
        body = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"} if method == "POST" else None
        path = self._draw.choice((me.path, other.path))
        self._refuse(await self._send(me, method, path, body, headers), 403, 404)

    async def _steal_events(self, me: Tenant) -> None:
        other = self._other(me)
        if not other.events or not other.sessions:
            return
        session = self._draw.choice(other.sessions)
        headers = {"last-event-id": self._draw.choice(other.events), "mcp-session-id": session, **me.authorization()}
        self._refuse(await self._send(me, "GET", me.path, None, headers), 403, 404)

    async def _steal_handle(self, me: Tenant) -> None:
        other = self._other(me)
        if other.handles:
            await self._tool(me, "discover_tools", task="read a document", handle=self._draw.choice(other.handles))

    async def _steal_rest(self, me: Tenant) -> None:
        other = self._other(me)
        if other.rests:
            await self._tool(me, "read_more", result=self._draw.choice(other.rests))

    async def _steal_misses(self, me: Tenant) -> None:
        other = self._other(me)
        if other.profile != me.profile:
            path = self._draw.choice((f"/ui/profile/{other.profile}/misses", "/ui/all/misses", "/metrics"))
            self._refuse(await self._send(me, "GET", path, None, me.authorization()), 403, 404)

    async def _show_bad(self, me: Tenant) -> None:
        people = [each for each in self._world.tenants if not each.token]
        who = me if not me.token else self._draw.choice(people)
        now = int(time.time())
        bad = self._draw.choice((
            {"exp": now - 600}, {"aud": "https://other.example/mcp"}, {"iss": f"{who.issuer}/other"}, {"sub": None},
        ))  # fmt: skip
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
        shown = Tenant(who.name, who.word, who.profile, who.prefix, who.issuer).authorization(**bad)
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
        self._refuse(await self._send(who, "POST", who.path, body, headers | shown), 401)


def result_of(answer: httpx2.Response) -> Any:
    """The result in an answer, whether it came as JSON or as events; None if there is none."""
    texts = [line[5:].strip() for line in answer.text.splitlines() if line.startswith("data:")] or [answer.text]
    for text in reversed(texts):
        try:
            found = json.loads(text)
        except ValueError:
            continue
        if isinstance(found, dict) and "result" in found:
            return found["result"]
    return None


def settings_of(world: World) -> tuple[dict[str, Any], dict[str, Any]]:
    """The servers and the settings of each replica."""
    servers: dict[str, Any] = {}
    profiles: dict[str, Any] = {}
    grants = []
    tokens = []
    for each in world.tenants:
        profiles[each.profile] = {"servers": [each.prefix]}
        if each.token:
            servers[each.prefix] = {"url": f"{world.base}/{each.prefix}"}
            tokens.append({"name": each.name, "sha256": digest(each.token), "profiles": [each.profile]})
        else:
            grants.append({"claim": "sub", "values": [each.name], "profiles": [each.profile]})
            each.issuer = world.base
    per_user = {"token_endpoint": f"{world.base}/token", "client_id": "trial", "client_secret": "of-the-trial"}
    servers["people"] = {"url": f"{world.base}/people", "per_user": per_user, "trust": "auto"}
    access = {"issuer": world.base, "resource": RESOURCE, "jwks_url": f"{world.base}/keys", "grants": grants}
    settings = {
        "tokens": tokens, "profiles": profiles, "access": access, "policy": "full", "encoder": "none",
        "record": "full", "learn_s": 0, "result_tokens": 200, "cold_list_s": 20,
    }  # fmt: skip
    return servers, settings


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[None]:
    """Serve everything around the replicas on loopback."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    world.base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        world.app, interface="asgi3", log_config=None, log_level="error", access_log=False, lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    running = asyncio.create_task(server.serve([listener]))
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        await running


@asynccontextmanager
async def replicas_of(world: World, folder: Path, command: Sequence[str], count: int) -> AsyncIterator[list[Replica]]:
    """Start replicas that serve these tenants."""
    servers, settings = settings_of(world)
    async with AsyncExitStack() as stack:
        storage = str(folder / "foretool.sqlite3")
        if count > 1:
            database = DatabaseServer(folder / "database")
            stack.callback(database.close)
            storage = database.address
        made = [Replica(folder / f"replica-{place}", command, storage, 0.0) for place in range(count)]
        try:
            for replica in made:
                write_config(replica.folder, servers, storage=storage, insecure_loopback=False, **settings)
                await replica.start()
            for replica in made:
                await replica.wait_ready()
            yield made
        except BaseException:
            print(*(replica.log[-3000:] for replica in made), sep="\n", file=sys.stderr)
            raise
        finally:
            for replica in made:
                if replica.process is not None and replica.process.returncode is None:
                    await replica.end(signal.SIGTERM)


async def run(folder: Path, command: Sequence[str], requests: int, replicas: int, seed: int) -> tuple[Row, Seen]:
    """Run the whole trial in a folder."""
    draw = random.Random(seed)
    world = World(draw)
    async with serving(world), replicas_of(world, folder, command, replicas) as started:
        trial = Trial(world, [each.port for each in started], draw)
        began = time.monotonic()
        await trial.run(requests)
        took_s = time.monotonic() - began
    return judge(trial.seen, world, took_s) | {"replicas": replicas, "seed": seed, "load": load_average()}, trial.seen


def judge(seen: Seen, world: World, took_s: float) -> Row:
    """The figures of one run."""
    return {
        "requests": sum(seen.kinds.values()), "attempts": sum(
            count for kind, count in seen.kinds.items() if kind.startswith(("another", "a bad"))
        ),
        "leaked": seen.leaked, "seen": seen.seen, "let_in": seen.let_in, "passed_on": world.passed_on,
        "failed": seen.failed, "tenants": len(world.tenants), "took_s": round(took_s, 1),
        "p50_ms": round(quantile(sorted(seen.took_ms), 0.5), 1) if seen.took_ms else 0.0,
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and run the trial."""
    parser = make_parser("bench.fleet.isolation", __doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    add_foretool(parser)
    add_json(parser)
    arguments = parser.parse_args(argv)
    command = installed(arguments.foretool)
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        row, seen = asyncio.run(run(Path(folder), command, arguments.requests, arguments.replicas, arguments.seed))
    print_row(row, arguments.json)
    print(*(f"{count} x {kind}" for kind, count in seen.kinds.most_common()), *seen.examples, sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
