"""The streamable HTTP link against a scripted upstream and against the SDK's server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as t
import pytest
from http_fakes import PATIENCE_S, Asked, Handler, Notes, notification, request, serving, soon, unused_port, upstream
from mcp.server import Server
from requirements import requirement

from foretool.server.protocol import headers as http_headers
from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.jsonrpc import Message
from foretool.server.transports.upstream.http import HttpLink
from foretool.storage.records import Era

pytestmark = pytest.mark.anyio
LIMIT = 100_000


@asynccontextmanager
async def linked(
    handler: Handler, era: Era = "legacy", headers: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[tuple[HttpLink, Notes]]:
    async with serving(upstream(handler)) as url:
        notes = Notes()
        link = HttpLink(f"{url}/mcp?key=hidden", headers or {}, era, notes, LIMIT, **options)
        try:
            yield link, notes
        finally:
            async with asyncio.timeout(PATIENCE_S):
                await link.close()


async def handshake(link: HttpLink, notes: Notes) -> None:
    link.send(request(1, "initialize", protocolVersion="2025-11-25"))
    reply, _ = await notes.message()
    assert reply["id"] == 1
    link.send(Message(method="notifications/initialized"))


class Legacy:
    """An upstream with a session; what it is asked besides the handshake waits in `asked`."""

    def __init__(self, *, get: bool = False) -> None:
        self.get = get
        self.asked: asyncio.Queue[tuple[Asked, asyncio.Event]] = asyncio.Queue()
        self.seen: list[Asked] = []

    async def __call__(self, asked: Asked) -> None:
        self.seen.append(asked)
        if asked.method == "POST" and asked.body.get("method") == "initialize":
            await asked.result({"protocolVersion": "2025-06-18", "capabilities": {}}, mcp_session_id="s-1")
        elif asked.method == "POST" and "id" not in asked.body:
            await asked.answer(b"", status=202)
        elif asked.method == "DELETE" or (asked.method == "GET" and not self.get):
            await asked.answer(b"", status=200 if asked.method == "DELETE" else 405)
        else:
            done = asyncio.Event()
            self.asked.put_nowait((asked, done))
            await soon(done)

    async def next(self) -> tuple[Asked, asyncio.Event]:
        async with asyncio.timeout(PATIENCE_S):
            return await self.asked.get()


class Streaming:
    """An upstream that answers each request with a stream that ends with the link; the requests wait in `asked`."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Asked] = asyncio.Queue()

    async def __call__(self, asked: Asked) -> None:
        await asked.stream()
        await asked.event({"method": "notifications/progress", "params": {}})
        self.asked.put_nowait(asked)
        await soon(asked.gone)


@requirement("http:goodbye")
async def test_a_session_is_kept_from_the_handshake_to_the_goodbye() -> None:
    server = Legacy()
    async with linked(server, headers={"authorization": "Bearer t0p"}) as (link, notes):
        await handshake(link, notes)
        link.send(request(2, "tools/list"))
        asked, done = await server.next()
        await asked.result({"tools": []})
        done.set()
        assert await notes.message() == ({"jsonrpc": "2.0", "id": 2, "result": {"tools": []}}, 2)
    first, *rest = server.seen
    assert "mcp-session-id" not in first.headers
    assert first.headers["accept"] == "application/json, text/event-stream"
    assert {asked.headers["authorization"] for asked in server.seen} == {"Bearer t0p"}
    assert {(asked.headers["mcp-session-id"], asked.headers["mcp-protocol-version"]) for asked in rest} == {
        ("s-1", "2025-06-18")
    }
    assert rest[-1].method == "DELETE"


async def test_what_comes_on_the_stream_of_a_request_is_said_to_belong_to_it() -> None:
    server = Legacy()
    async with linked(server) as (link, notes):
        await handshake(link, notes)
        link.send(request(2, "tools/call", name="a"))
        (one, one_done) = await server.next()
        link.send(request(3, "tools/call", name="b"))
        (two, two_done) = await server.next()
        for asked, question in ((two, "q2"), (one, "q1")):
            await asked.stream()
            await asked.event({"id": question, "method": "elicitation/create", "params": {}})
        found = {(await notes.message())[1] for _ in range(2)}
        assert found == {2, 3}
        link.send(Message(id="q1", result=jsonrpc.raw({"action": "decline"})))
        (answer, answered) = await server.next()
        assert answer.body == {"jsonrpc": "2.0", "id": "q1", "result": {"action": "decline"}}
        await answer.answer(b"", status=202)
        answered.set()
        for number in range(20):
            await one.event({"method": "notifications/message", "params": {"n": number}})
        await one.event({"id": 2, "result": {"ok": True}})
        one_done.set()
        two_done.set()
        order = [await notes.message() for _ in range(21)]
    assert [message.get("params", {}).get("n") for message, _ in order] == [*range(20), None]
    assert {request_id for _, request_id in order} == {2}


async def test_the_stream_of_its_own_brings_what_belongs_to_no_request_and_is_resumed() -> None:
    server = Legacy(get=True)
    async with linked(server) as (link, notes):
        await handshake(link, notes)
        asked, done = await server.next()
        assert asked.method == "GET"
        await asked.stream()
        await asked.event({"method": "notifications/tools/list_changed"}, id="e1", retry=1)
        assert (await notes.message())[1] is None
        done.set()
        again, done = await server.next()
        assert (again.method, again.headers["last-event-id"]) == ("GET", "e1")
        done.set()


async def test_a_stream_that_ends_before_the_reply_is_resumed_where_it_ended() -> None:
    server = Legacy()
    server.get = True

    async with linked(server) as (link, notes):
        await handshake(link, notes)
        unasked, unasked_done = await server.next()
        link.send(request(2, "tools/call", name="slow"))
        asked, done = await server.next()
        await asked.stream()
        await asked.event(None, id="a-0", retry=1)
        await asked.event({"method": "notifications/progress", "params": {}}, id="a-1")
        await asked.end()
        done.set()
        again, done = await server.next()
        assert (again.method, again.headers["last-event-id"]) == ("GET", "a-1")
        await again.stream()
        await again.event({"id": 2, "result": {}}, id="a-2")
        done.set()
        assert [(await notes.message())[1] for _ in range(2)] == [2, 2]
        unasked_done.set()
        assert unasked.method == "GET"


async def test_an_end_meant_for_polling_is_told_to_who_wants_to_hear_it() -> None:
    class Poller(Notes):
        def on_poll(self, request: int, retry_ms: int) -> None:
            self.told.put_nowait(("poll", request, retry_ms))

    async def handler(asked: Asked) -> None:
        await asked.stream()
        if asked.method == "POST":
            await asked.event(None, id="a-0", retry=3)
        else:
            await asked.event({"id": 2, "result": {}})

    async with serving(upstream(handler)) as url:
        notes = Poller()
        link = HttpLink(url, {}, "legacy", notes, LIMIT)
        link.send(request(2, "tools/call"))
        assert [await notes.next(), (await notes.next())[0]] == [("poll", 2, 3), "message"]
        await link.close()


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_stream_that_ends_before_the_reply_and_cannot_be_resumed_fails_the_request(era: Era) -> None:
    async def handler(asked: Asked) -> None:
        await asked.stream()
        await asked.event(
            {"method": "notifications/progress", "params": {}}, **({"id": "x"} if era == "modern" else {})
        )
        await asked.end()

    async with linked(handler, era) as (link, notes):
        link.send(request(2, "tools/call"))
        await notes.message()
        assert await notes.next() == ("failed", 2, "ended its answer before the reply", True)


@requirement("session:expired")
async def test_a_session_the_server_has_forgotten_is_reported_with_the_request() -> None:
    server = Legacy()
    async with linked(server) as (link, notes):
        await handshake(link, notes)
        link.send(request(2, "tools/list"))
        asked, done = await server.next()
        await asked.answer(
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Not Found"}}, status=404
        )
        done.set()
        assert await notes.next() == ("expired", 2)
        link.send(request(3, "tools/list"))
        assert await notes.next() == ("failed", 3, "its session had expired", False)
    assert [asked.method for asked in server.seen if asked.method == "DELETE"] == []


@requirement("session:expired")
async def test_a_session_that_is_found_lost_by_its_stream_is_reported_without_a_request() -> None:
    server = Legacy(get=True)
    async with linked(server) as (link, notes):
        await handshake(link, notes)
        stream, stream_done = await server.next()
        await stream.stream()
        await stream.event(None, id="e1", retry=1)
        stream_done.set()
        again, again_done = await server.next()
        await again.answer(b"unknown session", status=400, kind="text/plain")
        again_done.set()
        assert await notes.next() == ("expired", None)
        link.send(request(2, "tools/list"))
        assert await notes.next() == ("failed", 2, "its session had expired", False)


async def test_a_method_that_is_not_found_is_no_lost_session() -> None:
    server = Legacy()
    async with linked(server) as (link, notes):
        await handshake(link, notes)
        link.send(request(2, "prompts/list"))
        asked, done = await server.next()
        error = {"code": -32601, "message": "no prompts"}
        await asked.answer({"jsonrpc": "2.0", "id": 2, "error": error}, status=404)
        done.set()
        assert await notes.message() == ({"jsonrpc": "2.0", "id": 2, "error": error}, 2)


async def test_a_modern_request_says_in_headers_what_its_body_says() -> None:
    seen: list[Asked] = []

    async def handler(asked: Asked) -> None:
        seen.append(asked)
        await asked.result({}, mcp_session_id="ignored")

    async with linked(handler, "modern") as (link, notes):
        link.send(request(1, "tools/call", name="grün", arguments={"r": 1}), {"Mcp-Param-R": "1"})
        await notes.message()
        link.send(Message(id="q", result=jsonrpc.EMPTY))
        link.send(request(2, "tools/list"))
        await notes.message()
    first, second = seen
    assert {
        name: first.headers.get(name) for name in ("mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-r")
    } == {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": http_headers.encode("grün"),
        "mcp-param-r": "1",
    }
    assert second.body["method"] == "tools/list"
    assert "mcp-session-id" not in second.headers


async def test_abandoning_a_modern_request_closes_its_stream() -> None:
    server = Streaming()
    async with linked(server, "modern") as (link, notes):
        link.send(request(1, "tools/call"))
        await notes.message()
        asked = await server.asked.get()
        assert link.abandon(1) is True
        await soon(asked.gone)
        assert notes.told.empty()


async def test_abandoning_a_legacy_request_leaves_the_cancelling_to_a_notification() -> None:
    server = Legacy()
    async with linked(server) as (link, notes):
        await handshake(link, notes)
        link.send(request(2, "tools/call"))
        asked, done = await server.next()
        await asked.stream()
        assert link.abandon(2) is False
        link.send(notification("notifications/cancelled", requestId=2))
        await soon(asked.gone)
        done.set()
        assert notes.told.empty()


class Moved:
    """Sends on whoever asks at a path of `leads`, which has status and target, and answers at any other path."""

    def __init__(self, leads: dict[str, tuple[int, str]]) -> None:
        self.leads = leads
        self.seen: list[tuple[str, str]] = []

    async def __call__(self, asked: Asked) -> None:
        self.seen.append((asked.method, asked.path))
        if asked.path in self.leads:
            status, target = self.leads[asked.path]
            await asked.answer(b"moved", status=status, kind="text/plain", location=target)
        elif asked.method == "POST" and asked.body.get("method") == "initialize":
            await asked.result({"protocolVersion": "2025-06-18", "capabilities": {}}, mcp_session_id="s-1")
        elif asked.method == "POST" and "id" in asked.body:
            await asked.result({"token": asked.headers.get("authorization")})
        else:
            await asked.answer(b"", status=202 if asked.method == "POST" else 405)


@requirement("http:redirects")
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_within_the_origin_is_followed_once_for_all_that_is_sent(status: int) -> None:
    server = Moved({"/mcp": (status, "/mcp/"), "/mcp/": (307, "deep")})
    async with linked(server, headers={"authorization": "Bearer t0p"}) as (link, notes):
        await handshake(link, notes)
        link.send(request(2, "tools/call"))
        assert await notes.message() == ({"jsonrpc": "2.0", "id": 2, "result": {"token": "Bearer t0p"}}, 2)
    assert [path for _, path in server.seen if path != "/mcp/deep"] == ["/mcp", "/mcp/"]
    assert {method for method, path in server.seen if path == "/mcp/deep"} == {"POST", "GET", "DELETE"}


@requirement("http:redirects")
async def test_an_address_that_a_redirect_led_to_is_left_once_it_fails() -> None:
    server = Moved({"/mcp": (307, "/one")})
    async with linked(server) as (link, notes):
        link.send(request(1, "tools/call"))
        await notes.message()
        server.leads = {"/mcp": (307, "/two"), "/one": (410, "")}
        link.send(request(2, "tools/call"))
        assert (await notes.next())[:2] == ("failed", 2)
        link.send(request(3, "tools/call"))
        await notes.message()
    assert [path for _, path in server.seen] == ["/mcp", "/one", "/one", "/mcp", "/two"]


@requirement("http:redirects")
@pytest.mark.parametrize(
    ("status", "target", "reason", "sent"),
    [
        (
            307,
            "http://elsewhere.example/t0p",
            "answered HTTP 307, a redirect to http://elsewhere.example, which is not followed, since credentials must"
            " not leave their origin: set url to where it leads",
            False,
        ),
        (
            301,
            "https://127.0.0.1/mcp?key=hidden",
            "answered HTTP 301, a redirect to https://127.0.0.1, which is not followed, since credentials must"
            " not leave their origin: set url to where it leads, with the path that it has",
            False,
        ),
        (308, "/mcp", "redirects more than 5 times in a row: set url to the address that answers", False),
        (303, "/mcp/", "answered HTTP 303, a redirect that takes no POST: set url to where it leads", True),
        (302, "http://[::1", "answered HTTP 302, a redirect to an address that is none: check url", False),
    ],
)
async def test_any_other_redirect_is_named_with_the_way_out(status: int, target: str, reason: str, sent: bool) -> None:
    server = Moved({"/mcp": (status, target)})
    async with linked(server, headers={"authorization": "Bearer t0p"}) as (link, notes):
        link.send(request(1, "tools/call"))
        assert await notes.next() == ("failed", 1, reason, sent)
    assert {path for _, path in server.seen} == {"/mcp"}


@requirement("trust:redirects")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_takes_a_request_to_another_origin(status: int) -> None:
    elsewhere = Moved({})
    async with serving(upstream(elsewhere)) as other:
        server = Moved({"/mcp": (307, "/on"), "/on": (status, f"{other}/mcp")})
        async with linked(server, headers={"authorization": "Bearer t0p"}) as (link, notes):
            link.send(request(1, "initialize"))
            kind, _, reason, sent = await notes.next()
        assert (kind, sent) == ("failed", False)
        assert f"a redirect to {other}, which is not followed" in reason
    assert elsewhere.seen == []


async def test_a_reply_counts_in_a_batch() -> None:
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}

    async def handler(asked: Asked) -> None:
        await asked.answer([progress, {"jsonrpc": "2.0", "id": 1, "result": {}}, [progress]])

    async with linked(handler) as (link, notes):
        link.send(request(1, "tools/list"))
        assert [await notes.message() for _ in range(2)] == [
            (progress, 1), ({"jsonrpc": "2.0", "id": 1, "result": {}}, 1)
        ]  # fmt: skip


async def test_a_reply_counts_at_the_end_of_a_stream_that_lacks_its_last_empty_line() -> None:
    async def handler(asked: Asked) -> None:
        await asked.stream()
        await asked.write(b'data: {"jsonrpc":"2.0",\ndata: "id":1,"result":{}}', more=False)

    async with linked(handler) as (link, notes):
        link.send(request(1, "tools/list"))
        assert await notes.message() == ({"jsonrpc": "2.0", "id": 1, "result": {}}, 1)


REFUSALS = [
    (
        401,
        "answered HTTP 401: it wants another Authorization; put a valid one into headers of this server in the config",
    ),
    (403, "answered HTTP 403: refused: its credentials in headers do not suffice"),
    (404, "answered HTTP 404: nothing is served there: check the path of url"),
    (503, "answered HTTP 503: it, or a gateway before it, is failing or restarting"),
    (418, "answered HTTP 418"),
]


@pytest.mark.parametrize(("status", "reason"), REFUSALS)
async def test_a_refusal_says_the_status_and_the_way_out_and_no_secret(status: int, reason: str) -> None:
    asked_for = []

    async def handler(asked: Asked) -> None:
        asked_for.append(asked.path)
        await asked.answer(b"<html>no</html>", status=status)

    async with linked(handler, headers={"authorization": "Bearer t0p"}) as (link, notes):
        link.send(request(1, "tools/list"))
        assert await notes.next() == ("failed", 1, reason, True)
    assert asked_for == ["/mcp"]


@pytest.mark.parametrize("code", [-32020, -32021, -32022])
async def test_an_error_in_the_body_of_a_refusal_is_the_reply(code: int) -> None:
    error = {"code": code, "message": "no", "data": {"supported": ["2025-11-25"]}}

    async def handler(asked: Asked) -> None:
        await asked.answer({"jsonrpc": "2.0", "id": None, "error": error}, status=400)

    async with linked(handler, "modern") as (link, notes):
        link.send(request(1, "tools/call"))
        assert await notes.message() == ({"jsonrpc": "2.0", "id": 1, "error": error}, 1)


async def test_a_server_that_knows_nothing_of_the_modern_era_answers_the_probe_with_an_error() -> None:
    async def handler(asked: Asked) -> None:
        await asked.answer(b"Bad Request", status=400, kind="text/plain")

    async with linked(handler, "modern") as (link, notes):
        link.send(request(1, "server/discover"))
        reply, _ = await notes.message()
        assert reply["error"]["code"] == jsonrpc.METHOD_NOT_FOUND


ODD_ANSWERS = [
    (b'{"jsonrpc":"2.0","id":9,"result":{}}', "application/json", "something that is not a reply"),
    (b"[1,", "application/json", "something that is not a reply"),
    (b"<html>", "text/html", "with text/html and no reply"),
]


@requirement("limits:size")
@pytest.mark.parametrize(("body", "kind", "reason"), ODD_ANSWERS)
async def test_an_answer_that_is_none_fails_the_request(body: bytes, kind: str, reason: str) -> None:
    async def handler(asked: Asked) -> None:
        await asked.answer(body, kind=kind)

    async with linked(handler) as (link, notes):
        link.send(request(1, "tools/list"))
        while (told := await notes.next())[0] != "failed":
            pass
        assert reason in told[2]
        assert told[3] is True


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_an_answer_that_is_too_large_is_said_to_be(kind: str) -> None:
    async def handler(asked: Asked) -> None:
        await asked.answer(b"data: " + b"x" * (LIMIT + 1), kind=kind)

    async with linked(handler) as (link, notes):
        link.send(request(1, "tools/list"))
        assert await notes.next() == ("too large", 1, LIMIT)


@requirement("upstream:almost")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_event_that_was_meant_as_the_answer_and_cannot_be_read_ends_the_request(era: Era) -> None:
    async def handler(asked: Asked) -> None:
        await asked.start(content_type="text/event-stream")
        await asked.write(b'id: 1\ndata: {"level":"info"}\n\n')
        await asked.write(b'data: {"jsonrpc":"2.0","id":1,"result":{"n":NaN}}\n\n')
        await asyncio.sleep(PATIENCE_S)

    async with linked(handler, era) as (link, notes):
        link.send(request(1, "tools/list"))
        assert [(await notes.next())[0] for _ in range(2)] == ["invalid", "invalid"]
        assert await notes.next() == ("unreadable", 1)


async def test_no_log_holds_a_url_or_a_header(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(asked: Asked) -> None:
        await asked.answer(b"", status=500)

    with caplog.at_level(logging.DEBUG):
        async with linked(handler, headers={"authorization": "Bearer t0p"}) as (link, notes):
            link.send(request(1, "tools/list"))
            await notes.next()
    assert "t0p" not in caplog.text
    assert "hidden" not in caplog.text


async def test_an_unreachable_server_fails_the_request_unsent_and_closes_the_link() -> None:
    notes = Notes()
    port = unused_port()
    link = HttpLink(f"http://user:t0p@127.0.0.1:{port}/mcp", {}, "legacy", notes, LIMIT)
    link.send(request(1, "initialize"))
    kind, _, reason, sent = await notes.next()
    assert (kind, sent) == ("failed", False)
    assert reason.startswith(f"cannot be reached at http://127.0.0.1:{port} (ConnectError")
    assert await notes.next() == ("closed", reason)
    link.send(request(2, "tools/list"))
    assert await notes.next() == ("failed", 2, reason, False)
    await link.close()


async def test_a_link_may_be_closed_by_another_task_with_requests_in_flight() -> None:
    server = Legacy(get=True)
    async with linked(server) as (link, notes):
        await handshake(link, notes)
        unasked, _ = await server.next()
        link.send(request(2, "tools/call"))
        asked, done = await server.next()
        await asyncio.create_task(link.close())
        await soon(asked.gone)
        await soon(unasked.gone)
        done.set()
        link.send(request(3, "tools/call"))
        assert await notes.next() == ("failed", 3, "the link is closed", False)


async def test_a_server_of_2024_is_found_behind_the_same_url() -> None:
    replies: asyncio.Queue[Any] = asyncio.Queue()

    async def handler(asked: Asked) -> None:
        if asked.method == "GET":
            await asked.stream()
            await asked.write(b"event: endpoint\ndata: /messages?s=1\n\n")
            await asked.event({"id": await replies.get(), "result": {}})
            await soon(asked.gone)
        elif asked.path == "/messages":
            await asked.answer(b"Accepted", status=202)
            replies.put_nowait(asked.id)
        else:
            await asked.answer(b"Method Not Allowed", status=405)

    async with linked(handler, fall_back=True) as (link, notes):
        link.send(request(1, "initialize"))
        assert await notes.message() == ({"jsonrpc": "2.0", "id": 1, "result": {}}, None)


# Against the SDK's own server.


async def _list(ctx: Any, params: Any) -> t.ListToolsResult:
    return t.ListToolsResult(
        tools=[t.Tool(name="echo", input_schema={"type": "object"})], ttl_ms=0, cache_scope="private"
    )


async def _call(ctx: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
    await ctx.session.report_progress(1, 2, "half")
    return t.CallToolResult(content=[t.TextContent(type="text", text=str(params.arguments))])


def sdk_server() -> Any:
    return Server("sdk", on_list_tools=_list, on_call_tool=_call).streamable_http_app()


@pytest.mark.parametrize("json_response", [False, True])
async def test_the_legacy_era_with_the_sdk(json_response: bool) -> None:
    app = Server("sdk", on_list_tools=_list, on_call_tool=_call).streamable_http_app(json_response=json_response)
    async with serving(app, lifespan=True) as url:
        notes = Notes()
        link = HttpLink(f"{url}/mcp", {}, "legacy", notes, LIMIT)
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": versions.IDENTITY}
        link.send(request(1, "initialize", **client))
        reply, _ = await notes.message()
        assert reply["result"]["protocolVersion"] == "2025-11-25"
        link.send(Message(method="notifications/initialized"))
        link.send(request(2, "tools/call", name="echo", arguments={"a": 1}, _meta={"progressToken": 2}))
        told = [await notes.message() for _ in range(1 if json_response else 2)]
        assert [request_id for _, request_id in told] == [2] * len(told)
        assert told[-1][0]["result"]["content"][0]["text"] == "{'a': 1}"
        await link.close()


async def test_the_modern_era_with_the_sdk() -> None:
    meta = {versions.META_VERSION: versions.LATEST_MODERN, versions.META_CAPABILITIES: {}}
    async with serving(sdk_server(), lifespan=True) as url:
        notes = Notes()
        link = HttpLink(f"{url}/mcp", {}, "modern", notes, LIMIT)
        link.send(request(1, "server/discover", _meta=meta))
        reply, _ = await notes.message()
        assert reply["result"]["supportedVersions"] == ["2026-07-28"]
        link.send(request(2, "tools/call", name="echo", arguments={}, _meta={**meta, "progressToken": 2}))
        assert [(await notes.message())[0].get("method") for _ in range(2)] == ["notifications/progress", None]
        link.send(request(3, "tools/list", _meta={versions.META_VERSION: "1999-01-01", versions.META_CAPABILITIES: {}}))
        reply, _ = await notes.message()
        assert reply["error"]["code"] == jsonrpc.HEADER_MISMATCH
        await link.close()
