"""Seeded misses: each is made so that its cause is known, before running proxies, for every cause and policy.

What `foretool misses NUMBER` and `foretool search TASK --tool NAME` print, in words and as JSON, must name that cause.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fakes import Failed, FakeClient, FakeUpstream, Stage, failing_store, proxy_over, text, tool
from requirements import requirement

from foretool.server import offline
from foretool.server.commands.group import run
from foretool.server.commands.search import explain_tool, search_once
from foretool.server.ledger.fixes import diagnose_miss
from foretool.server.ledger.story import CAUSES
from foretool.server.protocol import versions
from foretool.storage.records import Cause, Policy

pytestmark = pytest.mark.anyio

WORDS = "forecast the weather of tomorrow for a city"
BIG = "word " * 900


class Seed(NamedTuple):
    """One way to miss a tool."""

    name: str
    cause: Cause
    make: Any
    policies: tuple[Policy, ...]
    ways: tuple[str, ...] = ("name", "bridge", "discovery")
    fix: str = ""
    """The kind of change that `misses` must offer; "" where none of the config would have shown the tool."""
    explained: str = ""
    """What `explain` says before the miss, where only the client knows what it lacks; "" for the cause in brackets."""


class Missed(NamedTuple):
    """A proxy whose client misses `tool` next."""

    stage: Stage
    client: FakeClient
    tool: str
    task: str = WORDS


Making = AsyncIterator[Missed]


def sky(*more: Any, described: str = "Forecast of the weather for a city") -> FakeUpstream:
    return FakeUpstream("sky", [tool("forecast", described), *more])


def others(count: int = 12) -> FakeUpstream:
    return FakeUpstream("other", [tool(f"do_{number}", f"Does the work {number}. " * 6) for number in range(count)])


@asynccontextmanager
async def listing(*upstreams: FakeUpstream, name: str = "sky__forecast", **settings: Any) -> Making:
    """A client that has its list and has called nothing."""
    async with proxy_over(*upstreams, **settings) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        yield Missed(stage, stage.client, name)


async def use(client: FakeClient, *names: str) -> None:
    for name in names:
        with suppress(Failed):
            await client.call_tool("call_tool_write", {"name": name, "arguments": {}})


@asynccontextmanager
async def used_before(upstreams: tuple[FakeUpstream, ...], names: list[str], policy: str, **settings: Any) -> Making:
    """A new proxy over a store in which these tools were used."""
    store, _ = failing_store()
    async with proxy_over(*upstreams, store=store, policy=policy) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await use(stage.client, *names)
    async with proxy_over(*upstreams, store=store, policy=policy, **settings) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        yield Missed(stage, stage.client, "sky__forecast")


@asynccontextmanager
async def never_used(policy: str) -> Making:
    async with listing(sky(), others(), policy=policy) as missed:
        yield missed


@asynccontextmanager
async def lost_to_better_ones(policy: str) -> Making:
    often = [f"other__do_{number % 12}" for number in range(48)]
    long = sky(described="Forecast of the weather for a city. " + "Says how warm it is. " * 20)
    async with used_before((long, others()), [*often, "sky__forecast"], policy, list_tokens=700) as missed:
        yield missed


@asynccontextmanager
async def larger_than_the_list(policy: str) -> Making:
    huge = FakeUpstream("sky", [tool("forecast", f"Forecast of the weather for a city. {BIG}")])
    async with used_before((huge, others()), ["sky__forecast"], policy, list_tokens=700) as missed:
        yield missed


@asynccontextmanager
async def pushed_out_by_pins(policy: str) -> Making:
    async with used_before((sky(), others()), ["sky__forecast"], policy, pin=["other__*"], list_tokens=600) as missed:
        yield missed


@asynccontextmanager
async def kept_free_to_grow(policy: str) -> Making:
    async with used_before((sky(), others(2)), ["sky__forecast"], policy, list_tokens=335) as missed:
        yield missed


@asynccontextmanager
async def not_filled_so_that_it_can_grow(policy: str) -> Making:
    async with listing(sky(), policy=policy, list_fill=True, list_names=False, list_tokens=335) as missed:
        yield missed


@asynccontextmanager
async def used_since(policy: str) -> Making:
    async with listing(sky(), others(2), policy=policy, epoch_s=0) as missed:
        await use(missed.client, "sky__forecast")
        other = missed.stage.connect()
        await other.initialize()
        await other.list_tools()
        yield missed._replace(client=other)


@asynccontextmanager
async def came_since(policy: str) -> Making:
    upstream = FakeUpstream("sky", [tool("moon", "Phase of the moon")])
    upstream.entry["trust"] = "auto"
    async with listing(upstream, policy=policy, list_whole=True) as missed:
        count = upstream.count("tools/list")
        upstream.change(tool("moon", "Phase of the moon"), tool("forecast", "Forecast of the weather for a city"))
        await upstream.asked("tools/list", count + 1)
        await asyncio.sleep(3)
        yield missed


@asynccontextmanager
async def not_fetched(policy: str) -> Making:
    async with listing(sky(), policy=policy, list_names=False) as missed:
        owner = next(iter(missed.stage.app.clients))
        assert owner.session is not None
        assert owner.tools.grow(owner.session.list, [missed.stage.app.catalog.tools()[0].id])
        yield missed


@asynccontextmanager
async def failing(policy: str) -> Making:
    upstream = sky()
    upstream.results["forecast"] = text("no", isError=True)
    async with used_before((upstream, others(2)), ["sky__forecast"] * 3, policy, list_tokens=2000) as missed:
        yield missed


@asynccontextmanager
async def unknown_at_the_list(policy: str) -> Making:
    slow = FakeUpstream("sky", [tool("forecast", "Forecast of the weather for a city")], gate=asyncio.Event())
    async with listing(slow, others(2), policy=policy, cold_list_s=0.1) as missed:
        assert slow.gate is not None
        slow.gate.set()
        await slow.asked("tools/list")
        await asyncio.sleep(0.2)
        yield missed


@asynccontextmanager
async def never_listed(policy: str) -> Making:
    async with listing(FakeUpstream("sky", ["forecast"], missing="no such program"), policy=policy) as missed:
        yield missed


def entry(**given: Any) -> Callable[[str], Any]:
    """A server whose entry keeps the tool away."""

    @asynccontextmanager
    async def make(policy: str) -> Making:
        upstream = sky(tool("moon", "Phase of the moon"))
        upstream.entry |= given
        async with listing(upstream, others(2), policy=policy) as missed:
            yield missed

    return make


@asynccontextmanager
async def disabled(policy: str) -> Making:
    store, _ = failing_store()
    async with proxy_over(sky(), others(2), store=store, policy=policy) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
    upstream = sky()
    upstream.entry["disabled"] = True
    async with listing(upstream, others(2), store=store, policy=policy) as missed:
        yield missed


@asynccontextmanager
async def outside_the_profile(policy: str) -> Making:
    profiles = {"work": {"servers": ["other"], "policy": policy}}
    async with listing(sky(), others(2), profile="work", profiles=profiles) as missed:
        yield missed


@asynccontextmanager
async def waiting_for_approval(policy: str) -> Making:
    upstream = sky()
    upstream.entry["trust"] = "review"
    async with listing(upstream, others(2), policy=policy) as missed:
        yield missed


@asynccontextmanager
async def no_such_tool(policy: str) -> Making:
    async with listing(sky(), policy=policy, name="sky__tides") as missed:
        yield missed


@asynccontextmanager
async def too_large_with_a_page(policy: str) -> Making:
    """A client that shows pages, and a tool with a page that its list has no room for."""
    drawn = tool(
        "forecast", f"Forecast of the weather for a city. {BIG}", _meta={"ui": {"resourceUri": "ui://sky/map"}}
    )
    async with proxy_over(FakeUpstream("sky", [drawn]), others(), policy=policy, list_tokens=700) as stage:
        await stage.client.initialize(capabilities={"extensions": {versions.UI: {}}})
        await stage.client.list_tools()
        yield Missed(stage, stage.client, "sky__forecast")


def searching(task: str, *upstreams: Callable[[], FakeUpstream], **settings: Any) -> Callable[[str], Any]:
    """A search in vain."""

    @asynccontextmanager
    async def make(policy: str) -> Making:
        async with listing(*(each() for each in upstreams), policy=policy, name="", **settings) as missed:
            yield missed._replace(task=task)

    return make


@asynccontextmanager
async def before_meaning_is_ready(policy: str) -> Making:
    async with listing(sky(), others(2), policy=policy, name="") as missed:
        missed.stage.app.search.opening.connect(lambda: None, lambda: True)
        yield missed._replace(task="quux zyzzy")


def denying() -> FakeUpstream:
    upstream = sky()
    upstream.entry["deny"] = ["*"]
    return upstream


LISTS: tuple[Policy, ...] = ("frozen", "growing")
ALL: tuple[Policy, ...] = ("frozen", "growing", "full")
CALLS = ("name", "bridge")
VAIN = ("search",)
SEEDS = [
    Seed("never used", "rank", never_used, LISTS, fix="pin"),
    Seed("lost to better ones", "budget", lost_to_better_ones, LISTS, fix="budget"),
    Seed("larger than the list", "budget", larger_than_the_list, LISTS, fix="budget"),
    Seed("pushed out by pins", "budget", pushed_out_by_pins, LISTS, fix="budget"),
    Seed("not filled so that it can grow", "policy", not_filled_so_that_it_can_grow, ("growing",), fix="policy"),
    Seed("kept free to grow", "policy", kept_free_to_grow, ("growing",), fix="policy"),
    Seed("used since", "stale", used_since, ("frozen",)),
    Seed("came since", "stale", came_since, ALL),
    Seed("not fetched", "stale", not_fetched, ("growing",), CALLS, explained="the client's list"),
    Seed("failing", "failing", failing, LISTS, fix="pin"),
    Seed("with a page", "app", too_large_with_a_page, LISTS, fix="pin", explained="(rank)"),
    Seed("unknown at the list", "offline", unknown_at_the_list, ALL),
    Seed("never listed", "offline", never_listed, ALL, CALLS, "doctor"),
    Seed("excluded", "denied", entry(exclude=["forecast"]), ALL, CALLS, "enable"),
    Seed("not included", "denied", entry(include=["moon"]), ALL, CALLS, "enable"),
    Seed("refused by a rule", "denied", entry(deny=["forecast"]), ALL, CALLS, "rule"),
    Seed("refused as a class", "denied", entry(deny=["@destructive"]), ALL, CALLS),
    Seed("disabled", "gone", disabled, ALL, CALLS, "enable"),
    Seed("outside the profile", "denied", outside_the_profile, ALL, CALLS, "profile"),
    Seed("waiting", "denied", waiting_for_approval, ALL, CALLS, "approve"),
    Seed("found but denied", "denied", searching("forecast the weather", denying), ALL, VAIN),
    Seed("no such tool", "unknown", no_such_tool, ALL, CALLS),
    Seed("before meaning is ready", "preparing", before_meaning_is_ready, ALL, VAIN),
    Seed("nothing fits", "unknown", searching("quux zyzzy", sky), ALL, VAIN),
    Seed(
        "too unsure",
        "gate",
        searching("please help me to decide what present my brother wants for his work", sky, others),
        ALL,
        VAIN,
    ),
]
CASES = [
    pytest.param(seed, policy, way, id=f"{seed.name}, {policy}, {way}")
    for seed in SEEDS
    for policy, way in islice(zip(cycle(seed.policies), cycle(seed.ways)), max(len(seed.policies), len(seed.ways)))
]
"""Each seed under each of its policies, and needed in each of its ways."""


async def need(missed: Missed, way: str) -> None:
    """Have the client need the tool in one way."""
    client = missed.client
    with suppress(Failed):
        if way in ("discovery", "search"):
            await client.discover(missed.task)
        if way == "bridge":
            await client.call_tool("call_tool_write", {"name": missed.tool, "arguments": {}})
        elif way != "search":
            await client.call_tool(missed.tool, {})


@pytest.mark.slow
@requirement("miss:seeded")
@pytest.mark.parametrize(("seed", "policy", "way"), CASES)
async def test_the_true_cause_is_named(
    seed: Seed, policy: Policy, way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with seed.make(policy) as missed:
        before = len(missed.stage.misses())
        said = explain(missed) if missed.tool else ""
        await need(missed, way)
        app = missed.stage.app
        found = missed.stage.misses()[before:]
        assert [each.cause for each in found] == [seed.cause], [(each.cause, each.change) for each in found]
        diagnosis = diagnose_miss(app, found[0])
        assert (diagnosis.why or CAUSES[seed.cause]) and found[0].change
        if seed.cause in ("denied", "gone"):
            assert diagnosis.why != "" and diagnosis.why not in CAUSES.values()
        if seed.cause in ("rank", "budget", "policy", "failing"):
            # What was called once may be in the next list, and then nothing has to change.
            pinned = [each.list_tokens > 0 for each in diagnosis.fixes[:1] if each.kind == "pin"]
            assert pinned == ([] if diagnosis.listed_now else [True])
        if missed.tool:
            assert (seed.explained or f"({seed.cause})") in said
        if seed.name == "used since":
            assert "-> nothing: the list was made before" in said
        path = keep(missed, tmp_path)
    # In a thread: `explain` starts servers whose tools are not known, in a loop of its own.
    await asyncio.to_thread(check_commands, path, missed, found[0].id, seed, policy, way, capsys)


def keep(missed: Missed, folder: Path) -> Path:
    """Write what the proxy has on record, and its config, as files; return the config's path."""
    path = folder / "mcp.json"
    written = missed.stage.app.written
    written["foretool"]["storage"] = str(folder / "kept.sqlite3")
    path.write_text(json.dumps(written))
    database: Any = missed.stage.store
    database._database.rows("VACUUM INTO ?", (str(folder / "kept.sqlite3"),))
    return path


def check_commands(
    path: Path, missed: Missed, id: int, seed: Seed, policy: str, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Have both commands name what the seed was made of, as a user runs them; nothing is taken from the record."""

    def read(*line: str) -> tuple[int, str]:
        status = run([*line, "--config", str(path)])
        told = capsys.readouterr()
        return status, f"{told.out} {told.err}" if "--json" not in line else told.out

    status, said = read("misses", str(id))
    shown = " ".join(said.split())
    has_ended = seed.name == "unknown at the list"  # the server has listed its tools by now
    helps = "what to do nothing any more: its server works again" if has_ended else "would have "
    assert status == 0 and f"cause {seed.cause}: " in shown and helps in shown
    status, said = read("misses", str(id), "--json", "--no-replay")
    told = json.loads(said)
    assert (status, told["miss"]["id"], told["miss"]["cause"]) == (0, id, seed.cause)
    assert told["miss"]["tool"] == missed.tool and told["cause_in_words"] == CAUSES[seed.cause]
    assert told["miss"]["noticed"] in NOTICED[way]
    assert told["exposure"]["policy"] == policy
    assert missed.tool not in told["exposure"]["tools"]
    assert told["listed_now"] or seed.fix in {"", *(each["fix"]["kind"] for each in told["fixes"])}
    profiles = missed.stage.app.written["foretool"].get("profiles", {})
    profile = ["--profile", *profiles] if profiles else []
    task = missed.task if missed.tool else told["miss"]["query"]
    asked = ["--tool", missed.tool] if missed.tool else []
    _, said = read("search", task, *asked, *profile)
    assert f"({seed.cause}): {CAUSES[seed.cause]}" in " ".join(said.split())
    status, said = read("search", task, *asked, *profile, "--json")
    if status == 0:
        told = json.loads(said)
        assert (told["missed"][0]["cause"], told["missed"][0]["last_id"]) == (seed.cause, id)


NOTICED = {
    "name": ("call", "unknown_name"),
    "bridge": ("bridge", "unknown_name"),
    "discovery": ("discovery",),
    "search": ("nothing_found",),
}
"""What the ledger may call each way to need a tool."""


def explain(missed: Missed) -> str:
    """What `foretool search TASK --tool NAME` says of the tool."""
    app = missed.stage.app
    profile = app.config.profiles.get("work", app.config.profiles[""])
    tool = app.catalog.find(missed.tool)
    if tool is None:
        return offline.say_unknown(app, missed.tool)
    told = explain_tool(app, search_once(app, missed.task, profile, None), tool, profile)
    return " | ".join(f"{each.what} -> {each.do}" for each in told.reasons)


def test_the_seeds_cover_every_cause_and_policy() -> None:
    assert len(CASES) >= 60
    # What a shell runs, a hook reports (`tests/server/hints`); a search that was not used lacks no tool.
    causes = {*CAUSES} - {"bypass", "unused"}
    assert {seed.cause for seed in SEEDS} == causes
    covered = {(seed.cause, policy) for seed in SEEDS for policy in seed.policies}
    # A full list holds every tool, whatever its rank, and keeps nothing free; only a growing one does.
    impossible = {
        ("rank", "full"), ("budget", "full"), ("failing", "full"), ("app", "full"), ("policy", "full"),
        ("policy", "frozen"),
    }  # fmt: skip
    assert {(cause, policy) for cause in causes for policy in ALL} - covered == impossible
