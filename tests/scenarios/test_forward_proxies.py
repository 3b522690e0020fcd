"""Servers over HTTP where the environment names a proxy: those of this machine are reached without it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from callers import on_the_real_clock
from http_fakes import Asked, serving, unused_port, upstream
from requirements import requirement

from foretool import CallFailed, Foretool

pytestmark = [pytest.mark.anyio, on_the_real_clock]


async def server(asked: Asked) -> None:
    method = asked.body["method"] if asked.method == "POST" else ""
    if method == "initialize":
        await asked.result(
            {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "f"}}
        )
    elif method == "tools/list":
        await asked.result({"tools": [{"name": "run", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        await asked.result({"content": [{"type": "text", "text": "done"}]})
    else:
        await asked.answer(b"", status=202 if "id" not in (asked.body or {}) else 405)


@asynccontextmanager
async def socks_proxy(target: str) -> AsyncIterator[str]:
    """A SOCKS 5 proxy that connects to one address whatever it is asked for."""
    place = urlsplit(target)
    busy: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        await reader.readexactly(count)
        writer.write(b"\x05\x00")
        *_, kind = await reader.readexactly(4)
        await reader.readexactly((await reader.readexactly(1))[0] + 2 if kind == 3 else 6)
        far, to_far = await asyncio.open_connection(place.hostname, place.port)
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await asyncio.gather(copy(reader, to_far), copy(far, writer))

    def start(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        busy.add(task := asyncio.create_task(serve(reader, writer)))
        task.add_done_callback(lambda _: writer.close())

    listener = await asyncio.start_server(start, "127.0.0.1", 0)
    try:
        yield f"socks5://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


async def call(url: str, folder: Path) -> str:
    config = {
        "mcpServers": {"far": {"url": f"{url}/mcp"}},
        "foretool": {"storage": str(folder / "store.sqlite3"), "encoder": "none"},
    }
    async with Foretool(config) as ft:
        try:
            return (await ft.call("far__run")).text
        except CallFailed as error:
            return str(error)


@requirement("upstream:forward-proxy")
@pytest.mark.parametrize("dead", ["http://127.0.0.1:{port}", "socks5://127.0.0.1:{port}", "socks://127.0.0.1:{port}"])
async def test_a_server_of_this_machine_is_reached_without_the_proxy_that_the_environment_names(
    dead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, dead.format(port=unused_port()))
    async with serving(upstream(server)) as url:
        assert await call(url, tmp_path) == "done"


@requirement("upstream:forward-proxy")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of httpcore2: one cancelled while it greets a SOCKS proxy
async def test_another_server_is_reached_through_it_over_http_and_socks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(upstream(server)) as url, socks_proxy(url) as socks:
        for name, proxy in (("HTTP_PROXY", url), ("ALL_PROXY", socks)):
            with monkeypatch.context() as patch:
                patch.setenv(name, proxy)
                assert await call("http://mcp.example", tmp_path) == "done", name
    gc.collect()


@requirement("upstream:forward-proxy")
async def test_a_proxy_of_an_unknown_kind_is_named_by_its_variable_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks://user:t0p@127.0.0.1:1080")
    said = await call("http://mcp.example", tmp_path)
    assert "ALL_PROXY cannot be used: expected http://host:port, https://host:port or socks5://host:port" in said
    assert "t0p" not in said
