"""Times how soon replicas serve a model that was promoted or rolled back elsewhere.

    python -m bench.fleet.take_up [--replicas 2] [--rounds 20] [--foretool COMMAND] [--json]

Replicas of `foretool serve --http` over one PostgreSQL, each with an echo server of three tools. Another process, as
the one that learns is, promotes a model that was trained before, and rolls it back again. Meanwhile each replica is
asked one `discover_tools` after the other, until its answer says that a tool was needed in an earlier task, or does
not say so any more. The rows: seconds from the commit of the promotion (or of the rollback) to that answer, of every
replica in every round.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.clients.http import HttpClient
from bench.clients.messages import MODERN
from bench.fleet.replicas import Fleet
from bench.metrics import quantile
from bench.options import add_foretool, add_json, make_parser
from bench.processes import installed, load_average
from bench.reports import Row, print_row
from foretool.learning.training import Material
from foretool.learning.training.masstool import METHOD
from foretool.storage.opening import open_store
from foretool.storage.records import Episode, Tool
from foretool.storage.store import Store

KIND = "masstool"
TASK = "look at the zebra"
LEARNED = "like an earlier task"
PAUSE_S = 0.01
PATIENCE_S = 60.0


class Asker:
    """A client of one replica."""

    def __init__(self, port: int) -> None:
        self._client = HttpClient(port, MODERN)

    async def open(self) -> None:
        """Connect, and take the first list, since no model is served before."""
        await self._client.connect()
        await self._client.ask("tools/list")

    async def close(self) -> None:
        await self._client.close()

    async def is_served(self) -> bool:
        """Return whether an answer goes by the model."""
        answer = await self._client.call("discover_tools", {"task": TASK, "structured": True})
        return any(LEARNED in each["why"] for each in answer["structuredContent"]["matches"])

    async def wait(self, serves: bool, since: float) -> float:
        """Return the seconds from a moment, by `time.monotonic`, until the model is served, or is no longer."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.is_served() != serves:
                await asyncio.sleep(PAUSE_S)
        return time.monotonic() - since


def train(store: Store) -> bytes:
    """Return a model that has seen the task, with one of the tools that the store knows."""
    names = sorted(store.catalog.exposed_names())
    tools = tuple(Tool(name, "e", name, b'{"name": "e", "inputSchema": {}}', name) for name in names)
    said = ((TASK, names[0]), ("send the parcel", names[-1]))
    tasks = (said[number % 2] for number in range(80))
    episodes = tuple(
        Episode((tool,), (words,), at=float(number), key=f"s{number}:0") for number, (words, tool) in enumerate(tasks)
    )
    return METHOD.train(Material(tools, episodes), lambda what, share: None)


async def measure(fleet: Fleet, rounds: int) -> dict[str, list[float]]:
    """Promote and roll back so many times; return the seconds of every replica, by what was done."""
    askers = [Asker(replica.port) for replica in fleet.replicas]
    found: dict[str, list[float]] = {"promotion": [], "rollback": []}
    for asker in askers:
        await asker.open()
    with open_store(fleet.address) as store:
        model = await asyncio.to_thread(train, store)
        for _ in range(rounds):
            store.artifacts.add(KIND, model, {}, promote=True)
            store.artifacts.bump_version()
            since = time.monotonic()
            found["promotion"] += await asyncio.gather(*(asker.wait(True, since) for asker in askers))
            store.artifacts.roll_back(KIND)
            since = time.monotonic()
            found["rollback"] += await asyncio.gather(*(asker.wait(False, since) for asker in askers))
            while store.artifacts.roll_back(KIND):  # or the next rollback would serve the model before
                pass
    for asker in askers:
        await asker.close()
    return found


async def run(folder: Path, command: Sequence[str], replicas: int, rounds: int) -> list[Row]:
    """Run the whole trial in a folder."""
    async with Fleet(folder, command, replicas) as fleet:
        found = await measure(fleet, rounds)
    return [
        {
            "what": what, "replicas": replicas, "rounds": rounds, "p50_s": round(quantile(seconds, 0.5), 3),
            "p95_s": round(quantile(seconds, 0.95), 3), "most_s": round(max(seconds), 3), "load": load_average(),
        }
        for what, seconds in found.items()
    ]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the rows."""
    parser = make_parser("bench.fleet.take_up", __doc__)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    add_foretool(parser)
    add_json(parser)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="take-up-") as folder:
        work = run(Path(folder), installed(arguments.foretool), arguments.replicas, arguments.rounds)
        for row in asyncio.run(work):
            print_row(row, arguments.json)


if __name__ == "__main__":
    main()
