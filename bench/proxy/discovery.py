"""Asks a running proxy through `discover_tools`, and times its answers."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.clients.messages import PATIENCE_S, Json
from bench.clients.stdio import StdioClient
from bench.reports import Row, times_row
from foretool.retrieval.evaluation import quantile

WARM_UP = 20
"""Searches before those that are timed."""


async def discover(client: StdioClient, task: str, patience_s: float = PATIENCE_S) -> Json:
    """The result of one search."""
    return await client.call("discover_tools", {"task": task}, patience_s)


async def warm_up(client: StdioClient, queries: Sequence[str], patience_s: float = PATIENCE_S) -> None:
    """Search without timing, until caches are warm."""
    for query in queries[:WARM_UP]:
        await discover(client, query, patience_s)


async def time_searches(
    client: StdioClient, queries: Sequence[str], patience_s: float = PATIENCE_S
) -> tuple[list[Json], Row]:
    """The results of searches that follow one after the other, and the row of their times."""
    results, milliseconds = [], []
    for query in queries:
        started = time.perf_counter()
        results.append(await discover(client, query, patience_s))
        milliseconds.append(1e3 * (time.perf_counter() - started))
    words = quantile([len(query.split()) for query in queries], 0.5)
    return results, {"queries": len(queries), "words_median": words, **times_row(milliseconds)}
