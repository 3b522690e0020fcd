"""What of a search is slow keeps nobody else waiting."""

from __future__ import annotations

import threading

import pytest
from fakes import FakeUpstream, end_of_searches, proxy_over, tool
from requirements import requirement

from foretool.server.protocol import jsonrpc

pytestmark = pytest.mark.anyio


class SlowEncoder:
    """An encoder that answers only once it may."""

    name = "remote"

    def __init__(self) -> None:
        self.may = threading.Event()
        self.thread = 0
        self.asked: list[str] = []

    def fetch(self, texts: list[str]) -> None:
        self.thread = threading.get_ident()
        assert self.may.wait(5)
        self.asked += texts


@requirement("discovery:slow")
async def test_a_search_that_waits_for_an_encoder_lets_other_requests_pass() -> None:
    upstream = FakeUpstream("mail", [tool("send", "Send a mail"), tool("post", "Send a letter"), tool("fax", "Send")])
    encoder = SlowEncoder()
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        stage.app.search.install_encoders(None, [encoder])
        arguments = {"task": "send", "structured": True, "limit": 10}
        asked = stage.client.post("tools/call", {"name": "discover_tools", "arguments": arguments})
        assert (await stage.client.call_tool("mail__fax", {}))["content"][0]["text"] == "fax"
        assert encoder.asked == []
        encoder.may.set()
        # The loop's clock does not wait for threads; this does.
        await end_of_searches(stage.app.search)
        answer = await stage.client.result(asked)
    assert encoder.thread != threading.get_ident() and encoder.asked == ["send"]
    names = [match["name"] for match in answer["structuredContent"]["matches"]]
    assert sorted(names) == ["mail__fax", "mail__post", "mail__send"]


@requirement("discovery:index")
async def test_an_answer_says_how_many_tools_were_not_searched_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretool.server.catalog.search.FEW", 1)
    monkeypatch.setattr("foretool.server.catalog.search.AT_ONCE", 1)
    monkeypatch.setattr("foretool.server.catalog.search.INDEX_S", 0.0)
    monkeypatch.setattr("foretool.server.catalog.search.SLICE_S", 0.0)
    upstream = FakeUpstream("mail", [tool("send", "Send a mail"), tool("post", "Send a letter"), tool("fax", "Send")])
    other = FakeUpstream("clock", [tool("now", "Tells the time"), tool("stop", "Stops the time")])
    profiles = {"mail": {"servers": ["mail"]}}
    async with proxy_over(upstream, other, profiles=profiles, profile="mail") as stage:
        await stage.client.initialize()
        short = await stage.client.discover("send")
        advice = "3 of 3 tools are not searched yet: if none of these fits, ask again in a few seconds."
        assert (short["matches"], short["advice"]) == ([], advice), "tools of other profiles do not count"
        assert await stage.client.call_tool("mail__fax", {})  # a name needs no index
        assert await stage.app.search.index(1.0)
        stage.app.catalog.replace("clock", [jsonrpc.raw(tool(name)) for name in ("now", "stop", "go", "wait")])
        assert stage.app.search.count_unindexed() == 4
        whole = await stage.client.discover("send", limit=10)
    assert {match["name"] for match in whole["matches"]} == {"mail__fax", "mail__post", "mail__send"}
    assert "searched yet" not in whole["advice"]
