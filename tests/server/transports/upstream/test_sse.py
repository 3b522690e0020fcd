"""The HTTP+SSE link (2024-11-05) against a scripted upstream and against the SDK's server."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as t
import pytest
from http_fakes import Asked, Notes, request, serving, soon, unused_port, upstream
from mcp.server import Server
from mcp.server.sse import SseServerTransport
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

from foretool.server.protocol import versions
from foretool.server.protocol.jsonrpc import Message
from foretool.server.transports.upstream.base import LinkError
from foretool.server.transports.upstream.sse import open_sse

pytestmark = pytest.mark.anyio
LIMIT = 100_000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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
        assert "set headers.Authorization" in reason
        await link.close()


async def test_credentials_are_not_taken_to_another_origin() -> None:
    async with serving(scripted(endpoint="http://elsewhere.example/messages")) as url:
        with pytest.raises(LinkError, match=r"named an endpoint at http://elsewhere.example, which is not where"):
            await open_sse(f"{url}/sse", {}, Notes(), LIMIT)


async def test_a_server_that_is_not_there_or_refuses_is_said_at_once() -> None:
    with pytest.raises(LinkError, match=r"cannot be reached at http://127.0.0.1"):
        await open_sse(f"http://127.0.0.1:{unused_port()}/sse", {}, Notes(), LIMIT)

    async def refuse(asked: Asked) -> None:
        await asked.answer(b"", status=401)

    async with serving(upstream(refuse)) as url:
        with pytest.raises(LinkError, match="answered HTTP 401: needs authorisation"):
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
