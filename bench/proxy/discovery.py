"""Measures the searches of a running proxy: the first one, many in a row, and the memory that they take."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from bench import processes
from bench.clients.messages import Json, said
from bench.clients.stdio import StdioClient
from bench.metrics import quantile
from bench.reports import Row, times_row
from foretool.retrieval import tokens

CALL_S = 120.0
WARM_UP = 20
"""Searches before those that are timed."""


async def discover(client: StdioClient, task: str) -> Json:
    """The result of one search."""
    return await client.call("discover_tools", {"task": task, "structured": True}, CALL_S)


async def measure_searches(
    client: StdioClient, asked: Mapping[str, Sequence[str]], settle: Callable[[StdioClient], Awaitable[None]]
) -> Row:
    """The memory, the first search, a row for each list of queries, and the memory again.

    `settle` waits for the work that the first search has begun.
    """
    found: Row = {"rss_mib": processes.memory_mib(client.pid)[0]}
    started = time.perf_counter()
    await discover(client, next(iter(asked.values()))[0])
    found["first_search_s"] = round(time.perf_counter() - started, 3)
    await settle(client)
    found["search"] = {name: await search(client, queries) for name, queries in asked.items()}
    return {**found, "rss_after_searches_mib": processes.memory_mib(client.pid)[0]}


async def search(client: StdioClient, queries: Sequence[str]) -> Row:
    """The row of warm searches, each after the one before; `cpu_ms` is the processor time of one."""
    for query in queries[:WARM_UP]:
        await discover(client, query)
    results, milliseconds, before = [], [], processes.cpu_s(client.pid)
    for query in queries:
        started = time.perf_counter()
        results.append(await discover(client, query))
        milliseconds.append(1e3 * (time.perf_counter() - started))
    matches = [each["structuredContent"]["matches"] for each in results]
    return {
        "queries": len(queries),
        "words_median": quantile([len(query.split()) for query in queries], 0.5),
        **times_row(milliseconds),
        "cpu_ms": round(1e3 * (processes.cpu_s(client.pid) - before) / len(queries), 2),
        "answer_tokens_median": quantile(tokens.count_tokens([said(each) for each in results]), 0.5),
        "nothing_found": sum(not found for found in matches),
        "with_matches_by_meaning": sum(any(match["why"] == "meaning" for match in found) for found in matches),
    }
