"""A server that is known to fail, seen by a client: nobody waits for it, and it comes back by itself."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from callers import Caller
from fakes import FakeUpstream, config_of, proxy_over
from fakes import said as said_by
from requirements import requirement

from foretool.server.config.servers import digest_entry
from foretool.server.upstreams.connection import HANDSHAKE_S
from foretool.storage.opening import open_store
from foretool.storage.records import Failure
from foretool.storage.store import Store

pytestmark = pytest.mark.anyio

KINDS = {
    "program missing": "command 'chatty' was not found",
    "exits at once": "exited with code 1 before it had answered",
    "refused": "cannot be reached at http://127.0.0.1:9 (ConnectError: All connection attempts failed)",
    "unauthorized": "answered HTTP 401: it wants another Authorization",
    "not there": "answered HTTP 404: nothing is served there",
}
"""What is seen of servers that cannot be used; one that never answers has a test of its own."""


DOCTOR = "tell the user, who can run `foretool doctor`"


def calc() -> FakeUpstream:
    return FakeUpstream("calc", ["add", "sub"])


def remember(store: Store, upstream: FakeUpstream, code: str, failing_s: float) -> None:
    """As after runs that have seen a server fail for so long."""
    entry = digest_entry(config_of(upstream).servers[upstream.name])
    now = time.time()
    store.serving.save_failure(Failure("chatty", entry, code, "no", now - failing_s, now, 9, now + failing_s))


async def describes(client: Caller) -> str:
    """What the list says that can be searched."""
    listed = (await client.ask("tools/list"))["tools"]
    (said,) = (each["description"] for each in listed if each["name"] == "discover_tools")
    return str(said)


async def saved(store: Store, count: int) -> None:
    while len(store.serving.failures()) != count:
        await asyncio.sleep(0.1)  # of the loop's own time


@requirement("start:dead")
@pytest.mark.parametrize("reason", KINDS.values(), ids=KINDS)
async def test_a_failure_is_remembered_with_its_code_until_the_server_works(reason: str) -> None:
    with open_store(":memory:") as store:
        dead = FakeUpstream("chatty", ["say"], missing=reason)
        async with proxy_over(calc(), dead, store=store) as stage:
            await stage.client.initialize()
            await saved(store, 1)
        (failure,) = store.serving.failures()
        assert failure.server == "chatty" and failure.code.startswith("FT") and failure.code in failure.reason
        async with proxy_over(calc(), FakeUpstream("chatty", ["say"]), store=store) as stage:
            await stage.client.initialize()  # it is tried in the background
            await saved(store, 0)
            found = await stage.client.discover("say")
        assert [each["name"] for each in found["matches"]][:1] == ["chatty__say"]


@requirement("start:dead")
async def test_no_list_and_no_search_waits_for_a_server_that_is_known_to_fail() -> None:
    with open_store(":memory:") as store:
        silent = FakeUpstream("chatty", ["say"], gate=asyncio.Event())
        remember(store, silent, "FT302", 3600.0)
        async with proxy_over(calc(), silent, store=store, cold_list_s=4, cold_search_s=4) as stage:
            began = asyncio.get_running_loop().time()
            await stage.client.initialize()
            said = await describes(stage.client)
            await stage.client.ask("prompts/list")
            answers = [await stage.client.discover(task) for task in ("quux", "quuz", "something chatty")]
            assert asyncio.get_running_loop().time() - began < 3
            causes = [miss.cause for miss in stage.misses()]
            called = await stage.client.call_tool("call_tool", {"name": "chatty__say", "arguments": {}})
            assert 3.9 < asyncio.get_running_loop().time() - began < 8
            assert silent.gate is not None
            silent.gate.set()  # it works after all
            await saved(store, 0)
            later = await describes(stage.client)
    down = f"Server chatty is down, so its tools are missing here: {DOCTOR}."
    assert [answer.get("absent") for answer in answers] == [down, None, down]
    assert "not listed yet" not in said and "2 servers" in later
    assert said_by(called).endswith(f"the server has not worked yet: {DOCTOR}") and "call again" not in said_by(called)
    assert "offline" not in causes[:2]  # nothing says that it has what was searched for


@requirement("start:dead")
async def test_a_server_whose_entry_cannot_be_used_is_named_like_one_that_is_down_and_a_disabled_one_is_not() -> None:
    brave = FakeUpstream("brave", ["search"], entry={"env": {"KEY": "${BRAVE_API_KEY}"}})
    off = FakeUpstream("off", ["run"], entry={"disabled": True})
    files = FakeUpstream("files", ["read"], entry={"args": ["${workspaceFolder}"]})
    async with proxy_over(calc(), brave, off, files, environ={"HOME": str(Path.cwd())}) as stage:
        await stage.client.initialize()
        answers = [await stage.client.discover(task) for task in ("quux", "quuz", "add", "ask brave about this")]
        called = {
            name: await stage.client.call_tool("call_tool", {"name": name, "arguments": {}})
            for name in ("brave__search", "off__run")
        }
        causes = {miss.tool: (miss.cause, miss.change) for miss in stage.misses() if miss.tool}
        looked_up = await stage.client.call_tool("discover_tools", {"names": ["brave__search", "nobodys"]})
    missing = f"Server brave is not set up, so its tools are missing here: {DOCTOR}."
    assert [answer.get("absent") for answer in answers] == [missing, None, None, missing]
    assert "the config entry of server 'brave' cannot be used, and foretool doctor brave says" in said_by(
        called["brave__search"]
    )
    assert "server 'off' is disabled; discover_tools finds other tools" in said_by(called["off__run"])
    assert "'brave__search' cannot be called: the config entry of server 'brave' cannot be used" in said_by(looked_up)
    assert "No tool is called 'nobodys'." in said_by(looked_up)
    assert causes["brave__search"] == (
        "offline", "the config entry of server 'brave' cannot be used: foretool doctor brave says what is wrong with it"
    )  # fmt: skip
    assert causes["off__run"] == ("gone", "server 'off' is disabled: foretool enable off")


@requirement("start:dead")
@pytest.mark.parametrize("after_s", [1.0, 0.0])
async def test_a_process_that_ends_before_it_has_answered_is_remembered_from_its_first_start_on(after_s: float) -> None:
    with open_store(":memory:") as store:
        dead = FakeUpstream(
            "chatty", ["say"], scripts={"initialize": lambda asked: asked.link.die("exited with code 1")}
        )
        async with proxy_over(calc(), dead, store=store) as stage:
            await stage.client.initialize()
            await dead.asked("initialize")
            await stage.client.list_tools()
            if after_s:
                await saved(store, 1)
        (failure,) = store.serving.failures()  # also of a run that ends at once
        assert (failure.server, failure.times, dead.starts) == ("chatty", 1, 1)


@requirement("start:dead")
@pytest.mark.parametrize("failing_s", [0.0, 3.0, 3600.0])
async def test_runs_that_follow_a_failure_start_the_server_again_after_a_pause_at_a_call_or_once_it_was_seen_to_work(
    failing_s: float,
) -> None:
    with open_store(":memory:") as store:
        dead = FakeUpstream("chatty", ["say"], missing="exited with code 1")
        remember(store, dead, "FT301", failing_s)
        for _ in range(5):  # windows that each have a proxy of their own
            async with proxy_over(calc(), dead, store=store) as stage:
                await stage.client.initialize()
                await stage.client.list_tools()
                if failing_s == 3.0:
                    break
                if failing_s == 3600.0:
                    assert dead.starts == 0
                    while not (states := store.serving.states()):
                        await asyncio.sleep(0.1)
                    said = {each.upstream: (each.state, each.last_error) for each in states}
                    assert said["chatty"] == ("retrying", "no")
        called = FakeUpstream("chatty", ["say"])
        async with proxy_over(calc(), called, store=store) as stage:
            await stage.client.initialize()
            if failing_s == 3600.0:
                assert said_by(await stage.client.call_tool("call_tool_write", {"name": "chatty__say"})) == "say"
            await saved(store, 0)  # where it is due, it is tried without a call
            found = await stage.client.discover("say")
        assert [each["name"] for each in found["matches"]][:1] == ["chatty__say"]


@requirement("start:dead")
async def test_a_server_that_the_user_has_mended_is_started_by_the_first_search_that_tells_that_it_is_down() -> None:
    with open_store(":memory:") as store:
        mended = FakeUpstream("chatty", ["say"])
        remember(store, mended, "FT301", 3600.0)
        async with proxy_over(calc(), mended, store=store) as stage:
            await stage.client.initialize()
            await asyncio.sleep(5)
            assert (mended.starts, "chatty is down" in (await stage.client.discover("chatty"))["absent"]) == (0, True)
            await asyncio.sleep(5)
            assert mended.starts == 1
            found = await stage.client.discover("say")
        assert [each["name"] for each in found["matches"]][:1] == ["chatty__say"]


@requirement("start:dead")
async def test_a_failure_on_record_from_a_time_at_which_the_clock_was_fast_keeps_no_server_from_its_start() -> None:
    with open_store(":memory:") as store:
        works = FakeUpstream("chatty", ["say"])
        entry, tomorrow = digest_entry(config_of(works).servers["chatty"]), time.time() + 86_400.0
        store.serving.save_failure(Failure("chatty", entry, "FT301", "no", tomorrow - 9.0, tomorrow, 2, tomorrow + 9.0))
        async with proxy_over(calc(), works, store=store) as stage:
            await stage.client.initialize()
            await asyncio.sleep(20)
        assert works.starts == 1


@requirement("start:dead")
async def test_an_edited_entry_is_a_new_server() -> None:
    with open_store(":memory:") as store:
        slow = FakeUpstream("chatty", ["say"], entry={"env": {"KEY": "wrong"}}, gate=asyncio.Event())
        remember(store, slow, "FT303", 3600.0)
        edited = FakeUpstream("chatty", ["say"], entry={"env": {"KEY": "right"}}, gate=slow.gate)
        async with proxy_over(calc(), edited, store=store) as stage:
            await stage.client.initialize()
            assert stage.app.upstreams.failure("chatty") is None
            assert "1 server not listed yet" in await describes(stage.client)


@pytest.mark.slow
@requirement("start:dead")
@pytest.mark.parametrize(("reason", "longest"), [("command 'chatty' was not found", 3600.0), (KINDS["refused"], 60.0)])
async def test_a_failed_server_is_tried_ever_later_where_only_the_user_can_mend_it(reason: str, longest: float) -> None:
    with open_store(":memory:") as store:
        dead = FakeUpstream("chatty", missing=reason)
        remember(store, dead, "FT201", 1e6)
        async with proxy_over(calc(), dead, store=store) as stage:
            await stage.client.initialize()
            await asyncio.sleep(290)
            assert dead.starts == 0  # a run before has tried it just now
            await asyncio.sleep(4 * longest + 20)
            assert dead.starts == 5
            began = stage.connect()
            await began.initialize()
            assert dead.starts == 5  # a window more is no reason to try again
            await stage.client.call_tool("chatty__say", {})
            assert dead.starts == 6  # a call is


@requirement("start:dead")
async def test_a_proxy_tries_a_server_at_once_that_a_command_has_seen_work() -> None:
    with open_store(":memory:") as store:
        upstream = FakeUpstream("chatty", ["say"], missing="command 'chatty' was not found")
        remember(store, upstream, "FT201", 1e6)
        async with proxy_over(calc(), upstream, store=store) as stage:
            await stage.client.initialize()
            await asyncio.sleep(100)
            upstream.missing = ""
            (failure,) = store.serving.failures()
            store.serving.clear_failure("chatty", failure.entry)
            began = asyncio.get_running_loop().time()
            while "chatty" in stage.app.upstreams.unlisted():
                await asyncio.sleep(0.1)
            assert asyncio.get_running_loop().time() - began < 10


@requirement("start:dead")
async def test_a_server_that_was_lost_and_came_back_is_not_remembered_as_dead() -> None:
    with open_store(":memory:") as store:
        upstream = calc()
        async with proxy_over(upstream, store=store) as stage:
            await stage.client.initialize()
            await stage.client.call_tool("calc__add", {})
            upstream.die()
            await asyncio.sleep(20)
            assert upstream.starts == 2 and store.serving.failures() == []


@requirement("start:dead")
async def test_a_download_is_not_counted_as_down() -> None:
    slow = FakeUpstream("chatty", ["say"], scripts={"initialize": lambda *_: None})
    async with proxy_over(calc(), slow, cold_list_s=0.1, cold_search_s=0.1) as stage:
        await stage.client.initialize()
        upstream, profile = stage.app.upstreams["chatty"], stage.app.config.profiles[""]
        while not slow.links or "calc" in stage.app.upstreams.unlisted():
            await asyncio.sleep(0.1)
        upstream.since -= HANDSHAKE_S
        slow.link.is_loading = True
        assert stage.app.upstreams.absent(profile).starting == ("chatty",)
        slow.link.is_loading = False
        assert stage.app.upstreams.absent(profile).down == ("chatty",)


@requirement("start:dead")
async def test_a_server_that_always_takes_90_s_to_start_is_there_after_its_second_start() -> None:
    slow = FakeUpstream("slow", ["say"])
    slow.scripts["initialize"] = lambda asked: asyncio.get_running_loop().call_later(90, slow._initialize, asked)
    async with proxy_over(calc(), slow, cold_list_s=0.1, cold_search_s=0.1) as stage:
        await stage.client.initialize()
        await asyncio.sleep(61)
        assert "slow__say" not in await stage.client.list_tools()
        await asyncio.sleep(100)
        assert slow.starts == 2
        result = await stage.client.call_tool("slow__say", {})
        assert "isError" not in result
