"""A tool that was used and does not fit the list is named in it with its arguments, before anything was learned."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fakes import FakeClient, FakeUpstream, failing_store, proxy_over, tool
from requirements import requirement

pytestmark = pytest.mark.anyio

USED = [f"view_{number}" for number in range(12)]
NEVER = [f"count_{number}" for number in range(200)]


def wiki() -> FakeUpstream:
    """Used tools of some 120 tokens; six of them fit a list of 1,200 tokens. There are more tools than a list names."""
    given = {"title": {"type": "string"}}
    tools = [tool(name, "Reads a page of the wiki. " * 16, given) for name in USED]
    tools += [tool(name, "Counts what is spare. " * 16, given) for name in NEVER]
    for each in tools:
        each["inputSchema"]["required"] = ["title"]
    return FakeUpstream("wiki", tools)


async def read_list(client: FakeClient) -> tuple[set[str], set[str]]:
    """Return the tools that a client's list defines, and those that it names with their argument."""
    listed: list[dict[str, Any]] = (await client.ask("tools/list"))["tools"]
    told = " ".join(each["description"] for each in listed if each["name"].startswith("call_tool"))
    names = {f"wiki__{name}" for name in re.findall(r"(\w+?_\d+)\(title: string\)", told.replace("wiki__", ""))}
    return {each["name"] for each in listed if each["name"].startswith("wiki")}, names


@requirement("learn:names")
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("policy", ["auto", "frozen", "growing"])
async def test_every_tool_that_was_used_is_defined_or_named_in_the_next_session(policy: str, modern: bool) -> None:
    store, _ = failing_store()
    settings: dict[str, Any] = {"policy": policy, "list_fill": True, "list_tokens": 1200}
    used = {f"wiki__{name}" for name in USED}
    for has_used in (False, True):
        async with proxy_over(wiki(), store=store, **settings) as stage:
            client = stage.client.modern() if modern else stage.client
            if not modern:
                await client.initialize()
            defined, named = await read_list(client)
            assert (used <= defined | named) == has_used
            assert bool(used & named - defined) == has_used
            for name in sorted(used):
                await client.call_tool("call_tool_write", {"name": name, "arguments": {"title": "x"}})


@requirement("learn:names")
async def test_a_list_of_everything_names_nothing() -> None:
    async with proxy_over(wiki(), policy="full", list_fill=True, list_tokens=1200) as stage:
        await stage.client.initialize()
        defined, named = await read_list(stage.client)
    assert (len(defined), named) == (212, set())


@requirement("call:unseen-schema")
async def test_a_named_tool_that_is_called_wrongly_is_answered_with_its_arguments() -> None:
    store, _ = failing_store()
    for has_used in (False, True):
        upstream = wiki()
        async with proxy_over(upstream, store=store, list_fill=True, list_tokens=1200) as stage:
            await stage.client.initialize()
            defined, named = await read_list(stage.client)
            if has_used:
                (whole,) = defined
                only_named = min(named)
                for name in (only_named, whole):
                    no_page = {"content": [{"type": "text", "text": "no page"}], "isError": True}
                    upstream.results[name.removeprefix("wiki__")] = no_page
                answers = [await stage.client.call_tool(name, {}) for name in (only_named, whole)]
                told, bare = ([block["text"] for block in each["content"]] for each in answers)
            else:
                for name in (*USED, *[USED[0]] * len(USED)):  # the first in every second call
                    await stage.client.call_tool(
                        "call_tool_write", {"name": f"wiki__{name}", "arguments": {"title": "x"}}
                    )
    assert told[1].startswith(f'the arguments of {only_named} do not fit its schema: "title" is missing. inputSchema: ')
    assert (told[0], bare) == ("no page", ["no page"])
