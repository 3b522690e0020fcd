"""Bytes to server-sent events; the HTTP+SSE link (2024-11-05) against a scripted upstream and the SDK's server."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import mcp_types as t
import pytest
from http_fakes import PATIENCE_S, Asked, Notes, request, serving, soon, unused_port, upstream
from hypothesis import given
from hypothesis import strategies as st
from mcp.server import Server
from mcp.server.sse import SseServerTransport
from requirements import requirement
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

from foretool.server.protocol import versions
from foretool.server.protocol.jsonrpc import Message
from foretool.server.transports.upstream.base import LinkError
from foretool.server.transports.upstream.sse import EventParser, SseEvent, TooLarge, open_sse

pytestmark = pytest.mark.anyio
LIMIT = 100_000


def scripted(*, endpoint: str = "/messages?s=1", status: int = 202, end: asyncio.Event | None = None) -> Any:
    """Replies to every request with `{}` on the stream; ends the stream when `end` is set."""
    replies: asyncio.Queue[Any] = asyncio.Queue()

    async def echo(asked: Asked) -> None:
        await asked.write(f"event: endpoint\ndata: {endpoint}\n\n".encode())
        while True:
            await asked.event({"id": await replies.get(), "result": {}})

    async def handler(asked: Asked) -> None:
        if asked.method == "POST":
            await asked.answer(b"Accepted", status=status)
            if status == 202:
                replies.put_nowait(asked.id)
            return
        await asked.stream()
        echoing = asyncio.create_task(echo(asked))
        await soon(end or asked.gone)
        echoing.cancel()
        await asyncio.wait([echoing])
        await asked.end()

    return upstream(handler)


async def test_messages_are_posted_and_replies_come_on_the_stream() -> None:
    async with serving(scripted()) as url:
        notes = Notes()
        link = await open_sse(f"{url}/sse", {}, notes, LIMIT)
        link.send(request(1, "tools/list"))
        assert await notes.message() == ({"jsonrpc": "2.0", "id": 1, "result": {}}, None)
        assert link.abandon(1) is False
        await link.close()
        link.send(request(2, "tools/list"))
        assert await notes.next() == ("failed", 2, "the link is closed", False)


async def test_the_end_of_the_stream_is_the_end_of_the_link() -> None:
    end = asyncio.Event()
    async with serving(scripted(end=end)) as url:
        notes = Notes()
        link = await open_sse(f"{url}/sse", {}, notes, LIMIT)
        end.set()
        assert await notes.next() == ("closed", "ended its event stream")
        await link.close()


async def test_a_message_that_is_refused_fails_its_request() -> None:
    async with serving(scripted(status=401)) as url:
        notes = Notes()
        link = await open_sse(f"{url}/sse", {}, notes, LIMIT)
        link.send(request(1, "tools/list"))
        kind, _, reason, sent = await notes.next()
        assert (kind, sent) == ("failed", True)
        assert "put a valid one into headers" in reason
        await link.close()


@requirement("session:expired")
async def test_a_server_that_no_longer_knows_the_session_of_its_stream_has_not_handled_the_request() -> None:
    async def handler(asked: Asked) -> None:
        if asked.method == "POST":
            await asked.answer(b"No transport found for sessionId", status=400, kind="text/plain")
        else:
            await asked.stream()
            await asked.write(b"event: endpoint\ndata: /messages?sessionId=1\n\n")
            await soon(asked.gone)

    async with serving(upstream(handler)) as url:
        notes = Notes()
        link = await open_sse(f"{url}/sse", {}, notes, LIMIT)
        link.send(request(1, "tools/list"))
        assert await notes.next() == ("expired", 1)
        await link.close()


async def test_credentials_are_not_taken_to_another_origin() -> None:
    async with serving(scripted(endpoint="http://elsewhere.example/messages")) as url:
        with pytest.raises(LinkError, match=r"named an endpoint at http://elsewhere.example, which is not where"):
            await open_sse(f"{url}/sse", {}, Notes(), LIMIT)


@requirement("http:redirects")
async def test_a_redirect_of_the_stream_is_followed_and_its_endpoint_is_read_from_there() -> None:
    posted: asyncio.Queue[str] = asyncio.Queue()

    async def handler(asked: Asked) -> None:
        if asked.path == "/sse":
            await asked.answer(b"", status=307, location="/deep/sse")
        elif asked.method == "POST":
            posted.put_nowait(asked.path)
            await asked.answer(b"", status=202)
        else:
            await asked.stream()
            await asked.write(b"event: endpoint\ndata: messages\n\n")
            await soon(asked.gone)

    async with serving(upstream(handler)) as url:
        link = await open_sse(f"{url}/sse", {}, Notes(), LIMIT)
        link.send(request(1, "tools/list"))
        async with asyncio.timeout(PATIENCE_S):
            assert await posted.get() == "/deep/messages"
        await link.close()


async def test_a_server_that_is_not_there_or_refuses_is_said_at_once() -> None:
    with pytest.raises(LinkError, match=r"cannot be reached at http://127.0.0.1"):
        await open_sse(f"http://127.0.0.1:{unused_port()}/sse", {}, Notes(), LIMIT)

    async def refuse(asked: Asked) -> None:
        await asked.answer(b"", status=401)

    async with serving(upstream(refuse)) as url:
        with pytest.raises(LinkError, match="answered HTTP 401: it wants another Authorization"):
            await open_sse(f"{url}/sse", {}, Notes(), LIMIT)


async def test_the_deprecated_transport_with_the_sdk() -> None:
    async def listing(ctx: Any, params: Any) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[t.Tool(name="echo", input_schema={"type": "object"})])

    server, transport = Server("sdk", on_list_tools=listing), SseServerTransport("/messages/")
    over = asyncio.Event()

    async def stream(http: Any) -> Response:
        async with transport.connect_sse(http.scope, http.receive, http._send) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
        over.set()
        return Response()

    app = Starlette(routes=[Route("/sse", stream), Mount("/messages/", app=transport.handle_post_message)])
    async with serving(app) as url:
        notes = Notes()
        link = await open_sse(f"{url}/sse", {}, notes, LIMIT)
        client = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": versions.IDENTITY}
        link.send(request(1, "initialize", **client))
        assert (await notes.message())[0]["result"]["protocolVersion"] == "2024-11-05"
        link.send(Message(method="notifications/initialized"))
        link.send(request(2, "tools/list"))
        assert (await notes.message())[0]["result"]["tools"][0]["name"] == "echo"
        await link.close()
        await soon(over)


STREAM = (
    b"\xef\xbb\xbf: hello\r\nid: 1\r\nretry: 250\r\ndata:\r\n\r\n"
    b'event: message\rdata: {"a":\rdata:1}\r\r'
    b"data: two\nid: 7\nunknown: x\ndata\n\n"
    b"event: endpoint\ndata: /x\n\nid: 8\n\ndata: cut off"
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_do_not_depend_on_how_the_bytes_are_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    events = EventParser(1000)
    found = [event for a, b in pairwise(places) for event in events.feed(STREAM[a:b])]
    assert found == [SseEvent("message", b'{"a":\n1}'), SseEvent("message", b"two\n"), SseEvent("endpoint", b"/x")]
    assert (events.last_id, events.retry_ms, events.seen) == ("8", 250, 5)


def test_an_event_over_the_limit_is_refused_before_it_is_whole() -> None:
    events = EventParser(100)
    assert list(events.feed(b"data: " + b"x" * 90 + b"\n\n")) == [SseEvent("message", b"x" * 90)]
    with pytest.raises(TooLarge):
        list(events.feed(b"data: 1\n" * 20))
    with pytest.raises(TooLarge):
        list(EventParser(100).feed(b"data: " + b"x" * 100))


def test_comments_without_end_are_no_event() -> None:
    events = EventParser(100)
    for _ in range(1000):
        assert list(events.feed(b": ping\n")) == []


def test_a_new_connection_drops_what_was_cut_off() -> None:
    events = EventParser(100)
    assert list(events.feed(b"id: 3\n\ndata: hal")) == []
    events.restart()
    assert list(events.feed(b"data: whole\n\n")) == [SseEvent("message", b"whole")]
    assert events.last_id == "3"
