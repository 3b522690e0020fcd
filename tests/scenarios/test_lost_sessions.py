"""A remote server that has forgotten our session and says so as real ones do: a new one begins, nothing runs twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from callers import on_the_real_clock
from http_fakes import Asked, serving, soon, upstream
from requirements import requirement

from foretool import Foretool

pytestmark = [pytest.mark.anyio, on_the_real_clock]

Refusal = Callable[[Asked], tuple[int, Any]]


def rpc(status: int, code: int, message: str, ident: Any = None) -> Refusal:
    """Refuse with a JSON-RPC error; `ident` "own" stands for the id of the request."""
    return lambda asked: (
        status,
        {
            "jsonrpc": "2.0",
            "id": asked.body.get("id") if ident == "own" else ident,
            "error": {"code": code, "message": message},
        },
    )


def plain(status: int, text: str) -> Refusal:
    return lambda asked: (status, text.encode())


class Forgetful:
    """A server that remembers sessions until `forget`, and refuses what comes in another."""

    def __init__(self, refuse: Refusal) -> None:
        self.refuse = refuse
        self.sessions: set[str] = set()
        self.remembers = True
        self.begun = 0
        self.calls: list[str] = []
        self.held = asyncio.Event()
        self.is_held = asyncio.Event()

    def forget(self) -> None:
        self.sessions.clear()

    async def __call__(self, asked: Asked) -> None:
        if asked.method != "POST":
            await asked.answer(b"", status=405)
        elif asked.body["method"] == "initialize":
            self.begun += 1
            if self.remembers:
                self.sessions.add(f"s-{self.begun}")
            greeting = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "f"}}
            await asked.result(greeting, mcp_session_id=f"s-{self.begun}")
        elif asked.body["method"] == "server/discover":
            await asked.answer(b"", status=400)
        elif asked.headers.get("mcp-session-id") not in self.sessions:
            status, body = self.refuse(asked)
            await asked.answer(
                body, status=status, kind="text/plain" if isinstance(body, bytes) else "application/json"
            )
        else:
            await self.serve(asked)

    async def serve(self, asked: Asked) -> None:
        method = asked.body["method"]
        if method == "tools/list":
            names = ("run", "hold", "fail")
            await asked.result({"tools": [{"name": each, "inputSchema": {"type": "object"}} for each in names]})
        elif method == "tools/call":
            name = asked.body["params"]["name"]
            self.calls.append(name)
            if name == "fail":
                error = {"code": -32001, "message": "Session not found: browser 7"}
                await asked.answer({"jsonrpc": "2.0", "id": asked.id, "error": error})
                return
            if name == "hold":
                self.is_held.set()
                await soon(self.held)
            await asked.result({"content": [{"type": "text", "text": "done"}]})
        elif "id" in asked.body:
            await asked.result({})
        else:
            await asked.answer(b"", status=202)


@asynccontextmanager
async def client_of(server: Forgetful, folder: Path) -> AsyncIterator[Foretool]:
    async with serving(upstream(server)) as url:
        config = {
            "mcpServers": {"far": {"url": f"{url}/mcp"}},
            "foretool": {"storage": str(folder / "store.sqlite3"), "encoder": "none"},
        }
        async with Foretool(config) as ft:
            assert (await ft.call("far__run")).text == "done"
            yield ft


NOT_FOUND = "Session not found"
FORMS = {
    "404": plain(404, "Not Found"),
    "404 of the Python SDK": rpc(404, -32600, NOT_FOUND, "server-error"),
    "404 with the id of the request": rpc(404, -32001, NOT_FOUND, "own"),
    "400 of the TypeScript SDK": rpc(400, -32000, "Bad Request: No valid session ID provided"),
    "400 of a server that was restarted": rpc(400, -32000, "Bad Request: Server not initialized"),
    "400 with an object of its own": lambda asked: (400, {"error": "invalid sessionId"}),
    "401 of the Rust SDK": plain(401, "Unauthorized: Session not found"),
    "410": plain(410, "This session has ended"),
    "500": plain(500, "Error: unknown session"),
    "503": rpc(503, -32001, "MCP session is unknown on this API instance"),
    "200 with the id of the request": rpc(200, -32001, NOT_FOUND, "own"),
}


@requirement("session:expired")
@pytest.mark.parametrize("form", FORMS)
async def test_the_first_call_after_a_lost_session_works_in_a_new_one(form: str, tmp_path: Path) -> None:
    server = Forgetful(FORMS[form])
    async with client_of(server, tmp_path) as ft:
        server.forget()
        assert (await ft.call("far__run")).text == "done"
    assert (server.calls, server.begun) == (["run", "run"], 2)


@requirement("session:expired")
async def test_calls_that_find_a_session_lost_together_share_one_new_session(tmp_path: Path) -> None:
    server = Forgetful(FORMS["400 of the TypeScript SDK"])
    async with client_of(server, tmp_path) as ft:
        server.forget()
        results = await asyncio.gather(*(ft.call("far__run") for _ in range(5)))
    assert [result.text for result in results] == ["done"] * 5
    assert (server.calls, server.begun) == (["run"] * 6, 2)


@requirement("session:expired")
async def test_a_call_that_runs_when_its_session_is_lost_keeps_its_answer(tmp_path: Path) -> None:
    server = Forgetful(FORMS["503"])
    async with client_of(server, tmp_path) as ft:
        running = asyncio.ensure_future(ft.call("far__hold"))
        await soon(server.is_held)
        server.forget()
        assert (await ft.call("far__run")).text == "done"
        server.held.set()
        assert (await running).text == "done"
    assert server.calls == ["run", "hold", "run"]


@requirement("session:expired")
async def test_an_error_of_a_tool_about_a_session_of_its_own_is_its_answer(tmp_path: Path) -> None:
    server = Forgetful(FORMS["404"])
    async with client_of(server, tmp_path) as ft:
        with pytest.raises(Exception, match="Session not found: browser 7"):
            await ft.call("far__fail")
    assert (server.calls, server.begun) == (["run", "fail"], 1)


@requirement("session:expired")
@pytest.mark.parametrize(
    "refuse", [plain(503, "Service Unavailable"), plain(502, "Bad Gateway"), plain(500, "Session store is down")]
)
async def test_a_server_that_fails_for_another_reason_is_asked_once(refuse: Refusal, tmp_path: Path) -> None:
    server = Forgetful(refuse)
    async with client_of(server, tmp_path) as ft:
        server.forget()
        result = await ft.call("far__run")
    assert result.is_error and "it may have been carried out" in result.text
    assert (server.calls, server.begun) == (["run"], 1)


@requirement("session:expired")
async def test_a_server_that_forgets_each_session_at_once_is_named_after_two(tmp_path: Path) -> None:
    server = Forgetful(FORMS["404"])
    async with client_of(server, tmp_path) as ft:
        server.forget()
        server.remembers = False
        result = await ft.call("far__run")
    assert "refused it twice as one of an unknown session" in result.text
    assert server.calls == ["run"]
