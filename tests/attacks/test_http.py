"""Attacks from the front over HTTP: guessed and stolen tokens, other profiles, rotated tokens, and floods."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from callers import on_the_real_clock
from fakes import FakeUpstream, Stage, config_of, proxy_over
from http_callers import INITIALIZE, JSON_AND_EVENTS, META, EventReader, bearer, http_server, messages
from http_fakes import PATIENCE_S, soon
from listening import over_http
from requirements import requirement
from served import write_config

from foretool.server.config.addresses import Address, parse_address
from foretool.server.config.tokens import digest
from foretool.server.transports.client.http import HttpServer
from foretool.server.transports.client.http_rules import read_rules
from foretool.storage.records import AuditFilter

pytestmark = [pytest.mark.anyio, on_the_real_clock]


ALICE, BOB, EVE = ("alice-q8Zr2LxVn0pTfYw7", "bob-mB4hJc9Ek1sRuWd6", "eve-Zt5GpX3yNa0oLvQi")


def entry(token: str, *profiles: str) -> dict[str, Any]:
    return {"name": token[:3], "sha256": digest(token), "profiles": list(profiles)}


PROFILES = {"work": {"servers": ["git"]}, "home": {"servers": ["mail"]}}
TOKENS = [entry(ALICE, "work"), entry(BOB, "home"), entry(EVE, "default")]


class Tenants:
    """A proxy whose clients have a token each."""

    def __init__(self, stage: Stage, server: HttpServer, http: httpx2.AsyncClient, upstreams: Any) -> None:
        self.stage, self.server, self.http, self.upstreams = stage, server, http, upstreams

    async def reload(self, **settings: Any) -> None:
        """Put other settings in force, as a change of the file does."""
        await self.stage.app.reloader.apply(config_of(*self.upstreams, **{"profiles": PROFILES, **settings}))

    async def session(self, token: str, path: str) -> dict[str, str]:
        """The headers of a new legacy session."""
        headers = {**JSON_AND_EVENTS, **bearer(token)}
        response = await self.http.post(path, json=INITIALIZE, headers=headers)
        assert response.status_code == 200, response.text
        return {**headers, "mcp-session-id": response.headers["mcp-session-id"]}

    def modern(self, token: str, path: str, method: str, id: Any = 1, **params: Any) -> Any:
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, **JSON_AND_EVENTS, **bearer(token)}
        headers |= {"mcp-name": params["name"]} if "name" in params else {}
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": META, **params}}
        return self.http.stream("POST", path, json=body, headers=headers)

    def legacy(self, session: dict[str, str], path: str, method: str, id: Any = 7, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        return self.http.stream("POST", path, json=body, headers=session)

    async def reply(self, request: Any) -> Any:
        """The reply to a request, in either form."""
        async with request as response:
            if response.headers["content-type"] == "text/event-stream":
                return (await messages(response))[-1]
            return json.loads(await response.aread())


@asynccontextmanager
async def tenants(**settings: Any) -> AsyncIterator[Tenants]:
    upstreams = FakeUpstream("git", ["push"]), FakeUpstream("mail", ["send"])
    settings = {"tokens": TOKENS, "profiles": PROFILES, "policy": "full", **settings}
    async with proxy_over(*upstreams, **settings) as stage:
        address = Address()
        server = HttpServer(stage.app.router, read_rules(stage.app.config, address), address)
        stage.app.reloader.add_follower(lambda: server.follow(read_rules(stage.app.config, address)))
        serving = asyncio.create_task(server.serve())
        await soon(server.ready)
        try:
            async with httpx2.AsyncClient(
                verify=False, base_url=f"http://{server.address}", timeout=PATIENCE_S
            ) as http:
                yield Tenants(stage, server, http, upstreams)
        finally:
            await server.stop()
            await serving


async def told(response: httpx2.Response) -> tuple[int, Any, dict[str, str]]:
    await response.aread()
    headers = {name: value for name, value in response.headers.items() if name != "date"}
    return response.status_code, response.text, headers


@requirement("trust:http:no-probing")
async def test_profiles_and_tokens_cannot_be_probed() -> None:
    async with tenants() as at:
        paths = [
            "/mcp",
            "/mcp/",
            "/mcp/work",
            "/mcp/home",
            "/mcp/none",
            "/",
            "/mcp/work/",
            "/mcp/w%6frk",
            "/mcpx",
            "/x",
        ]
        answers: list[Any] = []
        for sent in (
            {},
            bearer("x"),
            bearer(ALICE[:-1]),
            {"authorization": ALICE},
            {"authorization": f"Basic {ALICE}"},
        ):
            for path in paths:
                for method in ("GET", "POST", "DELETE", "PUT", "OPTIONS"):
                    content = b"{" if method == "POST" else None
                    answers.append(await told(await at.http.request(method, path, headers=sent, content=content)))
        assert answers[0][0] == 401
        assert all(answer == answers[0] for answer in answers)
        known = [
            await told(await at.http.get(path, headers=bearer(ALICE))) for path in ("/mcp/home", "/mcp/none", "/mcp")
        ]
        assert known[0][0] == 404
        assert known[0] == known[1] == known[2]
        assert "home" not in known[0][1]
        assert (await at.http.get("/mcp/w%6frk", headers=bearer(ALICE))).status_code == 400


@requirement("trust:http:no-probing")
async def test_health_says_nothing_and_only_to_hosts_that_are_served() -> None:
    async with tenants() as at:
        response = await at.http.get("/health")
        assert (response.status_code, response.text) == (200, '{"status":"ok"}')
        assert (await at.http.get("/health", headers={"host": "evil.example"})).status_code == 421


@requirement("trust:http:profiles")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_token_reaches_the_servers_of_its_profile_alone(era: str) -> None:
    async with tenants() as at:
        if era == "legacy":
            session = await at.session(ALICE, "/mcp/work")
            listed = await at.reply(at.legacy(session, "/mcp/work", "tools/list"))
            called = await at.reply(at.legacy(session, "/mcp/work", "tools/call", name="mail__send", arguments={}))
        else:
            listed = await at.reply(at.modern(ALICE, "/mcp/work", "tools/list"))
            called = await at.reply(at.modern(ALICE, "/mcp/work", "tools/call", name="mail__send", arguments={}))
        names = [tool["name"] for tool in listed["result"]["tools"]]
        assert "git__push" in names
        assert "mail__send" not in names
        assert "error" in called or called["result"]["isError"]
        assert at.upstreams[1].calls == []
        for path in ("/mcp", "/mcp/home"):
            assert (
                await at.http.post(path, json=INITIALIZE, headers={**JSON_AND_EVENTS, **bearer(ALICE)})
            ).status_code == 404


@requirement("trust:http:other-tools")
@pytest.mark.parametrize("bridge", ["", "call_tool", "call_tool_write"])
async def test_the_tools_of_other_profiles_are_answered_like_tools_that_do_not_exist(bridge: str) -> None:
    async with tenants(audit=True) as at:

        async def said_of(name: str) -> str:
            if bridge:
                params = {"name": bridge, "arguments": {"name": name, "arguments": {}}}
            else:
                params = {"name": name, "arguments": {}}
            return json.dumps(await at.reply(at.modern(ALICE, "/mcp/work", "tools/call", **params)))

        there, absent = await said_of("mail__send"), await said_of("mail__sent")
        audited = [(each.target, each.outcome) for each in at.stage.store.audit.find(AuditFilter(), 5)]
        assert at.stage.calls() == [], "the page shows them to others of the profile"
    assert there.replace("mail__send", "NAME") == absent.replace("mail__sent", "NAME")
    assert (audited, at.upstreams[1].calls) == ([("mail__send", "refused")], [])


@requirement("trust:http:bound-state")
async def test_a_stolen_session_id_does_not_exist_for_another_token_or_profile() -> None:
    tokens = [entry(ALICE, "work"), entry(BOB, "work", "home"), entry(EVE, "work")]
    async with tenants(tokens=tokens) as at:
        session = await at.session(BOB, "/mcp/work")
        stolen = {**session, **bearer(EVE)}
        made_up = {**stolen, "mcp-session-id": "0" * 32}
        at.upstreams[0].hold("push")
        async with at.legacy(session, "/mcp/work", "tools/call", name="git__push", arguments={}) as answer:
            asked = await at.upstreams[0].called("push")
            reader = EventReader(answer)
            priming = await reader.next()
            assert priming is not None
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
            for headers, path in ((stolen, "/mcp/work"), ({**session}, "/mcp/home")):
                other = {**headers, "last-event-id": priming["id"]}
                for method, sent, body in (
                    ("POST", headers, cancel),
                    ("GET", headers, None),
                    ("GET", other, None),
                    ("DELETE", headers, None),
                ):
                    unknown = {**sent, "mcp-session-id": "0" * 32}
                    found = [
                        await told(await at.http.request(method, path, json=body, headers=each))
                        for each in (sent, unknown)
                    ]
                    assert found[0] == found[1]
                    assert found[0][0] == 404
            assert made_up["mcp-session-id"] not in at.server.legacy.sessions
            asked.reply({"content": [], "mine": True})
            message = await reader.message()
            assert message["result"]["mine"] is True


@requirement("trust:http:bound-state")
async def test_a_modern_request_cannot_be_cancelled_or_continued_by_another_token() -> None:
    tokens = [entry(ALICE, "work"), entry(EVE, "work")]
    async with tenants(tokens=tokens) as at:
        at.upstreams[0].hold("push")
        call = at.reply(at.modern(ALICE, "/mcp/work", "tools/call", id=3, name="git__push", arguments={}))
        answer = asyncio.create_task(call)
        asked = await at.upstreams[0].called("push")
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "notifications/cancelled"}
        headers |= {**JSON_AND_EVENTS, **bearer(EVE)}
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3, "_meta": META}}
        assert (await at.http.post("/mcp/work", json=cancel, headers=headers)).status_code == 202
        asked.reply({"content": [], "mine": True})
        assert (await answer)["result"]["mine"] is True


@requirement("trust:http:rotation")
@pytest.mark.parametrize("how", ["deleted", "changed", "narrowed", "profile gone"])
async def test_a_token_that_is_gone_ends_its_sessions_streams_and_calls_at_once(how: str) -> None:
    tokens = [entry(ALICE, "work"), entry(EVE, "work")]
    async with tenants(tokens=tokens) as at:
        kept, lost = await at.session(ALICE, "/mcp/work"), await at.session(EVE, "/mcp/work")
        at.upstreams[0].hold("push")
        listen = {"notifications": {"toolsListChanged": True}}
        call = {"name": "git__push", "arguments": {}}
        async with (
            at.http.stream("GET", "/mcp/work", headers=lost) as standalone,
            at.legacy(lost, "/mcp/work", "tools/call", **call) as legacy,
            at.modern(EVE, "/mcp/work", "subscriptions/listen", **listen) as subscribed,
        ):
            in_flight = asyncio.create_task(_whole(at.modern(EVE, "/mcp/work", "tools/call", **call)))
            asked = [await at.upstreams[0].called("push") for _ in range(2)]
            if how == "profile gone":
                await at.reload(tokens=tokens, profiles={"home": PROFILES["home"]})
            else:
                others = {
                    "deleted": [],
                    "changed": [entry(BOB, "work")],
                    "narrowed": [entry(EVE, "home")],
                }
                await at.reload(tokens=[tokens[0], *others[how]])
            for stream in (standalone, legacy, subscribed):
                async for _ in stream.aiter_raw():
                    pass  # each comes to its end
            assert b'"result"' not in await in_flight
            assert len(asked) == 2
            for _ in asked:
                await at.upstreams[0].asked("notifications/cancelled")
        dead = await at.http.get("/mcp/work", headers=lost)
        assert dead.status_code == (401 if how in ("deleted", "changed") else 404)
        if how != "profile gone":
            assert "result" in await at.reply(at.legacy(kept, "/mcp/work", "tools/list"))
        assert {session.principal for session in at.server.legacy.sessions.values()} <= {"bearer:" + digest(ALICE)[:32]}


async def _whole(request: Any) -> bytes:
    async with request as response:
        data: bytes = await response.aread()
        return data


@requirement("trust:http:rotation")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_request_whose_body_is_slow_does_not_outlive_its_token(era: str) -> None:
    async with tenants() as at:
        body = json.dumps(
            INITIALIZE
            if era == "legacy"
            else {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
        ).encode()
        headers = {**JSON_AND_EVENTS, **bearer(ALICE), "host": "localhost", "content-length": str(len(body))}
        headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"} if era == "modern" else {}
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.address.port)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"POST /mcp/work HTTP/1.1\r\n{lines}expect: 100-continue\r\n\r\n".encode())
        assert b"100" in await reader.readline()  # the token was checked, and the body is waited for
        await reader.readline()
        await at.reload(tokens=[entry(EVE, "default")])
        writer.write(body)
        assert b"401" in await reader.readline()
        writer.close()
        assert not at.server.legacy.sessions


@requirement("trust:http:rotation")
async def test_a_config_that_loses_its_tokens_closes_the_door_and_does_not_open_it() -> None:
    async with tenants() as at:
        session = await at.session(ALICE, "/mcp/work")
        await at.reload(tokens=[])
        for headers in ({}, session, bearer(ALICE)):
            assert (await at.http.get("/mcp/work", headers=headers)).status_code == 401
        await at.reload(tokens=[{"name": "weak", "token": "hunter2", "profiles": ["*"]}])
        assert (await at.http.get("/mcp/work", headers=bearer("hunter2"))).status_code == 401
        await at.reload(tokens=TOKENS)
        assert (await at.http.get("/mcp/work", headers={**session, "accept": "*/*"})).status_code == 404
        await at.session(ALICE, "/mcp/work")


@requirement("trust:http:rotation")
async def test_allowed_hosts_and_origins_apply_at_once() -> None:
    async with tenants(allowed_hosts=["a.example"], allowed_origins=["https://a.example"]) as at:
        sent = [{"host": "a.example"}, {"origin": "https://a.example"}]
        assert [(await at.http.get("/health", headers=each)).status_code for each in sent] == [200, 200]
        await at.reload(tokens=TOKENS)
        assert [(await at.http.get("/health", headers=each)).status_code for each in sent] == [421, 403]


@requirement("trust:http:rotation")
async def test_limits_apply_at_once() -> None:
    async with tenants() as at:
        await at.session(ALICE, "/mcp/work")
        await at.reload(tokens=TOKENS, max_sessions=1, max_message_mib=0.001)
        headers = {**JSON_AND_EVENTS, **bearer(ALICE)}
        assert (await at.http.post("/mcp/work", json=INITIALIZE, headers=headers)).status_code == 503
        body = json.dumps({**INITIALIZE, "x": "y" * 2000}).encode()
        assert (await at.http.post("/mcp/work", content=body, headers=headers)).status_code == 413


@requirement("trust:http:sessions-share")
async def test_one_leaked_token_cannot_take_the_sessions_of_the_others() -> None:
    async with http_server(tokens={ALICE: ["*"], EVE: ["*"]}, max_sessions=10) as caller:
        flood = [(await caller.initialize(**bearer(EVE))).status_code for _ in range(20)]
        assert (flood.count(200), flood.count(503)) == (5, 15)
        assert [(await caller.initialize(**bearer(ALICE))).status_code for _ in range(5)] == [200] * 5


def over_limit() -> tuple[int, int]:
    """Room for a thousand connections; the limit before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    return soft, hard


@pytest.fixture
def many_files() -> Iterator[None]:
    before = over_limit()
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


FLOODS = {
    "silent": b"",
    "half a line": b"POST /mcp HTTP/1.1\r\nhost: ",
    "no end of a body": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9999999\r\n\r\n{",
}


@pytest.mark.slow
@requirement("trust:http:connections")
@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("sent", FLOODS.values(), ids=FLOODS)
async def test_1100_connections_without_a_token_starve_nobody(sent: bytes, tmp_path: Path) -> None:
    config = write_config(tmp_path, {}, tokens=[entry(ALICE, "*")])
    with over_http(config) as url:
        port = int(url.rsplit(":", 1)[1].split("/")[0])
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(1100)]
        try:
            for _, writer in held:
                writer.write(sent)
            async with httpx2.AsyncClient(verify=False, timeout=PATIENCE_S) as http:
                for _ in range(20):
                    response = await http.post(url, json=INITIALIZE, headers={**JSON_AND_EVENTS, **bearer(ALICE)})
                    assert response.status_code == 200
                async with httpx2.AsyncClient(verify=False, timeout=PATIENCE_S) as other:
                    assert (await other.get(url.replace("/mcp", "/health"))).status_code == 200
        finally:
            for _, writer in held:
                writer.transport.abort()


HEAD = (
    f"POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {EVE}\r\n"
    "content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
).encode()
PIECES = {
    "chunks of a byte": (HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n" * 5000),
    "a body byte by byte": (HEAD + b"content-length: 9999999\r\n\r\n", b" "),
    "header lines byte by byte": (b"POST /mcp HTTP/1.1\r\nx: ", b"y"),
    "line breaks byte by byte": (b"", b"\n"),
}


SEND_PIECES = """
import os, socket, sys
port, first, piece = int(sys.argv[1]), *(text.encode("latin-1") for text in sys.argv[2:])
os.nice(19)  # hostile clients have machines of their own
lines = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
for line in lines:
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.sendall(first)
    line.setblocking(False)
print(flush=True)
while True:
    for line in lines:
        try:
            line.send(piece)
        except OSError:
            pass
"""
"""Sends the same piece on many connections, as fast as they take it."""


@pytest.mark.slow
@requirement("trust:http:headers-deadline", "trust:http:bodies")
@pytest.mark.parametrize("sent", PIECES.values(), ids=PIECES)
async def test_requests_in_tiny_pieces_leave_the_others_the_time(sent: tuple[bytes, bytes]) -> None:
    async with http_server(tokens={ALICE: ["*"], EVE: ["*"]}, max_body=10_000_000) as caller:
        words = [SEND_PIECES, str(caller.server.address.port), *(part.decode("latin-1") for part in sent)]
        sender = await asyncio.create_subprocess_exec(sys.executable, "-c", *words, stdout=asyncio.subprocess.PIPE)
        assert sender.stdout is not None
        await sender.stdout.readline()
        times = []
        for _ in range(15):
            began = time.thread_time()
            assert (await caller.initialize(**bearer(ALICE))).status_code == 200
            times.append(time.thread_time() - began)
            await asyncio.sleep(0.05)
        sender.kill()
        await sender.wait()
        assert sorted(times)[10] < 0.05, "seconds of the processor, most of which others have taken"


@requirement("trust:http:turns")
async def test_hundreds_of_requests_of_one_token_leave_another_its_turn() -> None:
    tokens = [entry(ALICE, "work"), entry(EVE, "work")]
    async with tenants(tokens=tokens) as at:
        line = at.server.address.port
        flood = [await asyncio.open_connection("127.0.0.1", line) for _ in range(200)]
        one = await asyncio.open_connection("127.0.0.1", line)
        for reader, writer in (*flood, one):  # each is accepted before anything is asked
            writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await reader.readuntil(b'{"status":"ok"}')
        for _, writer in flood:
            writer.write(calling(EVE, "eve"))
        one[1].write(calling(ALICE, "alice"))
        await at.upstreams[0].called("push", 201)
        for _, writer in (*flood, one):
            writer.close()
        who = [arguments["who"] for _, arguments in at.upstreams[0].calls]
    assert who.index("alice") < 10


def calling(token: str, who: str) -> bytes:
    """A call of the modern era as it goes on the wire."""
    params = {"_meta": META, "name": "git__push", "arguments": {"who": who}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    lines = {"host": "localhost", "content-length": str(len(body)), **JSON_AND_EVENTS, **bearer(token)}
    lines |= {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "git__push"}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST /mcp/work HTTP/1.1\r\n{head}\r\n".encode() + body


@requirement("trust:http:rotation")
async def test_a_token_that_is_deleted_from_the_file_of_a_running_process_is_gone(tmp_path: Path) -> None:
    config = write_config(tmp_path, {}, tokens=[entry(ALICE, "*"), entry(EVE, "*")])
    with over_http(config) as url:
        async with httpx2.AsyncClient(verify=False, timeout=PATIENCE_S) as http, asyncio.timeout(PATIENCE_S):
            headers = {**JSON_AND_EVENTS, **bearer(EVE)}
            opened = await http.post(url, json=INITIALIZE, headers=headers)
            session = {**headers, "mcp-session-id": opened.headers["mcp-session-id"]}
            async with http.stream("GET", url, headers=session) as stream:
                write_config(tmp_path, {}, tokens=[entry(ALICE, "*")])
                async for _ in stream.aiter_raw():
                    pass  # until it ends
            assert (await http.get(url, headers=session)).status_code == 401


@requirement("trust:http:unix-socket")
async def test_a_unix_socket_serves_its_own_user_without_a_token(tmp_path: Path) -> None:
    address = parse_address(f"unix:{tmp_path}/own/http.sock")
    async with proxy_over(FakeUpstream("git", ["push"])) as stage:
        server = HttpServer(stage.app.router, read_rules(stage.app.config, address), address)
        serving = asyncio.create_task(server.serve())
        await soon(server.ready)
        transport = httpx2.AsyncHTTPTransport(uds=address.path)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            assert (await http.post("/mcp", json=INITIALIZE, headers=JSON_AND_EVENTS)).status_code == 200
        await server.stop()
        await serving
    assert not os.path.exists(address.path)  # noqa: ASYNC240, PTH110
