"""The trial of tenants notices what one of them sees of another, and finds nothing of that at a real proxy."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path
from typing import Any

import httpx2
import pytest
from requirements import requirement

from bench.fleet.isolation import Seen, Tenant, Trial, World, judge, result_of, run, settings_of
from bench.processes import installed


class Answers:
    """Answers every request of a trial with the same text."""

    def __init__(self, text: str, status: int = 200) -> None:
        self.text, self.status = text, status

    async def request(self, method: str, url: str, json: Any = None, headers: Any = None) -> httpx2.Response:
        return httpx2.Response(self.status, text=self.text, request=httpx2.Request(method, url))

    async def aclose(self) -> None:
        pass


def tried(answers: Answers, kind: str, world: World) -> Seen:
    trial = Trial(world, [1], random.Random(2))
    trial._http = answers  # type: ignore[assignment]
    me, other = world.tenants[:2]
    other.sessions, other.events, other.handles, other.rests = ["s"], ["e"], ["h"], ["r"]
    trial._other = lambda me: other  # type: ignore[method-assign]
    asyncio.run({**trial._own, **trial._others}[kind](me))  # type: ignore[arg-type]
    return trial.seen


@pytest.fixture
def world() -> World:
    made = World(random.Random(1))
    made.base = "http://127.0.0.1:1"
    settings_of(made)
    return made


@pytest.mark.slow
def test_a_word_of_somebody_else_in_any_answer_is_a_leak(world: World) -> None:
    word = world.tenants[1].word
    for kind in ("list", "search", "call", "go on with a session", "misses", "another's handle", "another's rest"):
        world.tenants[0].sessions, world.tenants[0].rests = ["mine"], ["mine"]
        assert tried(Answers(f"x {word} y"), kind, world).leaked == 1, kind
        assert tried(Answers(f"x {world.tenants[0].word} y"), kind, world).leaked == 0, kind


def test_what_is_let_in_and_what_is_listed_too_much_counts(world: World) -> None:
    for kind in ("another's profile", "another's session", "another's events", "another's misses", "a bad token"):
        assert tried(Answers("{}"), kind, world).let_in == 1, kind
        refused = 401 if kind == "a bad token" else 404
        assert tried(Answers("{}", refused), kind, world).let_in == 0, kind
    listed = '{"result": {"tools": [{"name": "%s"}]}}'
    assert tried(Answers(listed % world.tenants[1].tools[0]), "list", world).seen == 1
    own = tried(Answers(listed % world.tenants[0].tools[0]), "list", world)
    assert (own.seen, own.failed) == (0, 1)  # three of the four are missing
    row = judge(own, world, 1.0)
    assert (row["seen"], row["leaked"], row["let_in"], row["failed"], row["tenants"]) == (0, 0, 0, 1, 8)


def test_results_are_read_from_json_and_from_events() -> None:
    assert result_of(httpx2.Response(200, text='{"result": 1}')) == 1
    assert result_of(httpx2.Response(200, text='id: 1\ndata:\n\ndata: {"result": 2}\n\n')) == 2
    assert result_of(httpx2.Response(200, text="nothing")) is None


def test_tokens_are_those_of_their_tenants(world: World) -> None:
    assert len({each.word for each in world.tenants}) == 8 and len({each.path for each in world.tenants}) == 7
    person = next(each for each in world.tenants if not each.token)
    assert person.issuer == world.base and person.authorization() != person.authorization(exp=1)
    assert isinstance(world.by_name["m0"], Tenant)


@pytest.mark.slow
@requirement("trust:http:people", "trust:per-user")
def test_no_tenant_sees_what_is_another_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        for name in ("HOME", "XDG_STATE_HOME"):
            monkeypatch.setenv(name, folder)
        row, seen = asyncio.run(run(Path(folder), installed(None), 240, 1, 7))
    wanted = dict.fromkeys(("leaked", "seen", "let_in", "passed_on", "failed"), 0)
    assert {name: row[name] for name in wanted} == wanted, (row, seen.examples)
    assert row["requests"] == 240 and len(seen.kinds) == 15
