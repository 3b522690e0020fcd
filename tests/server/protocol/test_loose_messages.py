"""Servers that keep to the protocol almost: which of their lines are messages, and which are none."""

from __future__ import annotations

import json
import time

import pytest
from requirements import requirement

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import BadMessage, Message
from foretool.server.protocol.loose_messages import LooseLines, decode, find_broken_reply

REPLY = b'{"jsonrpc":"2.0","id":7,"result":{"n":1.0}}'
LOG = b'{"level":"info","msg":"started"}'


def read(*lines: bytes, limit: int = 10_000) -> list[object]:
    """Return what each line brings: a message as JSON, None where there is none."""
    loose = LooseLines(limit)
    found = [loose.read(line) for line in lines]
    return [json.loads(jsonrpc.encode(each)) if isinstance(each, Message) else None for each in found]


@requirement("upstream:almost")
@pytest.mark.parametrize(
    "line",
    [
        b"\xef\xbb\xbf" + REPLY,
        b"Loading models... " + REPLY,
        b"> " + REPLY,
        b"\x1b[2K\rready " + REPLY + b"\x1b[0m",
        b"\x1b[32m" + REPLY + b"\x1b[0m",
        LOG + REPLY,
        b'{"jsonrpc":"2.0","id":7.0,"result":{"n":1.0}}',
        b'{"id":7,"result":{"n":1.0}}',
        b'{"jsonrpc":2.0,"id":7,"result":{"n":1.0}}',
    ],
)
def test_a_reply_is_found_in_what_surrounds_it(line: bytes) -> None:
    assert read(line) == [json.loads(REPLY)]


@requirement("upstream:almost")
@pytest.mark.parametrize(
    ("text", "ident"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"n":NaN}}', 7),
        (b'{"id":7,"jsonrpc":"2.0","result":{"n":NaN}}', 7),
        (b'{"jsonrpc": "2.0", "id": "7", "result": {"text": "cut o', 7),
        (b'{"result":{"n":NaN},"jsonrpc":"2.0","id":7}', 7),
        (b'{\n "jsonrpc": "2.0",\n "id": 7,\n "error": {]}', 7),
        (b'{"jsonrpc":"2.0","id":7}', 7),
        (b'{"jsonrpc":"2.0","id":7.5,"result":{}}', None),
        (b'{"result":{"text":"cut o', None),
        (b'{"jsonrpc":"2.0","result":{"text":"cut o', None),
    ],
)
def test_of_a_reply_that_cannot_be_read_it_is_told_whose_it_is(text: bytes, ident: int | None) -> None:
    assert find_broken_reply(text) == (ident,)


@requirement("upstream:almost")
@pytest.mark.parametrize(
    "text",
    [
        b'INFO sent {"jsonrpc":"2.0","id":7,"result":{...}}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"n":NaN}}',
        b'{"jsonrpc":"2.0","id":7,"method":"ping","params":NaN}',
        b'{"id":7,"time":NaN}',
        b'{"error":"no network","id":7,"time":NaN}',
        b"{7}",
    ],
)
def test_what_was_not_meant_as_a_reply_ends_no_request(text: bytes) -> None:
    assert find_broken_reply(text) is None


def test_a_text_in_quotes_that_never_ends_is_passed_over_in_one_go() -> None:
    began = time.process_time()
    read(b"{", b'"' + b'\\"' * 300_000)
    assert time.process_time() - began < 1


@requirement("upstream:almost")
def test_a_message_may_have_several_lines() -> None:
    message = {"jsonrpc": "2.0", "id": 7, "result": {"text": 'a "}" and a {', "list": [{"a": []}, {}]}}
    lines = [line.strip().encode() for line in json.dumps(message, indent=2).splitlines()]
    assert read(*lines, *lines) == [*[None] * (len(lines) - 1), message] * 2
    assert read(b"{", b'"level": "info"', b"}", REPLY) == [None, None, None, json.loads(REPLY)]
    assert read(b"{", REPLY) == [None, json.loads(REPLY)]  # one that never ends holds up nothing
    assert read(b"{", *[b'"a": 1,'] * 4, b"> " + REPLY, limit=20) == [*[None] * 5, json.loads(REPLY)]


@requirement("upstream:almost")
@pytest.mark.parametrize(
    "line",
    [
        b"plain text",
        b"INFO: ready [",
        LOG,
        b"[1,2]",
        b"null",
        b"}",
        b'DEBUG sent {"jsonrpc":"2.0","id":3,"method":"sampling/createMessage","params":{}}',
        b'{"jsonrpc":"2.0","id":7.5,"result":{}}',
        b'{"jsonrpc":"2.0","id":true,"result":{}}',
        b'{"id":[7],"result":{}}',
        b'{"id":7,"result":{"text":"\xff"}}',
        b'{"id":7,"method":"GET","result":{}}',
    ],
)
def test_what_is_not_a_message_stays_none(line: bytes) -> None:
    assert read(line) == [None]
    with pytest.raises(BadMessage):
        decode(line)
