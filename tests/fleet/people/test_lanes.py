"""What one connection for each person means; people who attack it stand in tests/attacks/test_per_user.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foretool.fleet.people import lanes
from foretool.fleet.people.credentials import CredentialError, Credentials, Issued
from foretool.fleet.people.lanes import NOBODY, Lane, PersonalHost, PersonalUpstream, PersonAuthorizer
from foretool.server.protocol.jsonrpc import Message
from foretool.server.protocol.lists import TOOLS
from foretool.server.transports.upstream.base import LinkError
from foretool.server.transports.upstream.http_client import SendRefused
from foretool.server.upstreams.connection import Lost, Reply, Request

pytestmark = pytest.mark.anyio


class Source:
    def __init__(self) -> None:
        self.count = 0

    def stamp(self, person: str) -> object:
        return None

    def holds(self, person: str) -> bool:
        return True

    async def fetch(self, person: str, refused: str) -> Issued:
        if person == "eve":
            raise CredentialError("no")
        self.count += 1
        return Issued(f"{person}-{self.count}-token", 1e12)


class Told:
    """A host that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    async def on_listed(self, upstream: Any, kind: Any, tools: Any) -> None:
        self.told.append(("tools", upstream.key))

    def on_unlisted(self, upstream: Any, kind: Any, reason: str) -> None: ...

    def on_state(self, upstream: Any) -> None:
        self.told.append(("state", upstream.key))

    def on_notification(self, upstream: Any, message: Message, era: Any) -> None:
        self.told.append(message.method)

    def on_request(self, upstream: Any, message: Message, request: Any, answer: Any) -> None:
        self.told.append(request)


async def closed(*_: Any) -> Any:
    raise LinkError("nobody is there")


def people() -> tuple[PersonalUpstream, list[Lane]]:
    made: list[Lane] = []

    def make(person: str) -> Lane:
        made.append(Lane(person, "mail", Told(), closed))
        return made[-1]

    return PersonalUpstream("mail", Told(), make, Credentials("mail", Source())), made


async def test_each_person_has_one_connection_and_nobody_has_none() -> None:
    upstream, made = people()
    ann, ben = upstream.of("ann"), upstream.of("ben")
    assert upstream.of("ann") is ann and ann is not ben and ann.key != ben.key and len(made) == 2
    assert upstream.of("") is upstream and ann.of("ben") is ann and ann.users is upstream.users
    replies: list[Reply] = []
    upstream.request("legacy", Request("tools/call", {}, replies.append))
    assert replies == [Lost(NOBODY, sent=False)]
    upstream.start("legacy")
    assert not upstream.ask("ping", {}, replies.append) and upstream.starts == 0
    await upstream.stop()
    assert upstream.of("ann") is upstream


async def test_a_connection_that_failed_comes_back_only_when_its_person_calls() -> None:
    upstream, _ = people()
    ann = upstream.of("ann")
    lost: asyncio.Queue[Reply] = asyncio.Queue()
    for _ in range(2):
        ann.request("legacy", Request("tools/call", {}, lost.put_nowait))
        async with asyncio.timeout(10):
            reply = await lost.get()
        assert isinstance(reply, Lost) and reply.reason == "nobody is there"
    await asyncio.sleep(0.5)  # a shared server would be tried again by now
    assert ann.starts == 2
    await upstream.stop()


async def test_connections_that_nobody_uses_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    upstream, made = people()
    for person in ("ann", "ben", "cem"):
        upstream.of(person)
    monkeypatch.setattr(lanes, "MOST_LANES", 2)
    upstream.expire()
    assert list(upstream._lanes) == ["ben", "cem"]
    monkeypatch.setattr(lanes, "IDLE_S", 1.0)
    made[1].made_at -= 2.0
    upstream.expire()
    assert list(upstream._lanes) == ["cem"]
    upstream.drop_person("cem")
    assert not upstream._lanes
    await upstream.stop()


async def test_only_what_is_surely_about_its_person_goes_on() -> None:
    told = Told()
    lists: list[Any] = []
    woken: list[Any] = []
    lane = Lane("ann", "mail", told, closed)
    host = PersonalHost(told, lambda lane, tools: lists.append(lane.person), woken.append)
    for method in ("notifications/message", "notifications/resources/updated", "notifications/prompts/list_changed",
                   "notifications/tools/list_changed", "notifications/cancelled"):  # fmt: skip
        host.on_notification(lane, Message(method=method), "legacy")
    await host.on_listed(lane, TOOLS, [])
    host.on_state(lane)
    assert told.told == ["notifications/cancelled"] and lists == ["ann"] and woken == []
    lane.error = "away"
    host.on_state(lane)
    assert woken == [lane]


async def test_a_question_that_belongs_to_no_request_is_refused() -> None:
    told, answers = Told(), list[Message]()
    host = PersonalHost(told, lambda lane, tools: None, lambda lane: None)
    lane = Lane("ann", "mail", told, closed)
    host.on_request(lane, Message(id=1, method="sampling/createMessage"), None, answers.append)
    assert told.told == [] and len(answers) == 1 and answers[0].error
    request = Request("tools/call", {}, lambda reply: None)
    host.on_request(lane, Message(id=1, method="sampling/createMessage"), request, answers.append)
    assert told.told == [request] and len(answers) == 1


async def test_the_authorizer_says_why_there_is_no_token() -> None:
    credentials = Credentials("mail", Source())
    ann, eve = PersonAuthorizer(credentials, "ann"), PersonAuthorizer(credentials, "eve")
    sent = await ann.authorization()
    assert sent == "Bearer ann-1-token"
    with pytest.raises(SendRefused, match="no"):
        await eve.authorization()
    assert await ann.on_refused(403, None, sent) == "other"
    assert await ann.on_refused(403, 'Bearer error="insufficient_scope"', sent) == "refused" and "scopes" in ann.notice
    assert await ann.on_refused(401, None, sent) == "refused"
    ann.on_accepted(sent)
    assert ann.notice == "" and await ann.on_refused(401, None, "Bearer older") == "repeat"
