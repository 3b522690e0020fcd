"""Pins are always listed; the rest of the token budget is filled with the working set."""

from __future__ import annotations

import pytest
from fakes import FakeUpstream, failing_store, proxy_over, tool
from requirements import requirement

pytestmark = pytest.mark.anyio

OWN = ["call_tool", "call_tool_write", "discover_tools"]


@requirement("pins:always")
async def test_pins_are_listed_even_when_they_exceed_the_budget() -> None:
    big = tool("big", "word " * 3000)
    upstream = FakeUpstream("calc", [big, "add", "sub"], entry={"pin": ["b*"]})
    async with proxy_over(upstream, list_tokens=10, pin=["calc__add"]) as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["calc__add", "calc__big", *OWN]


@requirement("list:budget")
async def test_the_list_stays_within_its_budget_and_takes_the_most_used_first() -> None:
    store, _ = failing_store()
    upstream = FakeUpstream("calc", [tool(f"tool_{n}", f"Adds {n} " * 20) for n in range(40)])
    async with proxy_over(upstream, store=store, list_tokens=1000) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        for number in range(40):
            for _ in range(number):
                await stage.client.call_tool(f"calc__tool_{number}", {})
    upstream.tools = [*upstream.tools, "one_more"]  # a changed catalogue begins a new epoch
    async with proxy_over(upstream, store=store, list_tokens=1000, epoch_s=0.001) as stage:
        await stage.client.initialize()
        names = await stage.client.list_tools()
        view = stage.app.lists.views()[0]
    used = [name for name in names if name not in OWN]
    assert view.tokens <= 1000
    assert len(used) > 3
    assert set(used) == {f"calc__tool_{n}" for n in range(40 - len(used), 40)}


@requirement("list:cold-start")
async def test_without_usage_the_words_of_the_profile_choose() -> None:
    upstream = FakeUpstream("files", [tool("read", "Read a text file"), tool("sing", "Hum a melody")])
    profiles = {"music": {"about": "hum melodies"}}
    async with proxy_over(upstream, profile="music", profiles=profiles) as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["call_tool", "call_tool_write", "discover_tools", "files__sing"]


@requirement("list:own-tools")
async def test_the_definition_of_discover_tools_costs_at_most_250_tokens_and_names_the_servers() -> None:
    upstreams = [FakeUpstream(f"server-number-{n}", [f"tool_{m}" for m in range(5)]) for n in range(60)]
    async with proxy_over(*upstreams) as stage:
        await stage.client.initialize()
        listed = (await stage.client.ask("tools/list"))["tools"]
        own = next(each for each in listed if each["name"] == "discover_tools")
        line = stage.app.lists.views()[0].array
    from foretool.retrieval.tokens import estimate

    assert estimate(line.decode()) <= 2 * 250
    assert "300 tools on 60 servers" in own["description"]
    assert own["_meta"] == {"anthropic/alwaysLoad": True}
    assert "outputSchema" not in own  # a model reads the text


@requirement("instructions:partial")
async def test_the_instructions_say_that_the_list_is_partial_and_carry_those_of_the_upstreams() -> None:
    upstream = FakeUpstream("calc", ["add"], instructions="Round to two digits.")
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        greeting = await stage.connect().initialize()
    assert "partial" in greeting["instructions"]
    assert "discover_tools" in greeting["instructions"]
    assert "## calc\n> Round to two digits." in greeting["instructions"]


@requirement("list:whole")
@pytest.mark.parametrize("policy", ["frozen", "growing", "auto"])
async def test_a_catalogue_that_fits_the_budget_is_listed_whole(policy: str) -> None:
    upstream = FakeUpstream("calc", [tool(name) for name in ("add", "divide", "multiply")])
    async with proxy_over(upstream, list_whole=True, policy=policy) as stage:
        await stage.client.list_tools()
        listed = await stage.client.list_tools()
        await stage.client.call_tool("calc__divide")
        misses = stage.store.calls.misses()
    assert {"calc__add", "calc__divide", "calc__multiply"} <= set(listed)
    assert misses == []


@requirement("list:whole")
async def test_a_catalogue_over_the_budget_or_a_setting_against_it_hides_what_was_not_used() -> None:
    few = FakeUpstream("calc", [tool("add")])
    many = FakeUpstream("calc", [tool(f"tool{number}", "Computes " + "very " * 30) for number in range(60)])
    for upstream, settings in ((many, {"list_whole": True, "list_tokens": 2_000}), (few, {"list_whole": False})):
        async with proxy_over(upstream, **settings) as stage:
            await stage.client.list_tools()
            listed = set(await stage.client.list_tools())
        assert not any(name.startswith("calc__") for name in listed)
