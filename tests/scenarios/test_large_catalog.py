"""A start from the summary of a large catalog answers as one that reads every tool, whatever has changed since."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeUpstream, Stage, proxy_over

from foretool.server.catalog import unread
from foretool.server.upstreams import memory
from foretool.storage.opening import open_store
from foretool.storage.steps import finish

pytestmark = pytest.mark.anyio

SERVERS, TOOLS = 6, 400
HIDDEN = "s3__read_399"


def tool(server: int, place: int) -> dict[str, Any]:
    verb, thing = ("read", "write", "send")[place % 3], ("invoice", "photo", "ticket", "issue")[place % 4]
    said = f"{verb} the {thing} number {place} of shelf {server}"
    return {"name": f"{verb}_{place}", "description": said, "inputSchema": {"type": "object"}}


def upstreams(first: int = 0, **entry: Any) -> list[FakeUpstream]:
    listed = [[tool(server, place) for place in range(TOOLS)] for server in range(first, SERVERS)]
    return [
        FakeUpstream(f"s{first + at}", tools, instructions=f"Shelf {first + at}.", entry=entry if at == 0 else {})
        for at, tools in enumerate(listed)
    ]


async def make_store(path: Path, monkeypatch: pytest.MonkeyPatch, *made: FakeUpstream, **settings: Any) -> None:
    """Fill a store with everything the servers list, what was used of it, and a summary."""
    monkeypatch.setattr(memory, "SETTLED_S", 0.0)
    store = open_store(path)
    async with proxy_over(*made, store=store, **settings) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await stage.client.call_tool("s1__write_1", {})
        await stage.client.call_tool("s2__send_2", {})
        stage.app.known.names.save_all()
        for _ in range(2):  # the first look sees that something has changed
            finish(stage.app.memory.summarize())
    store.close()
    assert count_summaries(path) == 1


def count_summaries(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        sql = "SELECT count(*) FROM catalog_summaries JOIN counters ON value = changes WHERE counters.name = 'catalog'"
        return int(connection.execute(sql).fetchone()[0])


async def answers(stage: Stage) -> dict[str, Any]:
    """What a client is told right after the start, and what is recorded of it."""
    client = stage.client
    await client.initialize()
    listed = await client.ask("tools/list")
    called = await client.call_tool("s1__write_1", {})
    hidden = await client.call_tool("call_tool_write", {"name": HIDDEN, "arguments": {}})
    wrong = await client.call_tool("call_tool", {"name": "s3__raed_399", "arguments": {}})
    found = await client.discover("write the ticket number 127 of shelf 4")
    return {
        "list": listed, "called": called, "hidden": hidden, "wrong": wrong,
        "found": [each["name"] for each in found["matches"]],
        "misses": [(miss.tool, miss.cause, miss.rank, miss.of, miss.change) for miss in stage.misses()],
        "tools": [(each.id, each.definition) for each in stage.app.catalog.tools()],
        "problems": stage.app.catalog.problems,
        "counts": stage.app.catalog.upstreams(),
    }  # fmt: skip


async def compare(path: Path, make: Callable[[], list[FakeUpstream]], **settings: Any) -> list[dict[str, Any]]:
    """What a start from the summary answers, and what one without it answers."""
    found = []
    for name, is_unread in (("fast", True), ("slow", False)):
        copy = path.with_name(f"{name}.sqlite3")
        shutil.copy(path, copy)
        if not is_unread:
            with sqlite3.connect(copy) as connection:
                connection.execute("DELETE FROM catalog_summaries")
        store = open_store(copy)
        async with proxy_over(*make(), store=store, **settings) as stage:
            assert stage.app.catalog.is_unread is is_unread
            found.append(await answers(stage))
            assert not stage.app.catalog.is_unread
        store.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "entry"),
    [
        ({}, {}),
        ({"pin": ["s4__send_5"]}, {"pin": ["read_0"]}),
        ({"pin": ["s4__send_5*"]}, {}),
        ({"list_fill": True}, {"exclude": ["read_*"]}),
        ({"list_tokens": 4000}, {"tools": {"write_1": {"name": "put", "description": "Mine.", "pin": True}}}),
        ({"policy": "full"}, {"prefix": "first"}),
    ],
    ids=["plain", "pins", "patterns", "filled", "own words", "full"],
)
async def test_a_start_from_the_summary_answers_as_one_that_reads_every_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], entry: dict[str, Any]
) -> None:
    path = tmp_path / "kept.sqlite3"
    await make_store(path, monkeypatch, *upstreams(**entry), **settings)
    fast, slow = await compare(path, lambda: upstreams(**entry), **settings)
    assert fast == slow
    assert fast["hidden"].get("isError") is not True
    assert HIDDEN in {miss[0] for miss in fast["misses"]} or settings.get("policy") == "full"
    assert "s4__write_127" in fast["found"][:3]


async def test_the_first_list_and_a_listed_tool_need_no_other_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept.sqlite3"
    await make_store(path, monkeypatch, *upstreams())
    store = open_store(path)

    def fail(*arguments: Any) -> Any:
        raise AssertionError(arguments)

    async with proxy_over(*upstreams(), store=store) as stage:
        kept = store.catalog
        with monkeypatch.context() as patch:
            for name in ("tools_after", "exposed_names", "exposed_names_after", "load"):
                patch.setattr(kept, name, fail)
            await stage.client.initialize()
            listed = await stage.client.list_tools()
            await stage.client.call_tool("s1__write_1", {})
            assert stage.app.catalog.is_unread
        assert "s1__write_1" in listed
    store.close()


async def test_what_another_process_has_changed_since_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the start it outdates the summary; after it, the tools that are read differ from the summary."""
    path = tmp_path / "kept.sqlite3"
    await make_store(path, monkeypatch, *upstreams())
    shutil.copy(path, tmp_path / "late.sqlite3")

    def rename(file: Path) -> None:
        with sqlite3.connect(file) as connection:
            connection.execute("DELETE FROM tools WHERE exposed = ?", (HIDDEN,))

    rename(path)
    assert count_summaries(path) == 0
    for file, is_unread in ((path, False), (tmp_path / "late.sqlite3", True)):
        store = open_store(file)
        async with proxy_over(*upstreams(), store=store) as stage:
            assert stage.app.catalog.is_unread is is_unread
            if is_unread:
                rename(file)
            await stage.client.initialize()
            await stage.client.list_tools()
            wrong = await stage.client.call_tool("call_tool_write", {"name": HIDDEN, "arguments": {}})
            assert wrong["isError"]
            assert len(stage.app.catalog) == SERVERS * TOOLS - 1
            assert (await stage.client.discover("write the ticket number 127 of shelf 4"))["matches"]
        store.close()


async def test_tools_that_the_store_has_lost_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept.sqlite3"
    await make_store(path, monkeypatch, *upstreams())
    store = open_store(path)
    async with proxy_over(*upstreams(), store=store) as stage:
        assert stage.app.catalog.is_unread
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM tools")
        await stage.client.initialize()
        await stage.client.list_tools()
        found = await stage.client.call_tool("call_tool_write", {"name": HIDDEN, "arguments": {}})
        assert found.get("isError") is not True
        assert all(upstream.starts for upstream in stage.app.fakes.values())
    store.close()


async def test_another_config_or_a_damaged_summary_reads_every_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept.sqlite3"
    await make_store(path, monkeypatch, *upstreams())
    store = open_store(path)
    others = (upstreams(prefix="other"), upstreams(1), upstreams(include=["read_*"]), upstreams()[::-1])
    for made in others:
        async with proxy_over(*made, store=store) as stage:
            assert not stage.app.catalog.is_unread
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE catalog_summaries SET summary = ?", (b"[1",))
    async with proxy_over(*upstreams(), store=store) as stage:
        assert not stage.app.catalog.is_unread
        assert len(stage.app.catalog) == SERVERS * TOOLS
    store.close()


async def test_a_small_catalog_has_no_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SETTLED_S", 0.0)
    store = open_store(tmp_path / "kept.sqlite3")
    async with proxy_over(FakeUpstream("s0", [tool(0, 0)]), store=store) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        for _ in range(2):
            finish(stage.app.memory.summarize())
        assert len(stage.app.catalog) < unread.LEAST
    store.close()
    assert count_summaries(tmp_path / "kept.sqlite3") == 0
