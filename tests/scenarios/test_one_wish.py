"""One wish is one miss: a search is not in vain if the client calls what it found, however the call ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fakes import LIST_CHANGED, Asked, FakeUpstream, Json, Stage, config_of, failing_store, proxy_over, tool
from requirements import requirement

from foretool.server.ledger.story import read_story, say_why

pytestmark = pytest.mark.anyio

CITY: Json = {"city": {"type": "string"}, "days": {"type": "integer"}}
RIGHT: Json = {"city": "Riga", "days": 2}
TASK = "weather forecast of a city"
FOUND = ("tool", "sky__forecast", "discovery")
REFUSED = ("tool", "sky__forecast", "bridge")


def make_sky(description: str = "Weather forecast of a city", **entry: Any) -> FakeUpstream:
    forecast = tool("forecast", description, CITY)
    forecast["inputSchema"]["required"] = ["city"]
    return FakeUpstream("sky", [forecast, tool("moon", "Phase of the moon")], entry=entry)


def make_calc() -> FakeUpstream:
    return FakeUpstream("calc", [tool("add", "Adds numbers")], entry={"pin": ["*"]})


async def call(stage: Stage, arguments: Json = RIGHT, name: str = "sky__forecast") -> None:
    await stage.client.call_tool("call_tool_write", {"name": name, "arguments": arguments})


async def fail(stage: Stage, sky: FakeUpstream) -> None:
    sky.results["forecast"] = {"content": [], "isError": True}
    await call(stage)


async def lose(stage: Stage, sky: FakeUpstream) -> None:
    def die(asked: Asked) -> None:
        sky.link.die()

    sky.scripts["forecast"] = die
    await call(stage)


async def write_wrong(stage: Stage, sky: FakeUpstream) -> None:
    await call(stage, {"days": 2})


async def correct_it(stage: Stage, sky: FakeUpstream) -> None:
    await call(stage, {"days": 2})
    await call(stage, {"days": 2})
    await call(stage)


async def take_wrong_bridge(stage: Stage, sky: FakeUpstream) -> None:
    await stage.client.call_tool("call_tool", {"name": "sky__forecast", "arguments": RIGHT})


async def forbid(stage: Stage, sky: FakeUpstream) -> None:
    sky.entry["deny"] = ["forecast"]
    await apply(stage, sky)
    await call(stage)
    await call(stage)


async def allow_again(stage: Stage, sky: FakeUpstream) -> None:
    await forbid(stage, sky)
    del sky.entry["deny"]
    await apply(stage, sky)
    await call(stage)


async def exclude(stage: Stage, sky: FakeUpstream) -> None:
    sky.entry["exclude"] = ["forecast"]
    await apply(stage, sky)
    await stage.client.until(lambda: stage.app.catalog.find("sky__forecast") is None)
    await call(stage)


async def switch_off(stage: Stage, sky: FakeUpstream) -> None:
    sky.entry["disabled"] = True
    await apply(stage, sky)
    await call(stage)


async def take_out(stage: Stage, sky: FakeUpstream) -> None:
    await apply(stage)
    await call(stage)


async def break_entry(stage: Stage, sky: FakeUpstream) -> None:
    sky.entry["env"] = {"KEY": "${SKY_KEY}"}
    await apply(stage, sky)
    await call(stage)


async def hold(stage: Stage, sky: FakeUpstream) -> None:
    sky.tools = [tool("forecast", "Something else altogether", {"planet": {"type": "string"}}), sky.tools[1]]
    listed = len([each for each in sky.requests if each.method == "tools/list"])
    sky.link.say(LIST_CHANGED)
    await stage.client.until(lambda: len([each for each in sky.requests if each.method == "tools/list"]) > listed)
    await stage.client.discover("phase of the moon")
    await call(stage)


async def misspell(stage: Stage, sky: FakeUpstream) -> None:
    await call(stage, name="sky__forecat")


async def apply(stage: Stage, *more: FakeUpstream) -> None:
    stage.app.fakes |= {each.name: each for each in more}
    await stage.app.reloader.apply(config_of(make_calc(), *more, policy="frozen"))


ENDINGS: dict[str, tuple[Callable[[Stage, FakeUpstream], Awaitable[None]], tuple[str, str, str], str, str]] = {
    "tool error": (fail, FOUND, "rank", "discovered"),
    "lost": (lose, FOUND, "rank", "discovered"),
    "wrong arguments": (write_wrong, FOUND, "rank", "no"),
    "wrong arguments, then right ones": (correct_it, FOUND, "rank", "discovered"),
    "the bridge that reads": (take_wrong_bridge, FOUND, "rank", "no"),
    "denied, twice": (forbid, REFUSED, "denied", "no"),
    "denied, then allowed": (allow_again, REFUSED, "denied", "discovered"),
    "excluded": (exclude, REFUSED, "denied", "no"),
    "disabled": (switch_off, REFUSED, "gone", "no"),
    "taken out of the config": (take_out, REFUSED, "gone", "no"),
    "entry wrong": (break_entry, REFUSED, "offline", "no"),
    "a wrong name": (misspell, ("name", "sky__forecat", "unknown_name"), "unknown", "suggested"),
}
"""How a call of what a search has shown may end, and what the one miss is then."""


@requirement("miss:one-wish")
@pytest.mark.parametrize(("end", "what", "cause", "recovered"), ENDINGS.values(), ids=ENDINGS)
async def test_a_search_whose_tool_was_called_is_one_miss_however_the_call_ended(
    end: Callable[[Stage, FakeUpstream], Awaitable[None]], what: tuple[str, str, str], cause: str, recovered: str
) -> None:
    store, _ = failing_store()
    sky = make_sky()
    async with proxy_over(make_calc(), sky, store=store, policy="frozen") as stage:
        await begin(stage, TASK)
        await end(stage, sky)
        await stage.client.call_tool("calc__add", {})
    (miss,) = store.calls.misses(0.0)
    assert "called no tool" not in " ".join(step.what for step in read_story(store, miss))
    assert ((miss.kind, miss.tool, miss.noticed), miss.cause, miss.recovered) == (what, cause, recovered)
    if miss.kind == "tool":
        told = [step.what for step in read_story(store, miss)]
        assert any(each.startswith("called sky__forecast") for each in told)
        assert (miss.query, miss.discovery) == (TASK, 1) and miss.turns >= 1 and miss.tokens > 0


@pytest.mark.parametrize("answer", ["decline", None])
async def test_a_call_that_the_user_did_not_agree_to_is_one_miss(answer: str | None) -> None:
    store, _ = failing_store()
    async with proxy_over(make_calc(), make_sky(), store=store, policy="frozen", confirm="all") as stage:
        stage.client.answers["elicitation/create"] = {"action": answer}
        await begin(stage, TASK, **({"capabilities": {"elicitation": {}}} if answer else {}))
        await call(stage)
        await stage.client.call_tool("calc__add", {})
    misses = [each for each in store.calls.misses(0.0) if each.tool != "calc__add"]
    assert [(each.kind, each.tool, each.recovered) for each in misses] == [("tool", "sky__forecast", "no")]


async def test_a_call_that_waits_for_a_review_is_one_miss() -> None:
    store, _ = failing_store()
    sky = make_sky()
    async with proxy_over(make_calc(), sky, store=store, policy="frozen") as stage:
        await begin(stage, TASK)
        await hold(stage, sky)
        await stage.client.call_tool("calc__add", {})
    found = sorted((each.kind, each.tool, each.query, each.cause) for each in store.calls.misses(0.0))
    assert found == [("search", "", "phase of the moon", "unused"), ("tool", "sky__forecast", TASK, "denied")]


@pytest.mark.parametrize("task", ["sky report for tomorrow", "add numbers in the sky"])
async def test_a_call_of_a_server_that_a_search_told_to_be_down_is_one_miss(task: str) -> None:
    store, _ = failing_store()
    sky = FakeUpstream("sky", ["report"], missing="program missing")
    async with proxy_over(make_calc(), sky, store=store, policy="frozen") as stage:
        await begin(stage, task)
        await call(stage, name="sky__report")
        await call(stage, name="sky__report")
        await stage.client.call_tool("calc__add", {})
        await begin(stage, task)
        await call(stage, name="sky__report")
        await stage.client.call_tool("calc__add", {})
    misses = store.calls.misses(0.0)
    assert [(each.kind, each.tool, each.cause, each.query) for each in misses] == [
        ("tool", "sky__report", "offline", task)
    ] * 2, "one for each search"
    assert {each.outcome for each in store.calls.recent(-1) if each.tool == "sky__report"} == {"refused"}
    told = [step.what for step in read_story(store, misses[-1])]
    assert any(each.startswith("called sky__report through our bridge: refused") for each in told)


async def test_a_search_for_what_no_server_has_says_so() -> None:
    store, _ = failing_store()
    async with proxy_over(make_calc(), make_sky(), store=store, policy="frozen") as stage:
        await begin(stage, "send a fax about the moon to a lawyer and book a flight")
        found = store.discoveries.recent(1)[0]
        await stage.client.call_tool("calc__add", {})
    (miss,) = store.calls.misses(0.0)
    assert found.level == "low" and found.matches and miss.cause == "unused"
    assert "probably no server of yours has such a tool" in say_why(miss)
    assert miss.change == "add a server that has such a tool: probably none of yours does"


async def begin(stage: Stage, task: str, **more: Any) -> None:
    await stage.client.initialize(**more)
    await stage.client.list_tools()
    await stage.client.discover(task)


async def test_the_story_of_a_miss_tells_of_calls_of_names_that_no_server_has() -> None:
    store, _ = failing_store()
    async with proxy_over(make_calc(), make_sky(), store=store, policy="frozen") as stage:
        await begin(stage, TASK)
        await call(stage, name="rain__soon")
        await call(stage)
    found = {each.tool: [step.what for step in read_story(store, each)] for each in store.calls.misses(0.0)}
    assert "called rain__soon, which no server has" in found["sky__forecast"]


async def look_up(stage: Stage, *names: str) -> None:
    await stage.client.initialize()
    await stage.client.list_tools()
    await stage.client.discover(names=list(names))


@requirement("miss:search")
async def test_a_look_up_that_found_one_of_its_names_is_no_miss_whatever_is_called_next() -> None:
    store, _ = failing_store()
    sky = FakeUpstream("sky", ["report"], missing="program missing")
    async with proxy_over(make_calc(), make_sea(), sky, store=store, policy="frozen") as stage:
        await look_up(stage, "sea__tide", "nope__x")
        await call(stage, name="sky__report")
        await stage.client.discover("add numbers")
        await stage.client.call_tool("calc__add", {})
    (miss,) = store.calls.misses(0.0)
    assert (miss.kind, miss.tool, miss.cause, miss.discovery) == ("tool", "sky__report", "offline", 0)


@requirement("miss:search")
async def test_a_look_up_that_found_none_of_its_names_is_a_miss_of_them_and_takes_no_later_call() -> None:
    store, _ = failing_store()
    async with proxy_over(make_calc(), make_sea(), make_sky(), store=store, policy="frozen", list_names=False) as stage:
        await look_up(stage, "nope__x", "nope__y")
        await call(stage)
        await stage.client.discover("add numbers")
        await stage.client.call_tool("calc__add", {})
    found = {each.tool: each for each in store.calls.misses(0.0)}
    assert set(found) == {"nope__x", "sky__forecast"}
    assert say_why(found["nope__x"]) == "no server of this config has a tool of this name"
    assert found["nope__x"].change == "add the server that has it, or correct the name"
    assert (found["sky__forecast"].noticed, found["sky__forecast"].discovery) == ("bridge", 0)
    story = [step.what for step in read_story(store, found["nope__x"])]
    assert "asked for nope__x by name, which no server has" in story


@requirement("miss:search")
@pytest.mark.parametrize(
    ("entry", "cause"),
    [({"deny": ["tide"]}, "denied"), ({"exclude": ["tide"]}, "denied"), ({"disabled": True}, "gone")],
)
async def test_a_look_up_of_a_tool_that_the_config_keeps_away_says_so(entry: Json, cause: str) -> None:
    store, _ = failing_store()
    async with proxy_over(make_calc(), make_sea(**entry), store=store, policy="frozen") as stage:
        await look_up(stage, "sea__tide")
    (miss,) = store.calls.misses(0.0)
    assert (miss.tool, miss.cause) == ("sea__tide", cause) and "sea" in miss.change


async def test_a_look_up_of_a_name_that_is_close_to_a_tool_is_no_miss_once_that_is_called() -> None:
    for called in (True, False):
        store, _ = failing_store()
        async with proxy_over(make_calc(), make_sea(), store=store, policy="frozen") as stage:
            await look_up(stage, "sea__tidee")
            await call(stage, {}, "sea__tide" if called else "calc__add")
        assert ("sea__tidee" in [each.tool for each in store.calls.misses(0.0)]) is not called


def make_sea(**entry: Any) -> FakeUpstream:
    return FakeUpstream("sea", [tool("tide", "Tide table of a harbour")], entry=entry)
