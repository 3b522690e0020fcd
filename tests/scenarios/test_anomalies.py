"""One scripted conversation, and every k-th thing in it made to go wrong (SQLite's anomaly tests)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes import FakeLink, FakeUpstream, Stage, proxy_over
from morning import MORNING, calc
from requirements import requirement

pytestmark = pytest.mark.anyio

ANSWERS = 12
"""More than the upstream gives in the conversation without trouble; a test below says so."""


async def conversation(stage: Stage) -> dict[Any, dict[str, Any]]:
    """A client's morning: every request gets its own id; returns the reply to each."""
    client = stage.client
    replies = {}
    for number, (method, params) in enumerate(MORNING):
        ident = f"r{number}"
        client.post(method, params, id=ident)
        replies[ident] = await client.reply(ident, 200)  # of the loop's own time: greetings may take a minute
    return replies


def check(stage: Stage, replies: dict[Any, dict[str, Any]], upstream: FakeUpstream) -> None:
    """Every request has one clear answer, nothing came twice, and the record agrees with what happened."""
    answered = [message["id"] for message in stage.client.messages if "method" not in message]
    assert sorted(answered) == sorted(replies)
    for reply in replies.values():
        assert ("result" in reply) != ("error" in reply)
        failed = "error" in reply or (isinstance(reply["result"], dict) and reply["result"].get("isError"))
        if failed:
            words = reply["error"]["message"] if "error" in reply else reply["result"]["content"][0]["text"]
            assert len(words) > 20, reply
    numbers = [arguments["n"] for _, arguments in upstream.calls]
    assert len(set(numbers)) == len(numbers), "a call was carried out twice"


@requirement("anomaly:none")
async def test_without_trouble_the_conversation_gives_what_the_others_are_measured_by() -> None:
    upstream = calc()
    async with proxy_over(upstream) as stage:
        replies = await conversation(stage)
        check(stage, replies, upstream)
        assert [call.tool for call in stage.calls()] == ["calc__add", "calc__sub", "calc__sub", "calc__add"]
    assert upstream.answers < ANSWERS


def fail(link: FakeLink, line: bytes) -> None:
    ident = line.split(b'"id":')[1].split(b",")[0].strip()
    link.deliver(b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"the upstream had an accident"}}' % ident)


def garbage(link: FakeLink, line: bytes) -> None:
    link.deliver(b"\xff\xfe not protocol")
    link.deliver(line)


def dies(link: FakeLink, line: bytes) -> None:
    link.die("was ended by SIGSEGV")


def dies_after_answering(link: FakeLink, line: bytes) -> None:
    link.deliver(line)
    asyncio.get_running_loop().call_soon(link.die)


def twice(link: FakeLink, line: bytes) -> None:
    link.deliver(line)
    link.deliver(line)


def nonsense(link: FakeLink, line: bytes) -> None:
    ident = line.split(b'"id":')[1].split(b",")[0].strip()
    link.deliver(b'{"jsonrpc":"2.0","id":%s,"result":"nonsense"}' % ident)


def silent(link: FakeLink, line: bytes) -> None:
    """The answer never comes; the time-out of the call does."""


@requirement("anomaly:answers")
@pytest.mark.parametrize("accident", [fail, garbage, dies, dies_after_answering, twice, nonsense, silent])
@pytest.mark.parametrize("k", range(1, ANSWERS))
async def test_whatever_happens_at_the_kth_answer_the_client_gets_one_clear_answer_to_each(
    k: int, accident: Any
) -> None:
    upstream = calc()
    upstream.entry["timeout_s"] = 0.5 if accident is not silent else 0.000001

    def saboteur(link: FakeLink, number: int, line: bytes) -> bool:
        if number == k:
            accident(link, line)
        return number == k

    upstream.saboteur = saboteur
    async with proxy_over(upstream, cold_list_s=1) as stage:
        replies = await conversation(stage)
        check(stage, replies, upstream)
        calls = stage.calls()
        outcomes = {call.outcome for call in calls}
        numbers = [arguments["n"] for _, arguments in upstream.calls]
        # Each call that reached the upstream is on record once, as sent.
        assert len([call for call in calls if call.sent]) == len(numbers)
    assert outcomes <= {"ok", "lost", "error", "tool_error", "refused"}
