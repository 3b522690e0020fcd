"""What of a search is slow keeps nobody else waiting."""

from __future__ import annotations

import threading

import pytest
from fakes import FakeUpstream, proxy_over, tool
from requirements import requirement

pytestmark = pytest.mark.anyio


class SlowReader:
    """A reranker that reads only once it may."""

    name = described = "reader"

    def __init__(self) -> None:
        self.may = threading.Event()
        self.thread = 0

    def scores(self, query: str, texts: list[str]) -> list[float]:
        self.thread = threading.get_ident()
        assert self.may.wait(5)
        return [float("letter" in text) for text in texts]


@requirement("discovery:slow")
async def test_a_search_that_is_read_once_more_lets_other_requests_pass() -> None:
    upstream = FakeUpstream("mail", [tool("send", "Send a mail"), tool("post", "Send a letter"), tool("fax", "Send")])
    reader = SlowReader()
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        stage.app.proxy.searching.reranker = reader
        asked = stage.client.post("tools/call", {"name": "discover_tools", "arguments": {"task": "send"}})
        assert (await stage.client.call_tool("mail__fax", {}))["content"][0]["text"] == "fax"
        reader.may.set()
        # The loop's clock does not wait for threads; this does.
        await stage.app.proxy.searching.finished()
        answer = await stage.client.result(asked)
        discoveries = stage.store.recent_discoveries(1)
    assert reader.thread != threading.get_ident()
    names = [match["name"] for match in answer["structuredContent"]["matches"]]
    assert sorted(names) == ["mail__fax", "mail__post", "mail__send"]
    assert all("reader" in match.parts for match in discoveries[0].matches)


@requirement("discovery:index")
async def test_an_answer_says_how_many_tools_were_not_searched_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretool.server.app.FEW", 1)
    monkeypatch.setattr("foretool.server.catalog.search.FEW", 1)
    monkeypatch.setattr("foretool.server.catalog.search.INDEX_S", 0.0)
    monkeypatch.setattr("foretool.server.catalog.search.SLICE_S", 0.0)
    upstream = FakeUpstream("mail", [tool("send", "Send a mail"), tool("post", "Send a letter"), tool("fax", "Send")])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        short = await stage.client.discover("send")
        advice = "3 of 3 tools are not searched yet: if none of these fits, ask again in a few seconds."
        assert (short["matches"], short["advice"]) == ([], advice)
        assert await stage.client.call_tool("mail__fax", {})  # a name needs no index
        assert await stage.app.proxy.searching.index(1.0)
        whole = await stage.client.discover("send")
    assert {match["name"] for match in whole["matches"]} == {"mail__fax", "mail__post", "mail__send"}
    assert "searched yet" not in whole["advice"]
