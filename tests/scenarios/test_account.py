"""A client keeps an account of what it reads and misses; the ledger has to agree with it, miss by miss."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import anyio
import pytest
from browsing import browser, make_door
from requirements import requirement

from bench import processes
from bench.clients.messages import Json
from bench.proxy import account

pytestmark = pytest.mark.slow

TASKS = 8


@requirement("miss:account")
@pytest.mark.parametrize(("kind", "ends"), [("growing", 0.3), ("deaf", 0.0), ("modern", 0.3)])
def test_the_ledger_agrees_with_the_account_of_a_client_on_every_search_and_every_miss(
    tmp_path: Path, kind: account.Kind, ends: float
) -> None:
    command = processes.installed(None)
    place, kept = anyio.run(account.run, command, tmp_path, kind, TASKS, "none", None, ends)
    lines = account.compare(place, kept)
    assert [line for line in lines if not line.agrees] == []
    assert kept.searches > 5 and kept.calls > 5


@requirement("rates:fifty-tasks")
def test_an_evening_of_searches_and_a_few_calls_shows_no_rate_anywhere(tmp_path: Path) -> None:
    place = account.Place(processes.installed(None), tmp_path, account.generate(), encoder="none")

    async def explore() -> None:
        await place.learn_tools("deaf")
        async with place.window("deaf") as client:
            for number in range(25):
                await client.call("discover_tools", {"task": f"{account.VERBS[number % 8]} thing {number}"})
                if number % 5 < 2:
                    name = sorted(place.schemas)[number]
                    arguments = account.sample(place.schemas[name])
                    await client.call("call_tool_write", {"name": name, "arguments": arguments})

    async def look() -> str:
        async with browser(make_door(place.path)) as page:
            return "".join([(await page.get(path)).text for path in ("/", "/settings")])

    anyio.run(explore)
    told = place.ask("status", "--stats")
    rows: list[Json] = [told["total"], *told["clients"], *told["days"]]
    rates = ("miss_rate", "saved", "saved_of_own_search", *(name for name in rows[0] if name.endswith("_per_task")))
    assert {row[name] for row in rows for name in rates} == {None}
    assert (told["total"]["discoveries"], told["total"]["calls"]) == (25, 10)
    assert place.ask("status")["confidence"] is None
    said = [
        subprocess.run(
            [*place.command, "status", *more, "--config", str(place.path)], capture_output=True, text=True, check=False
        )
        for more in ((), ("--stats",))
    ]
    shown = "".join([each.stdout for each in said]) + anyio.run(look)
    assert "25 searches" in shown and re.findall(r"\d[\d.,]*\s?%", shown) == []
