"""One connection: ids, replies, deadlines, and what comes unasked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from requirements import requirement

from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.jsonrpc import Message, Raw, raw
from foretool.server.upstreams.connection import (
    MOST_ABOUT_ITSELF,
    MOST_INSTRUCTIONS,
    Connection,
    HandshakeError,
    Lost,
    Reply,
    Request,
)
from foretool.storage.records import Era

pytestmark = pytest.mark.anyio


class Wire:
    """A link that takes notes."""

    pid = None

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        self.sent.append(message)

    def abandon(self, request: int) -> bool:
        return False

    def stderr(self) -> tuple[str, ...]:
        return ()

    def noise(self) -> str:
        return ""

    async def close(self) -> None:
        pass


class Told:
    """Events that take notes."""

    def __init__(self) -> None:
        self.notifications: list[Message] = []
        self.questions: list[tuple[Message, Request | None]] = []
        self.unhandled: list[Request] = []
        self.lost: list[str] = []
        self.invalid_lines: list[bytes] = []

    def on_notification(self, connection: Connection, message: Message) -> None:
        self.notifications.append(message)

    def on_request(self, message: Message, request: Request | None, answer: Any) -> None:
        self.questions.append((message, request))

    def on_invalid_line(self, line: bytes) -> None:
        self.invalid_lines.append(line)

    def on_unhandled(self, connection: Connection, request: Request) -> None:
        self.unhandled.append(request)

    def on_lost(self, connection: Connection, reason: str) -> None:
        self.lost.append(reason)


def connected(era: Era = "legacy") -> tuple[Connection, Wire, Told]:
    wire, told = Wire(), Told()
    connection = Connection(era, told)
    connection.link = wire
    return connection, wire, told


def asking(replies: list[Reply], **options: Any) -> Request:
    return Request("tools/call", {"name": raw("x")}, replies.append, **options)


def test_when_the_link_is_gone_every_request_is_lost_at_once_and_later_ones_unsent() -> None:
    connection, _, told = connected()
    replies: list[Reply] = []
    connection.send(asking(replies))
    connection.on_closed("exited with code 1")
    connection.on_closed("again")
    connection.send(asking(replies))
    assert replies == [Lost("exited with code 1", True), Lost("exited with code 1", False)]
    assert told.lost == ["exited with code 1"]


def test_an_unattributed_question_belongs_to_the_only_owner_who_may_be_asked() -> None:
    connection, _, told = connected()
    owner = object()
    question = Message(id="q", method="elicitation/create")
    connection.on_message(question, None)
    mine = asking([], owner=owner)
    connection.send(mine)
    connection.send(Request("tools/list", {}, lambda reply: None))
    connection.on_message(question, None)
    connection.send(asking([], owner=object()))
    connection.on_message(question, None)
    connection.on_message(question, mine.id)
    assert [request for _, request in told.questions] == [None, mine, None, mine]


def test_an_expired_session_returns_its_request_once() -> None:
    connection, _, told = connected()
    replies: list[Reply] = []
    request = asking(replies)
    connection.send(request)
    connection.on_expired(request.id)
    assert told.unhandled == [request]
    again, _, _ = connected()
    again.send(request)
    again.on_expired(request.id)
    assert isinstance(replies[0], Lost)
    assert not replies[0].sent


async def test_of_a_greeting_without_end_the_beginning_is_kept() -> None:
    import asyncio

    connection, wire, _ = connected()
    greeting = asyncio.ensure_future(connection.handshake({}))
    await asyncio.sleep(0)
    hello = {
        "protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "experimental": "x" * MOST_ABOUT_ITSELF},
        "serverInfo": {"name": "x" * MOST_ABOUT_ITSELF}, "instructions": "ab" * MOST_INSTRUCTIONS,
    }  # fmt: skip
    connection.on_message(Message(id=wire.sent[0].id, result=raw(hello)), None)
    await greeting
    about = connection.server_info
    assert (about.capabilities, about.implementation) == ({}, {})
    assert about.instructions == "ab" * (MOST_INSTRUCTIONS // 2)


@pytest.mark.parametrize("odd", ["x", 5, [], [[]], {}, None])
@pytest.mark.parametrize("key", ["_meta", "supportedVersions"])
async def test_a_greeting_of_another_shape_is_taken_or_refused_in_words(key: str, odd: Any) -> None:
    import asyncio

    connection, wire, _ = connected("modern")
    greeting = asyncio.ensure_future(connection.handshake({}))
    await asyncio.sleep(0)
    result = raw({"supportedVersions": [versions.LATEST_MODERN], key: odd})
    connection.on_message(Message(id=wire.sent[0].id, result=result), None)
    if key == "supportedVersions":
        with pytest.raises(HandshakeError, match="supports only"):
            await greeting
    else:
        await greeting
        assert connection.server_info.implementation == {}


async def test_a_legacy_greeting_after_a_modern_probe_carries_nothing_of_it() -> None:
    import asyncio

    connection, wire, _ = connected("modern")
    probe = asyncio.ensure_future(connection.handshake({}))
    await asyncio.sleep(0)
    assert isinstance(wire.sent[0].params, Raw)
    assert versions.META_VERSION in jsonrpc.decode_value(wire.sent[0].params)["_meta"]
    refusal = jsonrpc.error_object(jsonrpc.METHOD_NOT_FOUND, "Method not found")
    connection.on_message(Message(id=wire.sent[0].id, error=refusal), None)
    with pytest.raises(Exception, match="Method not found"):
        await probe
    connection.era = "legacy"
    greeting = asyncio.ensure_future(connection.handshake({}))
    await asyncio.sleep(0)
    assert isinstance(wire.sent[-1].params, Raw)
    assert "_meta" not in jsonrpc.decode_value(wire.sent[-1].params)
    greeting.cancel()


@requirement("upstream:almost")
@pytest.mark.parametrize(
    ("ident", "result", "error", "expected"),
    [
        ("1", Raw(b"{}"), jsonrpc.UNSET, (Raw(b"{}"), jsonrpc.UNSET)),
        (1, Raw(b"{}"), Raw(b"null"), (Raw(b"{}"), jsonrpc.UNSET)),
        (1, Raw(b"null"), Raw(b'{"code":1}'), (jsonrpc.UNSET, Raw(b'{"code":1}'))),
    ],
)
def test_a_reply_counts_with_its_id_as_text_and_with_a_null_beside_what_it_says(
    ident: Any, result: Any, error: Any, expected: Any
) -> None:
    connection, _, _ = connected()
    replies: list[Reply] = []
    connection.send(asking(replies))
    connection.on_message(Message(id=ident, result=result, error=error), None)
    (reply,) = replies
    assert isinstance(reply, Message)
    assert (reply.result, reply.error) == expected


@requirement("upstream:almost")
@pytest.mark.parametrize("ident", [0, -1, 99, "x", None])
async def test_a_handshake_that_is_answered_with_another_id_fails_at_once_and_an_error_is_its_answer(
    ident: Any,
) -> None:
    import asyncio

    for message, raised in (
        (
            Message(id=ident, result=Raw(b"{}")),
            f"answers with the id {jsonrpc.encode(ident).decode()}, which no request",
        ),
        (Message(id=ident, error=jsonrpc.error_object(-32603, "no licence")), "error -32603: no licence"),
    ):
        connection, _, _ = connected()
        greeting = asyncio.ensure_future(connection.handshake({}))
        await asyncio.sleep(0)
        connection.on_message(message, None)
        with pytest.raises(Exception, match=raised):
            await greeting


def test_a_reply_that_is_unread_ends_its_request_alone() -> None:
    connection, _, told = connected()
    replies: list[Reply] = []
    for _ in range(3):
        connection.send(asking(replies))
    connection.on_too_large(None, 8 << 20)
    assert replies == []  # it could be any of them
    connection.on_too_large(2, 8 << 20)
    connection.on_too_large(7, 8 << 20)
    assert [isinstance(each, Lost) and (each.sent, each.is_unread) for each in replies] == [(True, True)]
    connection.on_message(Message(id=1, result=raw({})), None)
    connection.on_too_large(None, 8 << 20)
    assert len(replies) == 3
    reason = "its answer is larger than 8 MiB; raise max_message_mib to read it"
    assert replies[2] == Lost(reason, sent=True, is_unread=True)
    connection.send(asking(replies))
    connection.on_unreadable(None)
    assert replies[3] == Lost("its answer is not valid JSON-RPC, or is cut off", sent=True, is_unread=True)
    assert told.lost == []
