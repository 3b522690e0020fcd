"""Which upstream has a resource. Whole conversations: tests/scenarios/test_resources_and_prompts.py."""

from __future__ import annotations

import pytest
from fakes import FakeUpstream, proxy_over

pytestmark = pytest.mark.anyio


async def test_a_resource_that_moved_to_another_upstream_is_listed_and_read_there() -> None:
    lists: dict[str, list[dict[str, str]]] = {"a": [{"uri": "x:1", "name": "a"}], "b": []}
    upstreams = [FakeUpstream(name, capabilities={"resources": {}}) for name in lists]
    for upstream in upstreams:
        upstream.scripts["resources/list"] = lambda asked: asked.reply({"resources": lists[asked.link.upstream.name]})
        upstream.scripts["resources/read"] = lambda asked: asked.reply({"contents": [], "by": asked.link.upstream.name})
    async with proxy_over(*upstreams) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await stage.client.ask("resources/list")
        lists["a"], lists["b"] = [], [{"uri": "x:1", "name": "b"}]
        listed = await stage.client.ask("resources/list")
        read = await stage.client.ask("resources/read", {"uri": "x:1"})
    assert listed == {"resources": [{"uri": "x:1", "name": "b"}]}
    assert read["by"] == "b"
