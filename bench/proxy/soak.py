"""Checks under hours of load that every answer finds its caller and that the proxy does not grow.

    python -m bench.proxy.soak [--calls 100000] [--sessions 50]

`foretool serve --http` over several stdio upstreams is called by `--sessions` clients, every second one of the modern
era, each over `--connections` connections. Every call carries its own text, and its answer must bring that text back.
Shares of the calls are cancelled, dropped (the connection breaks after the first progress; a legacy client comes back
for the rest, or leaves its session), or watched (progress and log entries must belong to the call). Meanwhile the
upstreams announce changes, and the clients list and search. Memory, open files, threads, event-loop tasks and objects
are sampled as calls go by; at the end the records are compared with the calls.

The output is one JSON object. `wrong`: answers that belonged to another call. `lost`: calls without an answer. `twice`:
calls with more than one. `records`: calls that must be on record and are not (`missing`), are there more than once
(`twice`), or were never made (`unknown`). `growth`: each sampled figure after the warm-up, at the end, at its highest,
and its slope per 100,000 calls.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import processes
from bench.clients.messages import LEGACY, MODERN, Failed, said
from bench.clients.streams import Stream, TalliedClient, Tally
from bench.options import make_parser
from bench.reports import times_row

WARM_UP = 0.1
"""Share of the calls before the first sample that counts."""
SAMPLES = 40
ASIDE_EVERY = 500
"""Calls after which a connection lists and searches."""
SLOW_MS = 200
"""How long a call takes while it is cancelled or dropped."""
SESSION_IDLE_S = 10.0
"""The proxy's setting, so that abandoned sessions expire during the run."""
START_S = 30.0
SERVERS = Path(__file__).parents[1] / "servers"
INSTRUMENTED = str(SERVERS / "instrumented.py")
SLOW_UPSTREAM = str(SERVERS / "slow_upstream.py")

Json = dict[str, Any]


class Lost(Exception):
    """A call that nobody had given up was not answered."""


@dataclass
class Work:
    """The calls that are to be made, and what became of them."""

    calls: int
    deadline: float
    """`time.monotonic` after which no call begins."""
    servers: Sequence[str]
    port: int
    shares: dict[str, float]
    """Shares of the calls that are not plain: `cancelled`, `dropped`, `watched`."""
    tally: Tally = field(default_factory=Tally)
    begun: int = 0
    done: int = 0
    lists: int = 0
    searches: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    """Notifications, by method."""
    must_be_kept: set[int] = field(default_factory=set)
    """Numbers of the calls that reached an upstream for certain."""
    may_be_kept: set[int] = field(default_factory=set)
    """Numbers of the calls that broke off before the client knew whether they reached one."""
    wrong: list[str] = field(default_factory=list)
    """Calls that failed or got the answer of another call."""
    lost: list[str] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)

    def next(self) -> int | None:
        """The number of the next call; None when none is left."""
        if self.begun >= self.calls or time.monotonic() > self.deadline:
            return None
        self.begun += 1
        return self.begun

    def manner(self, number: int) -> str:
        """What becomes of a call, the same in every run."""
        at = (number * 2654435761 % 2**32) / 2**32
        for manner, share in self.shares.items():
            if at < share:
                return manner
            at -= share
        return "plain"

    def question(self, number: int, **more: Any) -> tuple[str, str, Json]:
        """The server, tool and arguments of a call."""
        server = self.servers[number % len(self.servers)]
        # From a few bytes to some kilobytes, so that buffers have many sizes.
        text = f"#{number}#" + "x" * (number % 37) ** 2
        return server, f"{server}_t{number % 9 + 1}", {"text": text, **more}


async def work_on(work: Work, client: TalliedClient) -> None:
    """Call until no call is left."""
    while (number := work.next()) is not None:
        manner = work.manner(number)
        started = time.perf_counter()
        try:
            work.outcomes[await MANNERS[manner](work, client, number)] += 1
        except (Lost, TimeoutError) as error:
            work.lost.append(f"call {number}, {manner}: {error!r}"[:300])
        except (Failed, OSError, asyncio.IncompleteReadError) as error:
            work.wrong.append(f"call {number}, {manner}: {error!r}"[:300])
        if manner == "plain":
            work.milliseconds.append(1e3 * (time.perf_counter() - started))
        work.done += 1
        if number % ASIDE_EVERY == 0:
            await aside(work, client, number)


async def plain(work: Work, client: TalliedClient, number: int) -> str:
    """One call on a connection that is kept. Raises `Failed` unless its answer is its own."""
    server, tool, sent = work.question(number)
    check(await client.call(f"{server}__{tool}", sent), server, tool, sent)
    work.must_be_kept.add(number)
    return "answered"


def check(result: Json, server: str, tool: str, sent: Json) -> None:
    got = json.loads(said(result))
    if got != {"server": server, "tool": tool, "arguments": sent}:
        raise Failed(f"the answer is that of {got['server']}.{got['tool']} {str(got['arguments'])[:60]}")


async def begun(work: Work, client: TalliedClient, number: int, **more: Any) -> tuple[Stream, Callable[[Json], None]]:
    """A call on its own connection whose first progress has come, and a function that checks its result."""
    server, tool, sent = work.question(number, **more)
    stream = client.stream()
    work.may_be_kept.add(number)
    await stream.call(f"{server}__{tool}", sent, progressToken=f"p{number}")
    heard(work, await stream.next(), number)
    work.must_be_kept.add(number)
    return stream, lambda result: check(result, server, tool, sent)


def heard(work: Work, note: Json | None, number: int) -> None:
    """Count a notification of a call. Raises `Failed` when it belongs to another call."""
    if note is None or "method" not in note:
        raise Lost(f"{str(note)[:100]} in place of its progress")
    work.notes[note["method"]] += 1
    params = note["params"]
    text = params.get("message") or params.get("data") or ""
    if not text.startswith(f"#{number}#") or params.get("progressToken", f"p{number}") != f"p{number}":
        raise Failed(f"a notification of another call: {str(params)[:100]}")


async def watched(work: Work, client: TalliedClient, number: int) -> str:
    """A call to its end, with its notifications."""
    stream, check_result = await begun(work, client, number, log=True)
    try:
        notes, reply = await stream.answer()
        for note in notes:
            heard(work, note, number)
        if reply is None:
            raise Lost("its stream ended without a reply")
        check_result(reply.get("result") or {"content": [], "isError": True})
        return "answered"
    finally:
        await stream.close()


async def cancelled(work: Work, client: TalliedClient, number: int) -> str:
    """A call that is cancelled as its era does; a legacy stream then ends without a reply, if it was in time."""
    if client.is_modern:
        return await dropped(work, client, number)
    stream, check_result = await begun(work, client, number, ms=SLOW_MS)
    try:
        await client.say("notifications/cancelled", {"requestId": stream.id, "reason": "enough"})
        _, reply = await stream.answer()
        if reply is not None:
            check_result(reply["result"])
            return "answered"
        return "cancelled"
    finally:
        await stream.close()


async def dropped(work: Work, client: TalliedClient, number: int) -> str:
    """A call whose connection breaks. This cancels a modern call; a legacy client comes back or leaves."""
    if client.is_modern:
        stream, _ = await begun(work, client, number, ms=SLOW_MS)
        stream.drop()
        return "dropped"
    return await (resumed if number % 2 else left)(work, client, number)


async def resumed(work: Work, client: TalliedClient, number: int) -> str:
    """A call whose connection breaks, and whose client comes back for the rest of the stream."""
    stream, check_result = await begun(work, client, number, ms=SLOW_MS)
    stream.drop()
    again = client.stream()
    again.id = stream.id
    await again.get(stream.last_id)
    try:
        _, reply = await again.answer()
        if reply is None:
            raise Lost("nothing was kept of its answer")
        check_result(reply["result"])
        return "resumed"
    finally:
        await again.close()


async def left(work: Work, client: TalliedClient, number: int) -> str:
    """A call in its own session, which is then ended or abandoned."""
    other = TalliedClient(work.port, client.version, work.tally, "")
    await other.connect()
    try:
        await other.initialize()
        stream, _ = await begun(work, other, number, ms=SLOW_MS)
        stream.drop()
        if number % 4 < 2:
            await other.end()
        return "dropped"
    finally:
        await other.close()


MANNERS: dict[str, Callable[[Work, TalliedClient, int], Awaitable[str]]] = {
    "plain": plain,
    "cancelled": cancelled,
    "dropped": dropped,
    "watched": watched,
}


async def aside(work: Work, client: TalliedClient, number: int) -> None:
    """List and search once."""
    try:
        await client.ask("tools/list")
        work.lists += 1
        found = await client.call(
            "discover_tools", {"task": f"echo text as {work.servers[number % len(work.servers)]}", "structured": True}
        )
        work.searches += bool(found["structuredContent"]["matches"])
    except (Failed, TimeoutError) as error:
        work.wrong.append(f"list or search after {number}: {error!r}"[:300])


async def listen(work: Work, client: TalliedClient) -> None:
    """Listen to the notifications that belong to no call, until cancelled."""
    stream = client.stream()
    try:
        if client.is_modern:
            await stream.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        else:
            await stream.get()
        while (message := await stream.next(2 * START_S + 3600)) is not None:
            work.notes[message["method"]] += 1
    finally:
        stream.drop()


@dataclass
class Watch:
    """Samples of the proxy: what the operating system sees, and what the proxy counts of itself."""

    pid: int
    counts: Path
    storage: Path
    samples: list[dict[str, Any]] = field(default_factory=list)

    async def sample(self, done: int) -> None:
        before = self._lines()
        os.kill(self.pid, signal.SIGUSR1)
        async with asyncio.timeout(START_S):
            while len(lines := self._lines()) <= len(before):
                await asyncio.sleep(0.05)
        own = json.loads(lines[-1])
        rss, pss = processes.memory_mib(self.pid)
        self.samples.append(
            {
                "calls": done,
                "rss_mib": rss,
                "pss_mib": pss,
                "open_files": processes.open_files(self.pid),
                "threads": processes.threads(self.pid),
                "children": processes.children(self.pid),
                "tasks": own["tasks"],
                "objects": own["objects"],
                "storage_mib": round(sum(each.stat().st_size for each in self._stored()) / 2**20, 1),
            }
        )

    def _lines(self) -> list[str]:
        return self.counts.read_text("utf-8").splitlines() if self.counts.exists() else []

    def _stored(self) -> list[Path]:
        return list(self.storage.parent.glob(self.storage.name + "*"))

    async def follow(self, work: Work) -> None:
        """Take a sample after every fortieth of the calls, until cancelled."""
        while True:
            await asyncio.sleep(0.1)
            if work.done >= len(self.samples) * work.calls / SAMPLES:
                await self.sample(work.done)


def growth(samples: Sequence[dict[str, Any]], calls: int) -> dict[str, Any]:
    """For each figure: its value after the warm-up, at the end, the most, and the slope per 100,000 calls."""
    kept = [sample for sample in samples if sample["calls"] >= WARM_UP * calls]
    if len(kept) < 2:
        return {}
    at = [sample["calls"] for sample in kept]
    return {
        key: {
            "warm": kept[0][key],
            "end": kept[-1][key],
            "most": max(sample[key] for sample in kept),
            "per_100000_calls": round(1e5 * slope(at, [sample[key] for sample in kept]), 2),
        }
        for key in kept[0]
        if key != "calls"
    }


def slope(at: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the straight line with the least squares."""
    mean_at, mean = sum(at) / len(at), sum(values) / len(values)
    width = sum((x - mean_at) ** 2 for x in at)
    return sum((x - mean_at) * (y - mean) for x, y in zip(at, values, strict=True)) / width if width else 0.0


async def clients(work: Work, sessions: int, connections: int) -> list[list[TalliedClient]]:
    """The connections of each session; the first of them opened it."""
    made = []
    for at in range(sessions):
        version = MODERN if at % 2 else LEGACY
        session = [TalliedClient(work.port, version, work.tally, f"modern-{at}-{each}") for each in range(connections)]
        for client in session:
            await client.connect()
        await session[0].initialize()
        for client in session[1:]:
            client.join(session[0])
        made.append(session)
    return made


async def soak(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Start the proxy, make the calls, end the proxy, and read its records."""
    servers = [f"u{at:02d}" for at in range(arguments.upstreams)]
    upstreams = {
        name: {"command": sys.executable, "args": ["-S", "-E", SLOW_UPSTREAM, "--name", name]} for name in servers
    }
    settings = {"policy": "full", "record": "full", "encoder": "none", "session_idle_s": SESSION_IDLE_S}
    path = processes.write_config(folder, upstreams, **settings)
    port = processes.free_port()
    counts = folder / "counts.jsonl"
    command = [arguments.python, "-P", INSTRUMENTED, str(counts), "serve", "--config", str(path)]
    with (folder / "log").open("wb") as log:
        proxy = await asyncio.create_subprocess_exec(*command, "--http", f"127.0.0.1:{port}", stderr=log)
    shares = {"cancelled": arguments.cancels, "dropped": arguments.drops, "watched": arguments.watches}
    work = Work(arguments.calls, time.monotonic() + arguments.limit_s, servers, port, shares)
    try:
        await processes.wait_until_listening(port, proxy, START_S)
        found = await measure(arguments, work, Watch(proxy.pid, counts, folder / "foretool.sqlite3"))
    except (processes.ProcessEnded, Failed) as error:
        raise SystemExit(f"the proxy failed: {error}: {(folder / 'log').read_text('utf-8')[-500:]}") from None
    finally:
        if proxy.returncode is None:
            proxy.terminate()
        status = await asyncio.wait_for(proxy.wait(), START_S)
    log_lines = (folder / "log").read_text("utf-8").splitlines()
    kept = records(folder / "foretool.sqlite3", work)
    return {**found, "records": kept, "exit_status": status, "log_lines": len(log_lines), "log_tail": log_lines[-3:]}


def records(path: Path, work: Work) -> dict[str, Any]:
    """Compare the records with the calls."""
    store = sqlite3.connect(path)
    try:
        rows = store.execute("SELECT arguments, outcome FROM calls").fetchall()
    finally:
        store.close()
    kept = Counter(int(json.loads(written)["text"].split("#")[1]) for written, _ in rows)
    missing = sorted(work.must_be_kept - kept.keys())
    return {
        "called": len(work.must_be_kept),
        "kept": len(rows),
        "missing": len(missing),
        "missing_first": missing[:5],
        "twice": sum(count > 1 for count in kept.values()),
        "unknown": len(kept.keys() - work.must_be_kept - work.may_be_kept),
        "outcomes": dict(Counter(outcome for _, outcome in rows)),
    }


async def measure(arguments: argparse.Namespace, work: Work, watch: Watch) -> dict[str, Any]:
    """Let every session work until the calls or the time are used up; the figures."""
    sessions = await clients(work, arguments.sessions, arguments.connections)
    listeners = [asyncio.create_task(listen(work, session[0])) for session in sessions]
    follower = asyncio.create_task(watch.follow(work))
    started = time.monotonic()
    await asyncio.gather(*(work_on(work, client) for session in sessions for client in session))
    took = time.monotonic() - started
    follower.cancel()
    await asyncio.sleep(1)
    await watch.sample(work.done)
    silent = sum(listener.done() for listener in listeners)
    for listener in listeners:
        listener.cancel()
    await asyncio.gather(*listeners, return_exceptions=True)
    for session in sessions:
        await session[0].end()
        for client in session:
            await client.close()
    # Abandoned sessions expire meanwhile.
    await asyncio.sleep(arguments.settle_s)
    await watch.sample(work.done)
    *during, after = watch.samples
    return {
        "test": "soak",
        "calls": work.done,
        "of": work.calls,
        **work.outcomes,
        "wrong": len(work.wrong),
        "wrong_first": work.wrong[:3],
        "lost": len(work.lost),
        "lost_first": work.lost[:3],
        "twice": work.tally.twice,
        "notifications": dict(work.notes),
        "streams_that_ended": silent,
        "lists": work.lists,
        "searches": work.searches,
        "sessions": {"legacy": (arguments.sessions + 1) // 2, "modern": arguments.sessions // 2},
        "connections": arguments.sessions * arguments.connections,
        "upstreams": len(work.servers),
        "seconds": round(took, 1),
        "calls_per_s": round(work.done / took),
        **times_row(work.milliseconds, (50, 99)),
        "growth": growth(during, work.calls),
        "rss_mib": [sample["rss_mib"] for sample in during],
        "after_the_clients_left": after,
        "load": processes.load_average(),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and soak."""
    parser = make_parser("bench.proxy.soak", __doc__)
    parser.add_argument("--calls", type=int, default=100_000, help="default %(default)s")
    parser.add_argument("--sessions", type=int, default=50, help="default %(default)s")
    parser.add_argument("--cancels", type=float, default=0.03, help="share of the calls; default %(default)s")
    parser.add_argument("--drops", type=float, default=0.03, help="share of the calls; default %(default)s")
    parser.add_argument("--watches", type=float, default=0.03, help="share of the calls; default %(default)s")
    parser.add_argument("--connections", type=int, default=2, help="of each session; default %(default)s")
    parser.add_argument("--upstreams", type=int, default=5, help="default %(default)s")
    parser.add_argument("--settle-s", type=float, default=2 * SESSION_IDLE_S, help="waited at the end")
    parser.add_argument("--limit-s", type=float, default=900.0, help="nothing is asked later; default %(default)s")
    parser.add_argument("--python", default=sys.executable, help="of the foretool to measure; default: this one")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="bench-soak-") as place:
        print(json.dumps(asyncio.run(soak(arguments, Path(place)))))


if __name__ == "__main__":
    main()
