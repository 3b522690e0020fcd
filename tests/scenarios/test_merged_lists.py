"""Prompts, resources and templates of all upstreams: who is waited for, who is asked, and what of a list is used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fakes import BOTH, LEGACY, MODERN, Asked, FakeClient, FakeUpstream, Json, Stage, proxy_over, said
from requirements import requirement

from foretool.server.protocol.lists import PROMPTS, RESOURCES, TEMPLATES, ListKind
from foretool.server.upstreams.server_list import LIST_S, SOON_S

pytestmark = pytest.mark.anyio

KINDS = (PROMPTS, RESOURCES, TEMPLATES)
"""The lists that announce changes; `test_skills.py` has the one that does not."""


def member(kind: ListKind, name: str, **more: Any) -> Json:
    identifier = {PROMPTS: name, RESOURCES: f"{name}://x", TEMPLATES: f"{name}://x/{{id}}"}[kind]
    return {"name": name, kind.identifier: identifier, **more}


def server(name: str, *members: str, eras: Any = LEGACY, **more: Any) -> FakeUpstream:
    """A server that has members of these names in each of the three lists."""
    upstream = FakeUpstream(name, eras=eras, **more)
    upstream.capabilities = {"tools": {}, **{kind.capability: {"listChanged": True} for kind in KINDS}}
    change(upstream, *members)
    return upstream


def change(upstream: FakeUpstream, *members: str, **more: Any) -> None:
    """List other members from now on."""

    def script(kind: ListKind) -> Callable[[Asked], None]:
        return lambda asked: asked.reply({kind.key: [member(kind, each, **more) for each in members]})

    upstream.scripts |= {kind.method: script(kind) for kind in KINDS}


def silence(upstream: FakeUpstream) -> None:
    for kind in KINDS:
        upstream.hold(kind.method)


async def names(client: FakeClient, kind: ListKind) -> list[str]:
    """The names of a merged list, without our own prompt and the prefixes of servers."""
    listed = (await client.ask(kind.method))[kind.key]
    return [each["name"].rpartition("__")[2] for each in listed if each["name"] != "assemble_step"]


def now() -> float:
    return asyncio.get_running_loop().time()


async def greeted(stage: Stage) -> FakeClient:
    """A client whose servers are up."""
    await stage.client.initialize()
    await stage.client.list_tools()
    return stage.client


def problems(stage: Stage, upstream: str) -> str:
    return "; ".join(stage.app.catalog.problems_of(upstream))


@requirement("trust:limits:lists")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("eras", [LEGACY, MODERN, BOTH])
async def test_a_server_that_keeps_its_list_back_delays_one_answer_by_a_second(kind: ListKind, eras: Any) -> None:
    silent, good = server("silent", eras=eras), server("good", "one", eras=eras)
    silence(silent)
    async with proxy_over(silent, good) as stage:
        client, other = await greeted(stage), stage.connect()
        began = now()
        assert await names(client, kind) == ["one"]
        assert now() - began < SOON_S + 0.5
        began = now()
        for _ in range(20):
            assert await names(client, kind) == ["one"]
        await other.initialize()
        assert await names(other, kind) == ["one"]
        assert now() - began < SOON_S / 2
        assert silent.count(kind.method) <= len(eras), "each client's request is no question to the silent server"
        assert f"it did not answer {kind.method} within 1 s" in problems(stage, "silent")


@requirement("trust:limits:lists")
async def test_a_server_that_keeps_its_list_back_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    silent, good = server("silent"), server("good", "one")
    silence(silent)
    async with proxy_over(silent, good) as stage:
        client = await greeted(stage)
        for _ in range(3):
            await names(client, PROMPTS)
            await asyncio.sleep(2)
        (state,) = [each for each in stage.store.serving.states() if each.upstream == "silent"]
    said = "it did not answer prompts/list within 1 s; its prompts are left out until it does"
    assert [each.message for each in caplog.records if "prompts/list" in each.message] == [f"upstream 'silent': {said}"]
    assert (state.state, state.last_error) == ("ready", said)


@requirement("trust:limits:lists")
@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_silent_server_listed_before_is_still_listed(kind: ListKind) -> None:
    upstream, good = server("moody", "old"), server("good", "one")
    async with proxy_over(upstream, good) as stage:
        client = await greeted(stage)
        assert await names(client, kind) == ["old", "one"]
        silence(upstream)
        for _ in range(3):
            assert await names(client, kind) == ["old", "one"]
        upstream.die()
        assert await names(client, kind) == ["old", "one"]


@requirement("resources:late")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_list_that_comes_late_is_announced_and_then_listed(kind: ListKind) -> None:
    slow, good = server("slow"), server("good", "one")
    slow.hold(kind.method)
    async with proxy_over(slow, good) as stage:
        client = await greeted(stage)
        assert await names(client, kind) == ["one"]
        asked = await slow.asked(kind.method)
        change(slow, "two")
        asked.reply({kind.key: [member(kind, "two")]})
        await client.heard(kind.change)
        assert await names(client, kind) == ["two", "one"]
        await asyncio.sleep(1)
        assert client.count(kind.change) == 1
        assert problems(stage, "slow") == ""


async def test_a_list_is_waited_for_longer_while_no_server_has_answered() -> None:
    slow, good = server("slow", "two"), server("good", "one")

    def later(asked: Asked) -> None:
        asyncio.get_running_loop().call_later(3, asked.reply, {"prompts": [{"name": "p"}]})

    for upstream in (slow, good):
        upstream.scripts["prompts/list"] = later
    async with proxy_over(slow, good) as stage:
        assert await names(await greeted(stage), PROMPTS) == ["p", "p"]


@requirement("resources:partial")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_list_that_fails_delays_nobody_and_is_asked_for_again_by_itself(kind: ListKind) -> None:
    broken, good = server("broken"), server("good", "one")
    broken.scripts[kind.method] = lambda asked: asked.fail(-32000, "log in first")
    async with proxy_over(broken, good) as stage:
        client = await greeted(stage)
        began = now()
        for _ in range(20):
            assert await names(client, kind) == ["one"]
        assert now() - began < SOON_S / 2
        assert broken.count(kind.method) == 1
        assert f"its {kind.noun} could not be listed" in problems(stage, "broken")
        change(broken, "two")
        await client.heard(kind.change)
        assert await names(client, kind) == ["two", "one"]
        assert problems(stage, "broken") == ""


@pytest.mark.parametrize("answer", [{}, {"prompts": None}, {"prompts": {}}, [], 5, None])
async def test_an_odd_answer_costs_its_server_alone(answer: Any) -> None:
    odd, good = server("odd"), server("good", "one")
    odd.scripts["prompts/list"] = lambda asked: asked.reply(answer)
    async with proxy_over(odd, good) as stage:
        assert await names(await greeted(stage), PROMPTS) == ["one"]
        assert "its prompts could not be listed" in problems(stage, "odd")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_declares_a_list_and_has_none_is_no_problem(kind: ListKind) -> None:
    upstream, good = server("plain"), server("good", "one")
    upstream.scripts = {}
    async with proxy_over(upstream, good) as stage:
        assert await names(await greeted(stage), kind) == ["one"]
        assert problems(stage, "plain") == ""


@requirement("trust:limits:lists")
@pytest.mark.parametrize("kind", KINDS)
async def test_of_a_list_that_is_too_long_the_first_members_are_used_and_it_is_said(kind: ListKind) -> None:
    upstream = server("many", *(f"m{number:03}" for number in range(100)))
    async with proxy_over(upstream, max_tools=10) as stage:
        assert await names(await greeted(stage), kind) == [f"m{number:03}" for number in range(10)]
        assert f"it lists more than 10 {kind.noun}; only the first 10 are used" in problems(stage, "many")


@requirement("trust:limits:lists")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("next_cursor", [lambda page: "same", str])
async def test_pages_without_end_end(kind: ListKind, next_cursor: Callable[[int], str]) -> None:
    upstream = server("endless")

    def page(asked: Asked) -> None:
        number = int(asked.params.get("cursor", 0)) if asked.params.get("cursor") != "same" else 0
        asked.reply({kind.key: [], "nextCursor": next_cursor(number + 1)})

    upstream.scripts[kind.method] = page
    async with proxy_over(upstream, server("good", "one")) as stage:
        client = await greeted(stage)
        assert await names(client, kind) == ["one"]
        await asyncio.sleep(1)
        assert upstream.count(kind.method) <= 2000


@pytest.mark.parametrize("kind", KINDS)
async def test_a_member_that_is_broken_or_too_large_is_dropped_alone_and_said(kind: ListKind) -> None:
    upstream = server("odd")
    good, huge = member(kind, "good"), member(kind, "huge", description="x" * 300_000)
    listed = [7, None, {"name": "x\u200b", kind.identifier: "x\u200b"}, {"title": "nameless"}, huge, good, good]
    upstream.scripts[kind.method] = lambda asked: asked.reply({kind.key: listed})
    async with proxy_over(upstream) as stage:
        assert await names(await greeted(stage), kind) == ["good"]
        said = problems(stage, "odd")
    one = kind.noun[:-1]
    for expected in (*(f"{one} {place} was dropped" for place in range(1, 6)), "listed twice", "over the limit"):
        assert expected in said


@requirement("trust:limits:changes")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_announces_changes_without_end_is_asked_now_and_then(kind: ListKind) -> None:
    upstream = server("noisy", "one", entry={"trust": "auto"})
    async with proxy_over(upstream, server("good", "two")) as stage:
        client = await greeted(stage)
        await names(client, kind)
        for _ in range(200):
            upstream.link.say(kind.change)
            await asyncio.sleep(0.5)
        assert 20 <= upstream.count(kind.method) <= 45  # of 200 changes in 100 s
        assert client.count(kind.change) <= 100
        change(upstream, "last")
        upstream.link.say(kind.change)
        await asyncio.sleep(10)
        assert await names(client, kind) == ["last", "two"], "the last change is never lost"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_that_lists_all_the_time_asks_its_servers_now_and_then(kind: ListKind) -> None:
    upstream = server("calm", "one")
    async with proxy_over(upstream) as stage:
        client = await greeted(stage)
        for _ in range(100):
            assert await names(client, kind) == ["one"]
        assert upstream.count(kind.method) <= 12


async def test_a_silent_server_is_asked_again_once_its_time_is_over() -> None:
    upstream, good = server("silent"), server("good", "one")
    silence(upstream)
    async with proxy_over(upstream, good) as stage:
        client = await greeted(stage)
        await names(client, PROMPTS)
        change(upstream, "back")
        await asyncio.sleep(LIST_S + 5)
        assert await names(client, PROMPTS) == ["back", "one"]


async def test_a_request_that_was_given_up_gets_no_answer_and_others_get_theirs() -> None:
    silent, good = server("silent"), server("good", "one")
    silence(silent)
    async with proxy_over(silent, good) as stage:
        client = await greeted(stage)
        request = client.post("resources/list")
        await silent.asked("resources/list")
        client.notify("notifications/cancelled", {"requestId": request})
        assert await names(client, RESOURCES) == ["one"]
        await asyncio.sleep(2)
    assert request not in client._raw


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_ends_when_it_is_asked_for_a_list_is_not_asked_with_every_start(kind: ListKind) -> None:
    upstream, good = server("weak", tools=["add"]), server("good", "one")
    upstream.scripts[kind.method] = lambda asked: asked.link.die()
    async with proxy_over(upstream, good) as stage:
        client = await greeted(stage)
        await asyncio.sleep(30)
        assert upstream.starts == 2
        assert said(await client.call_tool("weak__add", {})) == "add"
        assert await names(client, kind) == ["one"]
        assert said(await client.call_tool("weak__add", {})) == "add"
        assert "it ended while it was asked" in problems(stage, "weak")


async def test_a_server_that_rests_is_not_started_for_a_list_that_is_known() -> None:
    upstream = server("calm", "one", tools=["add"])
    async with proxy_over(upstream) as stage:
        client = await greeted(stage)
        await names(client, PROMPTS)
        stage.app.upstreams["calm"].rest()
        await asyncio.sleep(1)
        assert await names(client, PROMPTS) == ["one"]
        assert upstream.starts == 1
