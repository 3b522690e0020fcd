"""`/metrics`: read by Prometheus's own parsers, and told to nobody who may not know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
import pytest
from fakes import FakeUpstream, Stage, proxy_over
from http_callers import http_rules
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as classic
from requirements import requirement

from foretool.fleet.telemetry.conventions import SCRAPED
from foretool.fleet.telemetry.observing import ObservedRecorder
from foretool.fleet.telemetry.prometheus import Metrics
from foretool.server.app import Parts
from foretool.server.transports.client.http import HttpServer

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def scraped(*upstreams: FakeUpstream, rules: Any = None) -> AsyncIterator[tuple[Stage, httpx2.AsyncClient]]:
    metrics = Metrics()
    parts = Parts(partial(ObservedRecorder, (metrics,)))
    async with proxy_over(*upstreams, parts=parts) as stage:
        metrics.attach(stage.app)
        server = HttpServer(stage.app.router, rules or http_rules(), metrics=metrics.write)
        serving = asyncio.create_task(server.serve())
        await server.ready.wait()
        try:
            async with httpx2.AsyncClient(verify=False, base_url=f"http://127.0.0.1:{server.address.port}") as http:
                yield stage, http
        finally:
            await server.stop()
            await serving


@requirement("telemetry:metrics")
async def test_prometheus_reads_what_happened() -> None:
    calc = FakeUpstream("calc", ["add"])
    async with scraped(calc) as (stage, http):
        await stage.client.initialize()
        await stage.client.list_tools()
        await stage.client.call_tool("calc__add", {})
        await stage.client.discover("add")
        answer = await http.get("/metrics")
        newer = await http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/plain")
    assert newer.headers["content-type"].startswith("application/openmetrics-text")
    families = {each.name: each for each in classic(answer.text)}
    values = {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for each in families.values()
        for sample in each.samples
    }
    assert values["foretool_calls_total", "ok", "calc"] == 1
    assert values["foretool_call_seconds_count", "calc"] == 1
    assert [value for key, value in values.items() if key[0] == "foretool_misses_total"] == [1]
    assert values["foretool_server_state", "calc", "ready"] == 1
    assert values["foretool_server_state", "calc", "stopped"] == 0
    assert values["foretool_lists_total", "list"] == 1
    assert values["foretool_list_tokens_count",] >= 1
    assert values["foretool_tools",] == values["foretool_clients",] == values["foretool_discovery_seconds_count",] == 1
    newest = {each.name for each in open_metrics(newer.text)}
    assert {name for name, *_ in SCRAPED} <= newest
    assert "process_resident_memory_bytes" in newest


async def test_names_of_servers_are_written_so_that_they_can_be_read() -> None:
    name = 'a"b\\c'
    async with scraped(FakeUpstream(name, ["add"])) as (_, http):
        answer = await http.get("/metrics")
    servers = {sample.labels.get("server") for each in classic(answer.text) for sample in each.samples}
    assert name in servers


async def test_unknown_tools_add_no_series() -> None:
    async with scraped(FakeUpstream("calc", ["add"])) as (stage, http):
        await stage.client.initialize()
        before = len((await http.get("/metrics")).text.splitlines())
        for number in range(50):
            await stage.client.reply(stage.client.post("tools/call", {"name": f"evil{number}"}))
        after = len((await http.get("/metrics")).text.splitlines())
    assert after - before < 5


@requirement("telemetry:metrics")
async def test_the_rules_of_the_other_paths_hold() -> None:
    whole, part = "w" * 40, "p" * 40
    rules = http_rules(tokens={whole: ["*"], part: ["work"]}, profiles=["", "work"])

    def bearer(token: str) -> dict[str, str]:
        return {"authorization": f"Bearer {token}"}

    async with scraped(FakeUpstream("calc", ["add"]), rules=rules) as (_, http):
        assert (await http.get("/metrics")).status_code == 401
        assert (await http.get("/metrics", headers=bearer("wrong"))).status_code == 401
        refused = await http.get("/metrics", headers=bearer(part))
        assert (refused.status_code, "calc" in refused.text) == (403, False)
        assert (await http.get("/metrics", headers=bearer(whole))).status_code == 200
        assert (await http.post("/metrics", headers=bearer(whole))).status_code == 405
        rebound = await http.get("/metrics", headers={**bearer(whole), "host": "evil.example"})
        assert rebound.status_code == 421
        foreign = await http.get("/metrics", headers={**bearer(whole), "origin": "https://evil.example"})
        assert foreign.status_code == 403


async def test_without_the_setting_nothing_is_there() -> None:
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        server = HttpServer(stage.app.router, http_rules())
        serving = asyncio.create_task(server.serve())
        await server.ready.wait()
        async with httpx2.AsyncClient(verify=False, base_url=f"http://127.0.0.1:{server.address.port}") as http:
            assert (await http.get("/metrics")).status_code == 404
        await server.stop()
        await serving


async def test_many_scrapes_at_once_are_answered_beside_calls() -> None:
    async with scraped(FakeUpstream("calc", ["add"])) as (stage, http):
        await stage.client.initialize()
        scrapes = [http.get("/metrics") for _ in range(8)]
        first, *answers = await asyncio.gather(stage.client.call_tool("calc__add", {}), *scrapes)
    assert "isError" not in first
    assert {answer.status_code for answer in answers} == {200}
