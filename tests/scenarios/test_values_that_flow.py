"""What one tool gave and another was called with is on record as a flow, by the names of the fields alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeUpstream, proxy_over
from requirements import requirement

from foretool.server.housekeeping import save_flows
from foretool.storage.opening import open_store
from foretool.storage.store import Store

TOKEN = "s3cret-4711"


async def worked(store: Store, **settings: Any) -> None:
    """A client logs in, and posts with the token it was given."""
    given = {"content": [{"type": "text", "text": json.dumps({"token": TOKEN})}]}
    office = FakeUpstream("office", ["login", "post"], results={"login": given})
    async with proxy_over(office, store=store, **settings) as stage:
        await stage.client.call_tool("office__login", {"user": "alex"})
        await stage.client.call_tool("office__post", {"auth": TOKEN})
        await save_flows(stage.app.known.flows, stage.app.recorder)


@requirement("graph:flow")
@pytest.mark.parametrize("record", ["shape", "off"])
def test_a_value_that_comes_back_is_a_flow_unless_nothing_is_recorded(record: str, tmp_path: Path) -> None:
    with open_store(tmp_path / "foretool.sqlite3") as store:
        asyncio.run(worked(store, record=record))
        found = [(flow.before, flow.after, flow.field, flow.parameter) for flow in store.flows.all()]
    assert found == ([("office__login", "office__post", "token", "auth")] if record == "shape" else [])
    assert TOKEN.encode() not in b"".join(each.read_bytes() for each in tmp_path.iterdir())


@pytest.mark.parametrize("failing", ["login", "post"])
def test_no_value_flows_from_an_error_or_into_a_call_that_fails(failing: str, tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        text = {"content": [{"type": "text", "text": f"not in {TOKEN}"}]}
        office = FakeUpstream("office", ["login", "post"], results={"login": text, "post": text})
        office.results[failing] = {**text, "isError": True}
        async with proxy_over(office, store=store) as stage:
            await stage.client.call_tool("office__login", {"user": "alex"})
            await stage.client.call_tool("office__post", {"auth": TOKEN})
            await save_flows(stage.app.known.flows, stage.app.recorder)

    with open_store(tmp_path / "foretool.sqlite3") as store:
        asyncio.run(work(store))
        assert store.flows.all() == []
