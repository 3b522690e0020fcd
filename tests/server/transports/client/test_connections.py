"""The connections of HTTP clients: which of them go when there are too many, and when they waste our time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from http_callers import Caller, deaf, http_server, notice
from http_fakes import PATIENCE_S
from requirements import requirement

from foretool.server.transports.client import connections, listener
from foretool.server.transports.client.http_rules import HttpLimits

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def accepted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux would keep connections that send nothing to itself."""
    monkeypatch.setattr(listener, "DEFER_S", 0)


Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def lines(caller: Caller, count: int) -> AsyncIterator[list[Line]]:
    """Connections, opened one after the other."""
    opened: list[Line] = []
    try:
        for _ in range(count):
            opened.append(await asyncio.open_connection("127.0.0.1", caller.server.address.port))
            await asyncio.sleep(0)
        yield opened
    finally:
        for _, writer in opened:
            writer.close()


async def ended(line: Line) -> bytes:
    """What is said on a connection until its end."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            return await line[0].read()
        except ConnectionError:
            return b""


async def asked(line: Line, path: str = "/health", more: str = "") -> bytes:
    """The status line of an answer on a connection that is kept."""
    line[1].write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n".encode())
    async with asyncio.timeout(PATIENCE_S):
        head = await line[0].readuntil(b"\r\n\r\n")
        size = next(int(each[15:]) for each in head.splitlines() if each.startswith(b"content-length:"))
        await line[0].readexactly(size)
    return head.splitlines()[0]


@requirement("trust:http:smuggling")
async def test_a_request_that_names_a_host_of_its_own_in_its_target_is_refused() -> None:
    async with http_server(tokens={"a": ["*"]}) as caller, lines(caller, 1) as (line,):
        assert b"421" in await asked(line, "http://evil.example/health")


@requirement("trust:http:connections")
async def test_the_oldest_that_has_shown_no_token_makes_room() -> None:
    async with http_server(tokens={"a": ["*"]}, max_connections=4) as caller, lines(caller, 4) as first:
        known = first[0]
        assert b"406" in await asked(known, "/mcp", "authorization: Bearer a\r\n")
        async with lines(caller, 3):
            for line in first[1:]:
                assert await ended(line) == b""
            assert b"200" in await asked(known)
            assert len(caller.server.connections) == 4


@requirement("trust:http:connections")
async def test_among_known_ones_an_idle_one_of_the_token_with_most_makes_room() -> None:
    async with http_server(tokens={"a": ["*"], "b": ["*"]}, max_connections=4) as caller, lines(caller, 4) as first:
        for line, token in zip(first, "abbb", strict=True):
            assert b"406" in await asked(line, "/mcp", f"authorization: Bearer {token}\r\n")
        async with lines(caller, 1) as newest:
            assert await ended(first[1]) == b""
            assert b"200" in await asked(newest[0])
            assert b"200" in await asked(first[0])


@requirement("trust:http:connections")
async def test_a_token_that_holds_more_than_its_share_of_busy_connections_loses_one_and_no_other() -> None:
    async with http_server(tokens={"a": ["*"], "b": ["*"]}, max_connections=4) as caller:
        held = {"mcp-protocol-version": "2026-07-28", "mcp-method": "hold"}
        writers = [await deaf(caller, "hold", {**held, "authorization": f"Bearer {token}"}) for token in "abbb"]
        for _ in writers:
            await caller.front_after_call() if not caller.fronts.fronts else await asyncio.sleep(0.01)
        async with lines(caller, 1) as newest:
            assert b"200" in await asked(newest[0])
        fronts = {front.principal: front for front in caller.fronts.fronts}
        cancelled = [front.cancelled.qsize() for front in fronts.values()]
        assert sorted(cancelled) == [0, 1]
        for writer in writers:
            writer.close()


@requirement("trust:http:connections")
async def test_where_all_are_busy_the_newest_is_told_to_come_back() -> None:
    async with http_server(max_connections=2) as caller:
        held = {"mcp-protocol-version": "2026-07-28", "mcp-method": "hold"}
        writers = [await deaf(caller, "hold", held) for _ in range(2)]
        await caller.front_after_call()
        async with lines(caller, 1) as newest:
            said = await ended(newest[0])
            assert said.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 5" in said
        for writer in writers:
            writer.close()


@requirement("trust:http:headers-deadline")
@pytest.mark.parametrize("sent", [b"", b"\r\n", b"G", b"GET /health HTTP/1.1\r\nhost: x\r\nx:"])
async def test_headers_that_do_not_come_are_not_waited_for(sent: bytes) -> None:
    async with http_server(header_s=0.1) as caller, lines(caller, 2) as (fresh, used):
        assert b"200" in await asked(used)
        fresh[1].write(sent)
        assert (await ended(fresh)).startswith(b"HTTP/1.1 408 ")
        if sent:
            used[1].write(sent)
            assert (await ended(used)).startswith(b"HTTP/1.1 408 ")
        else:
            assert b"200" in await asked(used)  # an idle one may stay


@requirement("trust:http:headers-deadline")
async def test_a_drip_of_header_bytes_buys_no_time() -> None:
    async with http_server(header_s=0.2) as caller, lines(caller, 1) as (line,):

        async def drip() -> None:
            while True:
                line[1].write(b"x")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        assert (await ended(line)).startswith((b"HTTP/1.1 408 ", b""))
        dripping.cancel()


HEAD = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: */*\r\n"
TOO_MUCH = {
    "lines": b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 10_000,
    "line": b"GET /" + b"x" * 200_000,
    "one header": b"GET / HTTP/1.1\r\nx: " + b"y" * 200_000,
    "many headers": b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"x: y\r\n" * 200 + b"\r\n",
    "trailers": HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n" + b"x: y\r\n" * 30_000,
    "one trailer": HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nx: " + b"y" * 200_000,
    "chunk extension": HEAD + b"transfer-encoding: chunked\r\n\r\n1;" + b"y" * 200_000,
}


@requirement("limits:size")
@pytest.mark.parametrize("sent", TOO_MUCH.values(), ids=TOO_MUCH)
async def test_what_is_around_a_body_is_limited(sent: bytes) -> None:
    async with http_server() as caller, lines(caller, 1) as (line,):
        line[1].write(sent)
        said = await ended(line)
        assert said == b"" or said.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 ")), said
        async with caller.modern("tools/list") as response:
            assert response.status_code == 200


@requirement("limits:size")
async def test_a_body_of_tiny_chunks_is_read() -> None:
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"x": "%b"}}' % (b"x" * 40_000)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\nx-trailer: y\r\n\r\n"
    async with http_server() as caller, lines(caller, 1) as (line,):
        line[1].write(HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks)
        assert b"200" in await line[0].readline()


@requirement("trust:http:smuggling")
async def test_a_trailer_is_no_header() -> None:
    async with http_server(tokens={"a": ["*"]}) as caller, lines(caller, 1) as (line,):
        body = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize"}'
        sent = b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\nauthorization: Bearer a\r\n\r\n" % (len(body), body)
        line[1].write(HEAD + sent)
        assert b"401" in await line[0].readline()


@requirement("trust:http:smuggling")
async def test_one_request_behind_another_shows_a_token_of_its_own() -> None:
    async with http_server(tokens={"a": ["*"]}) as caller, lines(caller, 1) as (line,):
        get = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\n"
        line[1].write(
            (get + b"authorization: Bearer a\r\n\r\n") + (get + b"\r\n") * 3 + get + b"connection: close\r\n\r\n"
        )
        said = await ended(line)
        statuses = [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]]
        assert statuses == [b"406", b"401", b"401", b"401", b"401"]


@requirement("trust:http:smuggling")
async def test_only_a_few_requests_wait_behind_another() -> None:
    async with http_server() as caller, lines(caller, 1) as (line,):
        line[1].write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 300)
        said = await ended(line)
        assert said.count(b'{"status":"ok"}') <= connections.MOST_PIPELINED + 1
        async with caller.modern("tools/list") as response:
            assert response.status_code == 200


@requirement("limits:size")
async def test_a_stranger_sends_little_behind_an_answer() -> None:
    async with http_server(tokens={"a": ["*"]}, header_s=0.5) as caller, lines(caller, 1) as (line,):
        line[1].write(HEAD + b"content-length: 3000000\r\n\r\n" + b"x" * 2_000_000)
        said = await ended(line)
        assert said.startswith(b"HTTP/1.1 401 ") or not said
        assert len(caller.server.connections) == 0


@requirement("limits:size")
async def test_much_of_many_behind_answers_is_read_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LEFT_RATE", 100_000)
    async with http_server(max_body=1000, header_s=0.4) as caller, lines(caller, 1) as (line,):
        line[1].write(HEAD + b"content-length: 600000\r\n\r\n")
        assert (await line[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413 ")
        line[1].write(b"x" * 600_000)
        async with asyncio.timeout(PATIENCE_S):
            while not caller.server.connections._paused:
                await asyncio.sleep(0)
        caller.server.connections.sweep(asyncio.get_running_loop().time())
        assert not caller.server.connections._paused


@requirement("limits:size")
async def test_what_comes_behind_an_answer_is_thrown_away_and_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LEFT_BYTES", 1_000_000)
    async with http_server(max_body=1000) as caller, lines(caller, 2) as (some, much):
        for line in (some, much):
            line[1].write(HEAD + b"content-length: 3000000\r\n\r\n")
            head = await line[0].readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 413 ")
        some[1].write(b"x" * 500_000)
        with pytest.raises(ConnectionError):
            for _ in range(300):
                much[1].write(b"x" * 10_000)
                await much[1].drain()
                await asyncio.sleep(0)
            raise ConnectionResetError if not await ended(much) else AssertionError
        assert not some[1].is_closing()


@requirement("trust:http:slow-readers")
async def test_answers_that_nobody_reads_are_bounded_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "UNREAD_BYTES", 20_000_000)
    async with http_server(tokens={"a": ["*"], "b": ["*"]}) as caller:
        held = {"mcp-protocol-version": "2026-07-28", "mcp-method": "hold"}
        writers = [await deaf(caller, "hold", {**held, "authorization": f"Bearer {token}"}) for token in "abbbbbb"]
        await caller.front_after_call()
        for front in caller.fronts.fronts:
            for _ in range(front.held.qsize()):
                _, channel = await front.next()
                channel.finish(notice(1, 5_000_000), None)
        async with caller.modern("tools/list", extra={"authorization": "Bearer a"}) as response:
            assert response.status_code == 200
        await asyncio.sleep(0.05)
        unread = [each.transport.get_write_buffer_size() for each in caller.server.connections._all()]
        assert sum(unread) <= 20_000_000
        assert max(
            each.transport.get_write_buffer_size() for each in caller.server.connections._all() if each.principal
        )
        for writer in writers:
            writer.close()


@requirement("trust:http:slow-readers")
async def test_a_connection_that_is_kept_and_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.1)
    async with http_server(header_s=0.2) as caller:
        held = {"mcp-protocol-version": "2026-07-28", "mcp-method": "hold"}
        writer = await deaf(caller, "hold", held)
        _, channel = await caller.front_after_call()
        channel.finish(notice(1, 8_000_000), None)
        async with asyncio.timeout(PATIENCE_S):
            while len(caller.server.connections):
                await asyncio.sleep(0.01)
        writer.close()


async def test_no_more_connections_than_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_most_files", lambda: 8)
    found = connections.Connections(HttpLimits(max_connections=100), 1)
    assert found._most == 6
