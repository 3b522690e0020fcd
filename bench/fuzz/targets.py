"""The fuzzing targets: one function for each reader of bytes from outside, failing where the reader breaks a promise.

A target takes any bytes and returns, or raises what the reader must not raise. `SEEDS` are inputs that get far.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from foretool.retrieval import model_format
from foretool.server.config import jsonc, loader
from foretool.server.config.errors import ConfigError
from foretool.server.config.servers import fingerprint
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, BadMessage, Message
from foretool.server.protocol.lines import LineSplitter
from foretool.server.transports.upstream.sse import EventParser, SseEvent, TooLarge

Target = Callable[[bytes], None]

LIMIT = 4096
"""Bytes of a line and of an event, so that small inputs reach it."""


def chunks(data: bytes) -> Iterator[bytes]:
    """The data in pieces, whose sizes the data itself decides."""
    at = 0
    while at < len(data):
        size = data[at] % 7 + 1
        yield data[at : at + size]
        at += size


# Framing and messages


def messages(data: bytes) -> None:
    """A stream has the same lines however it is cut; each is refused, or is a message that survives a round trip."""
    whole, cut = LineSplitter(LIMIT), LineSplitter(LIMIT)
    lines = list(whole.feed(data + b"\n"))
    assert lines == [line for chunk in chunks(data + b"\n") for line in cut.feed(chunk)]
    assert _count_dropped(whole) == _count_dropped(cut)
    assert all(line and b"\n" not in line for line in lines)
    for line in lines:
        try:
            message = jsonrpc.decode(line)
        except BadMessage as error:
            assert "\n" not in str(error) and error.code in (jsonrpc.PARSE_ERROR, jsonrpc.INVALID_REQUEST)
            jsonrpc.failure(error.id, jsonrpc.error_object(error.code, str(error)))
            continue
        _check_round_trip(message)


def _count_dropped(lines: LineSplitter) -> int:
    # A line whose id is not known at once is named again at its end.
    return sum(each.is_over or each.id is not None for each in lines.take_too_long())


def _check_round_trip(message: Message) -> None:
    """A message that is sent on reads the same; its parts can be decoded, or are refused with `ValueError`."""
    again = jsonrpc.decode(jsonrpc.without_line_breaks(jsonrpc.encode(message)))
    assert (again.id, again.method) == (message.id, message.method)
    assert (message.method is not UNSET) is not message.is_reply
    for part in (message.params, message.result, message.error):
        if part is not UNSET:
            _decode_part(bytes(part))
    if message.error is not UNSET:
        jsonrpc.error_of(message.error)


def _decode_part(part: bytes) -> None:
    with contextlib.suppress(ValueError):
        members = jsonrpc.fields(part)
        assert jsonrpc.fields(jsonrpc.merge_members(jsonrpc.Raw(part), {"_meta": {}})).keys() == members.keys() | {
            "_meta"
        }
        for member in members.values():
            jsonrpc.text(member)
    with contextlib.suppress(ValueError):
        jsonrpc.items(part)
    with contextlib.suppress(ValueError):
        jsonrpc.decode_value(part)


# Server-sent events


def events(data: bytes) -> None:
    """A stream has the events that the standard's own steps give, however it is cut, or is too large."""
    found = _read(EventParser(LIMIT), [data])
    cut = _read(EventParser(LIMIT), chunks(data))
    if found is not None and cut is not None:
        assert found == cut
        assert found == _by_the_standard(data)


def _read(stream: EventParser, parts: Iterator[bytes] | list[bytes]) -> list[SseEvent] | None:
    try:
        return [event for part in parts for event in stream.feed(part)]
    except TooLarge:
        return None


def _by_the_standard(data: bytes) -> list[SseEvent]:
    """The events by the steps of the HTML standard, 9.2.6."""
    found: list[SseEvent] = []
    lines: list[bytes] = []
    kind = "message"
    whole = re.split(rb"\r\n|\r|\n", data.removeprefix(b"\xef\xbb\xbf"))[:-1]
    for line in whole:
        if not line:
            # An event with empty data means nothing in MCP, so the reader skips it.
            if any(lines) or len(lines) > 1:
                found.append(SseEvent(kind, b"\n".join(lines)))
            kind, lines = "message", []
            continue
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if field == b"event":
            kind = value.decode(errors="replace")
        elif field == b"data":
            lines.append(value)
    return found


# The config

ENVIRON = {"HOME": "/home/u", "TOKEN": "s3cret-value", "EMPTY": ""}


def configs(data: bytes) -> None:
    """A text becomes a `Config`, or a `ConfigError` of one line without a secret."""
    try:
        found = loader.parse(data, Path("mcp.json"), ENVIRON)
    except ConfigError as error:
        _is_one_line(str(error))
        assert "s3cret" not in str(error)
        return
    for line in (*found.warnings, *found.broken.values(), repr(found), *map(repr, found.servers.values())):
        _is_one_line(line)
        assert "s3cret" not in line
    assert loader.diff(found, found) == ((), (), (), False)
    for server in found.servers.values():
        assert "s3cret" not in server.address
        fingerprint(server)
        server.offers("tool")


def _is_one_line(text: str) -> None:
    assert text.isprintable(), text


def documents(data: bytes) -> None:
    """JSON with comments that can be read has a place for every value; otherwise the error has a place."""
    text = data.decode("utf-8", "replace")
    try:
        value = jsonc.loads(text)
    except jsonc.JsonError as error:
        assert 0 <= error.offset <= len(text)
        jsonc.line_and_column(text, error.offset)
        return
    try:
        assert () in jsonc.places(text).values
    except jsonc.JsonError as error:
        # The decoder goes a little deeper than the scanner.
        assert "nested too deeply" in str(error)
    with contextlib.suppress(ValueError, RecursionError):
        assert _same(value, json.loads(text))


def _same(ours: object, theirs: object) -> bool:
    return ours == theirs or ours != ours or repr(ours) == repr(theirs)


# Models


def models(data: bytes) -> None:
    """Bytes become a model, or a `ModelError` of one line."""
    try:
        header, arrays = model_format.unpack(data, "dtdr", 1)
    except model_format.ModelError as error:
        assert "\n" not in str(error)
        return
    assert (header["method"], header["version"]) == ("dtdr", 1)
    assert all(isinstance(array, np.ndarray) for array in arrays.values())


TARGETS: dict[str, Target] = {
    "messages": messages,
    "events": events,
    "configs": configs,
    "documents": documents,
    "models": models,
}

SEEDS: dict[str, tuple[bytes, ...]] = {
    "messages": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":[1,2.5,"\\ud800"]}}}\n',
        b'{"jsonrpc":"2.0","id":"a","result":{"content":[{"type":"text","text":"\xc3\xa9"}]}}\r\n\n',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no","data":null}}\n[1]\nnoise\n',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":12345678901234567890123}}',
    ),
    "events": (
        b'id: 1\nevent: message\ndata: {"a":1}\n\n: ping\n\nretry: 10\n\n',
        b"\xef\xbb\xbfdata: a\r\ndata: b\r\n\r\ndata\n\ndata:\ndata:\n\nid\nevent\nevent: x\r\rdata: c\r\r",
        b"data: " + b"x" * 200 + b"\n\nevent: endpoint\ndata: /m\n\n",
    ),
    "configs": (
        b'{"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"], "env": {"K": "${TOKEN}"}}}}',
        b'// c\n{"servers": {"b": {"url": "https://h/mcp?key=s3cret-value",'
        b' "headers": {"Authorization": "Bearer ${TOKEN}"},},},}',
        b'{"mcpServers": {"a": {"command": "x", "timeout_s": 5, "pin": ["*"], "include": ["a[b]"], "prefix": ""}},'
        b' "foretool": {"policy": "full", "list_tokens": 100, "bind": "[::1]:80",'
        b' "profiles": {"w": {"servers": ["a"]}}}}',
        b'{"mcpServers": {"a": {"command": "${NOT_SET}"}, "b": {"type": "sse", "command": 1}},'
        b' "foretool": {"polcy": 1}}',
    ),
    "documents": (
        b'{"a": [1, 2.5e3, -0, true, null, "\\u00e9\\n"], /* c */ "b": {}, }',
        b'// x\n[ [ ], {"k": "v" /* "*/ }, ]',
    ),
    "models": (model_format.pack("dtdr", 1, {"tools": ["a"]}, {"w": np.ones((2, 2), np.float32)}),),
}
