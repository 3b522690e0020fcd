"""One upstream: when it starts, in which era it is spoken to, and how it comes back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import BOTH, LEGACY, MODERN, PATIENCE_S, FakeUpstream, SwiftLoop, tool
from http_fakes import Asked as HttpAsked
from http_fakes import serving
from http_fakes import upstream as served
from requirements import requirement

from foretool.server.protocol import versions
from foretool.server.protocol.jsonrpc import Message, Raw, raw
from foretool.server.transports.upstream.http import open_http
from foretool.server.transports.upstream.stdio import ChildWatcher, open_stdio
from foretool.server.upstreams import upstream as upstreams
from foretool.server.upstreams.connection import Lost, Reply, Request
from foretool.server.upstreams.upstream import BACKOFF_S, LIST_AGAIN_S, LIST_S, LONG_LIST_S, OpenLink, State, Upstream
from foretool.storage.records import Era

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SwiftLoop}


class Host:
    """Who the upstream reports to."""

    def __init__(self) -> None:
        self.tools: list[int] = []
        self.states: list[State] = []

    def on_tools(self, upstream: Upstream, tools: Sequence[Raw]) -> None:
        self.tools.append(len(tools))

    def on_state(self, upstream: Upstream) -> None:
        self.states.append(upstream.state)

    def on_notification(self, upstream: Upstream, message: Message, era: Era) -> None: ...

    def on_request(
        self, upstream: Upstream, message: Message, request: Request | None, answer: Callable[[Message], None]
    ) -> None: ...


@asynccontextmanager
async def running(fake: FakeUpstream, **options: Any) -> AsyncIterator[tuple[Upstream, Host]]:
    host = Host()
    upstream = Upstream(fake.name, host, fake.opened, **options)
    task = asyncio.ensure_future(upstream.run())
    await asyncio.sleep(0)
    try:
        yield upstream, host
    finally:
        await upstream.stop()
        await task


async def called(upstream: Upstream, era: Era = "legacy", patience: float = PATIENCE_S) -> Reply:
    done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    upstream.request(era, Request("tools/call", {"name": raw("add")}, done.set_result))
    async with asyncio.timeout(patience):
        return await done


async def test_nothing_starts_until_it_is_wanted() -> None:
    fake = FakeUpstream("calc", ["add"])
    async with running(fake) as (upstream, host):
        await asyncio.sleep(10)
        assert (fake.starts, upstream.state) == (0, State.KNOWN)
        reply = await called(upstream)
        assert isinstance(reply, Message)
        await fake.asked("tools/list")
        await asyncio.sleep(0.01)
        assert (fake.starts, upstream.state, host.tools) == (1, State.READY, [1])


@pytest.mark.parametrize(("eras", "era", "spoken"), [
    (LEGACY, "legacy", {"legacy": True}),
    (LEGACY, "modern", {"modern": False, "legacy": True}),
    (MODERN, "modern", {"modern": True}),
    (MODERN, "legacy", {"modern": True, "legacy": False}),
    (BOTH, "legacy", {"legacy": True}),
    (BOTH, "modern", {"modern": True}),
])  # fmt: skip
async def test_what_is_learned_of_its_eras(eras: tuple[Era, ...], era: Era, spoken: dict[Era, bool]) -> None:
    async with running(FakeUpstream("calc", ["add"], eras)) as (upstream, _):
        assert isinstance(await called(upstream, era), Message)
        assert upstream.speaks == spoken


async def test_one_process_serves_both_eras_once_it_has_turned_out_to_speak_the_legacy_one_alone() -> None:
    fake = FakeUpstream("calc", ["add"], LEGACY)
    async with running(fake) as (upstream, _):
        await called(upstream, "legacy")
        await called(upstream, "modern")
        await asyncio.sleep(1)
        assert len(fake.links) == 1
        fake.die()
        await called(upstream, "modern")
        await called(upstream, "legacy")
        await asyncio.sleep(100)
        assert (len(fake.links), upstream.state, upstream.in_flight) == (1, State.READY, 0)


async def test_a_failing_start_is_tried_again_after_growing_pauses_and_at_once_when_wanted() -> None:
    fake = FakeUpstream("calc", ["add"], missing="command 'calc' was not found")
    async with running(fake) as (upstream, host):
        assert await called(upstream) == Lost("command 'calc' was not found", False)
        await asyncio.sleep(sum(BACKOFF_S[1:4]) + 0.5)
        assert fake.starts == 4
        assert (upstream.state, upstream.error) == (State.RETRYING, "command 'calc' was not found")
        fake.missing = ""
        assert isinstance(await called(upstream), Message)
        assert host.states[-1] is State.READY
        assert upstream.error == ""


async def test_errors_are_shown_without_secrets() -> None:
    fake = FakeUpstream("calc", ["add"], missing="token s3cret is wrong")
    async with running(fake, redact=lambda text: text.replace("s3cret", "[TOKEN]")) as (upstream, _):
        assert await called(upstream) == Lost("token [TOKEN] is wrong", False)
        fake.missing = ""
        assert isinstance(await called(upstream), Message)
        fake.die("exited: s3cret")
        assert upstream.error == "exited: [TOKEN]"


async def test_requests_that_wait_too_long_for_a_start_are_given_up() -> None:
    fake = FakeUpstream("calc", ["add"], gate=asyncio.Event())
    async with running(fake) as (upstream, _):
        replies: list[Reply] = []
        upstream.request("legacy", Request("tools/call", {}, replies.append, timeout=0.000001))
        await asyncio.sleep(0)
        upstream.expire()
        assert replies == [Lost("no answer within 1e-06 s", False)]


async def test_after_stop_nothing_is_sent_and_nothing_starts() -> None:
    fake = FakeUpstream("calc", ["add"])
    async with running(fake) as (upstream, _):
        await called(upstream)
        await upstream.stop()
        reply = await called(upstream)
        assert isinstance(reply, Lost)
        assert not reply.sent
        await asyncio.sleep(100)
    assert (fake.starts, fake.links) == (1, [])


async def test_a_mistake_of_ours_while_starting_is_told_to_whoever_waits_and_tried_again() -> None:
    fake = FakeUpstream("calc", ["add"])
    works = fake.opened
    async with running(fake) as (upstream, _):

        async def broken(*_: Any) -> Any:
            raise RuntimeError("a mistake")

        upstream._open_link = broken
        reply = await called(upstream)
        assert isinstance(reply, Lost)
        assert "RuntimeError" in reply.reason
        upstream._open_link = works
        assert isinstance(await called(upstream), Message)


@pytest.mark.parametrize("turns", range(12))
async def test_it_can_be_stopped_at_any_moment_of_its_start(turns: int) -> None:
    fake = FakeUpstream("calc", ["add"])
    async with asyncio.timeout(PATIENCE_S):
        async with running(fake) as (upstream, _):
            upstream.start("legacy")
            for _ in range(turns):
                await asyncio.sleep(0)
    assert fake.links == []


async def test_changes_announced_in_a_row_are_asked_for_once() -> None:
    fake = FakeUpstream("calc", ["add"])
    async with running(fake) as (upstream, host):
        await called(upstream)
        for _ in range(10):
            fake.change("add", "sub")
        await asyncio.sleep(1)
        assert host.tools == [1, 2]


@requirement("catalog:list-again")
@pytest.mark.parametrize("eras", [LEGACY, MODERN])
async def test_one_that_refuses_to_list_is_asked_again_after_growing_pauses(eras: tuple[Era, ...]) -> None:
    fake = FakeUpstream("calc", ["add"], eras)
    fake.scripts["tools/list"] = lambda asked: asked.fail(-32000, "log in first")
    async with running(fake) as (upstream, host):
        await called(upstream, eras[0])
        for count, pause in enumerate((*LIST_AGAIN_S, LIST_AGAIN_S[-1], LIST_AGAIN_S[-1]), 1):
            await asyncio.sleep(0.01)
            assert (fake.count("tools/list"), upstream.state, host.tools) == (count, State.UNLISTED, [])
            assert "its tools could not be listed" in upstream.error and "log in first" in upstream.error
            assert isinstance(await called(upstream, eras[0]), Message)  # calls are served meanwhile
            await asyncio.sleep(pause)
        del fake.scripts["tools/list"]
        await asyncio.sleep(LIST_AGAIN_S[-1])
        assert (upstream.state, upstream.error, host.tools) == (State.READY, "", [1])
        asked = fake.count("tools/list")
        await asyncio.sleep(3 * LIST_AGAIN_S[-1])
        assert fake.count("tools/list") == asked
        assert fake.starts == len(eras)


@requirement("catalog:list-again")
@pytest.mark.parametrize("eras", [LEGACY, MODERN])
async def test_one_that_takes_long_to_list_gets_longer_the_second_time(eras: tuple[Era, ...]) -> None:
    fake = FakeUpstream("calc", ["add"], eras)
    fake.hold("tools/list")
    async with running(fake) as (upstream, host):
        await called(upstream, eras[0])
        await asyncio.sleep(LIST_S + 0.5)
        assert (upstream.state, upstream.error[-22:]) == (State.UNLISTED, "tools/list within 60 s")
        second = await fake.asked("tools/list", 2)
        await asyncio.sleep(LONG_LIST_S - 5.0)
        second.reply({"tools": [tool("add")]})
        await asyncio.sleep(0.1)
        assert (upstream.state, host.tools, fake.count("tools/list")) == (State.READY, [1], 2)


@requirement("catalog:list-again")
async def test_an_announcement_does_not_wait_for_the_pause() -> None:
    fake = FakeUpstream("calc", ["add"])
    fake.scripts["tools/list"] = lambda asked: asked.fail(-32000, "log in first")
    async with running(fake) as (upstream, host):
        await called(upstream)
        await asyncio.sleep(sum(LIST_AGAIN_S[:-1]) + 1.0)
        del fake.scripts["tools/list"]
        fake.change("add", "sub")
        await asyncio.sleep(1.0)
        assert (upstream.state, host.tools) == (State.READY, [2])


@requirement("catalog:list-again")
async def test_one_without_a_list_is_not_put_to_rest_and_a_stopped_one_is_not_asked_again() -> None:
    fake = FakeUpstream("calc", ["add"])
    fake.scripts["tools/list"] = lambda asked: asked.fail(-32000, "log in first")
    async with running(fake) as (upstream, _):
        await called(upstream)
        await asyncio.sleep(0.1)
        upstream.rest()
        assert upstream.state is State.UNLISTED
    asked = fake.count("tools/list")
    await asyncio.sleep(2 * LIST_AGAIN_S[-1])
    assert fake.count("tools/list") == asked


def over_stdio(url: str, watcher: ChildWatcher) -> OpenLink:
    arguments = [str(Path(__file__).parents[2] / "support" / "echo_upstream.py"), "--refuse", "2"]
    return lambda receiver, era: open_stdio(sys.executable, arguments, {}, None, receiver, watcher, 100_000)


def over_http(url: str, watcher: ChildWatcher) -> OpenLink:
    return lambda receiver, era: open_http(url, {}, era, receiver, 100_000)


def sulking(era: Era) -> Callable[[HttpAsked], Any]:
    """A server over HTTP that fails twice to list: with an error, and with a status."""
    lists = 0
    modern = {"resultType": "complete", "supportedVersions": [versions.LATEST_MODERN], "capabilities": {"tools": {}}}
    legacy = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x"}}

    async def handle(asked: HttpAsked) -> None:
        nonlocal lists
        method = asked.body["method"] if asked.body else ""
        if method == ("server/discover" if era == "modern" else "initialize"):
            await asked.result(modern if era == "modern" else legacy)
        elif method == "tools/list":
            lists += 1
            if lists == 1:
                error = {"code": -32000, "message": "log in first"}
                await asked.answer({"jsonrpc": "2.0", "id": asked.id, "error": error})
            elif lists == 2:
                await asked.answer(b"the gateway is down", status=502, kind="text/plain")
            else:
                await asked.result({"resultType": "complete", "tools": [tool("echo"), tool("weather")]})
        else:
            await asked.answer(b"", status=202 if "id" not in (asked.body or {"id": 0}) else 405, kind="text/plain")

    return handle


@requirement("catalog:list-again")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(("opened", "era"), [(over_stdio, "legacy"), (over_http, "legacy"), (over_http, "modern")])
async def test_over_real_transports_it_is_asked_again_too(
    opened: Callable[[str, ChildWatcher], OpenLink], era: Era, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstreams, "LIST_AGAIN_S", (0.01,))
    host, watcher = Host(), ChildWatcher()
    async with serving(served(sulking(era))) as url:
        upstream = Upstream("echo", host, opened(url, watcher))
        task = asyncio.ensure_future(upstream.run())
        await asyncio.sleep(0)
        upstream.start(era)
        async with asyncio.timeout(PATIENCE_S):
            while not host.tools:
                await asyncio.sleep(0.01)
        assert (host.tools, host.states.count(State.UNLISTED), upstream.state) == ([2], 2, State.READY)
        await upstream.stop()
        await task
    watcher.close()
