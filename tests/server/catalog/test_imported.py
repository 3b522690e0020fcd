"""What was imported from another store reaches lists, answers and predictions, and fades."""

from __future__ import annotations

import msgspec
import pytest
from fakes import FakeUpstream, Stage, config_of, proxy_over, tool
from requirements import requirement

from foretool.retrieval.portable_priors import Followed, PortablePriors, PriorTool
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.imported import IMPORTED, ImportedPriors, note_of
from foretool.server.lists.order import Prior, order_tools
from foretool.server.protocol.jsonrpc import raw
from foretool.storage.opening import open_store
from foretool.storage.records import Call, ToolId

pytestmark = pytest.mark.anyio

OWN = ["call_tool", "call_tool_write", "discover_tools"]


def priors(**calls: int) -> PortablePriors:
    tools = tuple(PriorTool("calc", name, (), count) for name, count in calls.items())
    return PortablePriors("foretool-priors", 1, "2026-11-23", 1, 9, tools, (Followed(0, 1, 36),))


def bring_in(stage: Stage, given: PortablePriors) -> None:
    report = msgspec.to_builtins(note_of(given))
    stage.store.artifacts.add(IMPORTED, msgspec.json.encode(given), report, promote=True)
    stage.store.artifacts.bump_version()


async def take_up(stage: Stage) -> None:
    """What housekeeping does each second, and the end of it."""
    stage.app.known.models.tick(has_listed=True)
    assert stage.app.known.models._task is not None
    await stage.app.known.models._task


def catalog() -> Catalog:
    found = Catalog(list(config_of(calc()).servers.values()))
    found.replace("calc", [raw(tool(name)) for name in ("add", "sub", "mul")])
    return found


def calc() -> FakeUpstream:
    return FakeUpstream("calc", tools=[tool("add", "Adds"), tool("sub", "Subtracts"), tool("mul", "Multiplies")])


@requirement("learn:priors-serve")
@pytest.mark.parametrize("policy", ["auto", "frozen", "growing"])
async def test_a_running_proxy_lists_what_was_imported_and_takes_it_off_again(policy: str) -> None:
    async with proxy_over(calc(), policy=policy, list_whole=False, list_fill=False) as stage:
        client = stage.client
        await client.initialize()
        assert await client.list_tools() == OWN
        bring_in(stage, priors(sub=5, mul=3))
        await take_up(stage)
        await client.heard("notifications/tools/list_changed")
        assert await client.list_tools() == ["calc__mul", "calc__sub", *OWN]
        stage.store.artifacts.roll_back(IMPORTED)
        await take_up(stage)
        assert await client.list_tools() == OWN


@requirement("learn:priors-serve")
async def test_an_answer_names_what_came_next_elsewhere_until_a_model_of_ours_predicts() -> None:
    store = open_store(":memory:")
    async with proxy_over(calc(), store=store, policy="frozen", list_tokens=1, list_whole=False) as stage:
        bring_in(stage, priors(sub=5, mul=3))
        client = stage.client
        await client.initialize()
        assert await client.list_tools() == OWN
        await take_up(stage)
        assert stage.app.search.can_predict and not stage.app.search.has_learned
        assert stage.app.search.knows_next([], []), "what was imported is looked up, so no hint waits for it"
        assert stage.app.search.predict([ToolId("calc__sub")], ()) == ({"calc__mul": 0.8}, 0.0)
        assert stage.app.search.predict([ToolId("calc__add")], ()) == ({}, 0.0)
        assert stage.app.search.predict([], ()) == ({}, 0.0)
    store.close()


def test_imported_calls_fade_as_own_ones_are_added() -> None:
    with open_store(":memory:") as store:
        imported = ImportedPriors(store.artifacts, catalog())
        imported.use(priors(sub=5, mul=3), 100.0)

        def order() -> list[str]:
            used = (*store.calls.usage(), *imported.usage().values())
            return list(order_tools(Prior(), used, lambda _: 10, 100.0, 1e6))

        assert order() == ["calc__mul", "calc__sub"]  # 25 calls each: no tool counts as more
        own = Call("s", 100.0, ToolId("calc__add"), "calc", "name", True, "ok", 1.0, True, "{}")
        store.calls.record([own])
        assert order()[-1] == "calc__add"
        store.calls.record([msgspec.structs.replace(own, took_ms=float(at)) for at in range(2, 30)])
        assert order()[0] == "calc__add"


def test_a_damaged_import_counts_for_nothing_and_the_one_before_serves() -> None:
    with open_store(":memory:") as store:
        store.artifacts.add(IMPORTED, msgspec.json.encode(priors(sub=5, mul=3)), {}, promote=True)
        store.artifacts.add(IMPORTED, b'{"format": "foretool-priors", "version": 9}', {}, promote=True)
        store.artifacts.bump_version()
        imported = ImportedPriors(store.artifacts, catalog())
        assert imported.usage() == {}
        imported.refresh()
        assert set(imported.usage()) == {"calc__sub", "calc__mul"}
        assert imported.has_any and imported.lists is None
