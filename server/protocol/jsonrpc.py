"""JSON-RPC messages: turns bytes into `Message` and back, and leaves every value as it was written.

`params`, `result` and `error` stay undecoded (`msgspec.Raw`), so big integers, number spellings and unknown fields pass
through unchanged. `fields` decodes an object one level deep where we need one of its members.

What runs for every message looks for bytes with `find`: `in` takes twice the time, for it first raises and drops an
exception.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import UNSET as UNSET  # re-exported, like the two below, for every module that handles messages
from msgspec import Raw as Raw
from msgspec import UnsetType as UnsetType

from foretool.server.protocol.cut_lines import END, id_at_end, id_at_start

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002
URL_ELICITATION_REQUIRED: Final = -32042
"""For the legacy era only; modern servers send INVALID_PARAMS."""
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

PART: Final = 1 << 20
"""Bytes of large data that are looked at in one go."""

_utf8 = codecs.getincrementaldecoder("utf-8")

Id = int | str
IDS: Final = (int, str)
"""The same for `isinstance`, which is three times faster with it."""


class Message(msgspec.Struct, omit_defaults=False):
    """One JSON-RPC message; the fields that are set tell its kind."""

    jsonrpc: str = "2.0"
    id: Id | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET

    @property
    def is_reply(self) -> bool:
        return self.method is UNSET and (self.result is not UNSET or self.error is not UNSET)


class _Received(Message, kw_only=True):
    """A received message: here the version has to be stated."""

    jsonrpc: str


class BadMessage(Exception):
    """Bytes that are not a JSON-RPC message. `code`: PARSE_ERROR or INVALID_REQUEST; `id`: of the request, if any."""

    def __init__(self, code: int, reason: str, id: Id | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.id = id


class RpcError(Exception):
    """An error with which a request is answered."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


_encoder = msgspec.json.Encoder()
_messages = msgspec.json.Decoder(_Received)
_fields = msgspec.json.Decoder(dict[str, Raw])
_items = msgspec.json.Decoder(list[Raw])
_any = msgspec.json.Decoder()
_whole = msgspec.json.Decoder(Raw)
"""Looks at all of a value and makes nothing of it."""


def encode(value: Any) -> bytes:
    """Write any plain value, which may contain `Raw` parts and messages, as compact UTF-8 JSON."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encode_slowly(value)


def _encode_slowly(value: Any) -> bytes:
    """Write lone surrogates as escapes, as JavaScript does: ids that contain them must come back unchanged."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, msgspec.Struct):
        return _encode_slowly(
            {key: member for key in value.__struct_fields__ if (member := getattr(value, key)) is not UNSET}
        )
    if isinstance(value, Mapping):
        return b"{%b}" % b",".join(
            json.dumps(key).encode() + b":" + _encode_slowly(each) for key, each in value.items()
        )
    if isinstance(value, list | tuple):
        return b"[%b]" % b",".join(map(_encode_slowly, value))
    return json.dumps(value).encode() if isinstance(value, str) else _encoder.encode(value)


EMPTY: Final = Raw(b"{}")
_NULL: Final = Raw(b"null")


def raw(value: Any) -> Raw:
    """Encode a plain value as a `Raw` part of a message."""
    return Raw(encode(value))


def decode_value(value: Raw | bytes) -> Any:
    """Decode a value. Raises ValueError when the bytes are not JSON."""
    try:
        return _any.decode(value)
    except (msgspec.DecodeError, RecursionError):
        # The fast decoder refuses escaped lone surrogates, which are JSON and which JavaScript writes.
        with _shallow():
            return json.loads(bytes(value))


def plain_object(value: Raw | None) -> dict[str, Any] | None:
    """Return the decoded value if it is an object, else None. Raises ValueError when the bytes are not JSON."""
    decoded = decode_value(value) if value is not None else None
    return decoded if isinstance(decoded, dict) else None


def member(value: Raw | UnsetType, key: str) -> str | None:
    """Return the string under a key of an object, None where there is none."""
    try:
        return text(fields(value).get(key))
    except ValueError:
        return None


def fields(value: Raw | bytes | UnsetType) -> dict[str, Raw]:
    """Return the members of an object, undecoded; {} when unset. Raises ValueError when the value is not an object."""
    if value is UNSET:
        return {}
    try:
        return _fields.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        return dict(_cut(bytes(value), dict, error))


def items(value: Raw | bytes) -> list[Raw]:
    """Return the members of an array, undecoded. Raises ValueError when the value is not an array."""
    try:
        return _items.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        return [part for _, part in _cut(bytes(value), list, error)]


@contextmanager
def _shallow() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_part(value: Raw, read: Callable[[Raw | bytes], Raw]) -> Raw:
    """Return the part of a value that a decoder of its own reads. Raises ValueError where that refuses the value for
    more than an escaped lone surrogate."""
    try:
        return read(value)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        with _shallow():
            mask = _Mask(bytes(value))
            return mask.lift(read(mask.data))


_MOST_MASKED: Final = 8 * PART
"""Bytes. A message is read so at each of its levels, in 0.3 to 0.45 s in all for one as long as this. A program in
JavaScript that cuts off a long text may leave half a character."""
_PAIRS: Final = ("0378", "0379", "0530", "0557", "0558")
_STARTS: Final = ("2427", "2428", "2429", "2430", "2431", "2432", "2433", "2434")
"""Characters that Unicode does not assign, of two and of three bytes: they stand for what is as long, two backslashes
and the start of an escape, while the fast decoder reads."""


class _Mask:
    """Hides escaped surrogates from the fast decoder, which refuses lone ones: JavaScript writes them. Nothing changes
    its length, and nothing is read slowly, whatever a message is filled with."""

    def __init__(self, data: bytes) -> None:
        """Raises ValueError when the data cannot be read in this way."""
        _check_utf8(data)
        free = [(char for char in chars if not _stands_in(char, data)) for chars in (_PAIRS, _STARTS)]
        signs = [chr(int(char, 16)).encode() for char in (*islice(free[0], 1), *islice(free[1], 2))]
        if len(signs) < 3:
            raise ValueError("it holds characters that Unicode does not assign")
        self._signs = tuple(zip(signs, (b"\\\\", b"\\ud", b"\\uD"), strict=True))
        """In this order: a backslash behind another begins no escape."""
        for sign, written in self._signs:
            data = data.replace(written, sign)
        if any(re.search(sign + b"(?![0-9a-fA-F]{3})", data) for sign in signs[1:]):
            raise ValueError("an escape has not four digits")
        self.data = data

    def lift(self, value: Raw) -> Raw:
        """Return a part of the data as it was written."""
        part = bytes(value)
        for sign, written in reversed(self._signs):
            part = part.replace(sign, written)
        return Raw(part)

    def lift_keys(self, keys: Iterable[str]) -> list[str]:
        """Return keys of an object in the data as they were meant. All at once: there may be tens of thousands."""
        lifted: list[str] = json.loads(bytes(self.lift(Raw(_encoder.encode(list(keys))))))
        return lifted


def _stands_in(char: str, data: bytes) -> bool:
    """Return whether a character stands in JSON, itself or as an escape."""
    return chr(int(char, 16)).encode() in data or b"\\u" + char.encode() in data


def _cut(data: bytes, kind: type[dict[str, Any]] | type[list[Any]], refusal: Exception) -> Iterator[tuple[str, Raw]]:
    """Do the work of `fields` and `items` where the fast decoder refuses: yield each member as it was written, with its
    key in an object. Raises ValueError when the data is not JSON of this kind. `refusal`: of the fast decoder."""
    try:
        if isinstance(refusal, msgspec.ValidationError) or (data.find(b"\\ud") < 0 and data.find(b"\\uD") < 0):
            raise refusal
        if len(data) > _MOST_MASKED:
            raise ValueError("over 8 MiB with half a character, an escaped surrogate without its other half")
        mask = _Mask(data)
        if kind is dict:
            found = _fields.decode(mask.data)
            yield from zip(mask.lift_keys(found), map(mask.lift, found.values()), strict=True)
        else:
            yield from (("", mask.lift(each)) for each in _items.decode(mask.data))
    except msgspec.ValidationError:
        expected = "an object" if kind is dict else "an array"
        raise ValueError(f"expected {expected}, found {json_type(Raw(data.lstrip()))}") from None
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


_KINDS: Final = {b'"': "string", b"{": "object", b"[": "array", b"t": "boolean", b"f": "boolean", b"n": "null"}
_DIGITS: Final = frozenset(b"-0123456789")


def json_type(value: Raw) -> str:
    """Return the JSON type of a value by how it begins; "" where it begins like none."""
    first = bytes(memoryview(value)[:1]) or b" "
    return _KINDS.get(first) or ("number" if first[0] in _DIGITS else "")


def holds(value: Raw, word: bytes) -> bool:
    """Return whether these bytes occur in an undecoded value, without copying it."""
    if len(value) <= PART:
        return bytes(value).find(word) >= 0
    whole = memoryview(value)
    return any(word in bytes(whole[at : at + PART + len(word)]) for at in range(0, whole.nbytes, PART))


class _Large(msgspec.Struct, rename="camel"):
    """Members of results and errors that may be large, whose own members nobody takes apart."""

    content: Raw | UnsetType = UNSET
    structured_content: Raw | UnsetType = UNSET
    request_state: Raw | UnsetType = UNSET
    contents: Raw | UnsetType = UNSET
    messages: Raw | UnsetType = UNSET
    tools: Raw | UnsetType = UNSET
    prompts: Raw | UnsetType = UNSET
    resources: Raw | UnsetType = UNSET
    resource_templates: Raw | UnsetType = UNSET
    data: Raw | UnsetType = UNSET
    message: Raw | UnsetType = UNSET


_large: Final = msgspec.json.Decoder(_Large)


MOST_ELSE: Final = 100_000
"""Commas beside these. A picture in a question, or what a server tells a page in `_meta`, is long and has few."""


def has_much_else(value: Raw | UnsetType) -> bool:
    """Return whether a result or an error has more than a mebibyte with so many commas (`MOST_ELSE`) beside the members
    that may be large. Each comma may part two members, which take time wherever one of them is looked for."""
    if value is UNSET or len(value) <= PART:
        return False
    try:
        large = [each for each in msgspec.structs.astuple(_large.decode(value)) if each is not UNSET]
    except (msgspec.DecodeError, RecursionError):
        return False
    is_long = len(value) - sum(map(len, large)) > PART
    return is_long and bytes(value).count(b",") - sum(bytes(each).count(b",") for each in large) > MOST_ELSE


_MOST_MEMBERS: Final = 100_000
"""Reading so many members takes 0.1 s."""


def may_have_many_members(value: Raw) -> bool:
    """Return whether a value may have more members than are read in time: each has a colon, as a text may have too."""
    return bytes(value).count(b":") > _MOST_MEMBERS


def text(value: Raw | None) -> str | None:
    """Return the string in a raw value; None when it is missing or not a string."""
    if value is None:
        return None
    decoded = decode_value(value)
    return decoded if isinstance(decoded, str) else None


def decode(data: bytes | bytearray) -> Message:
    """Decode one message. Raises `BadMessage` for anything that is not exactly one JSON-RPC 2.0 message."""
    try:
        message: Message = _messages.decode(data)
        if not data.isascii():
            # Raw parts are not decoded, so bytes that are not UTF-8 would reach the other side.
            _check_utf8(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = _decode_slowly(data, error)
    if message.jsonrpc != "2.0" or message.method is message.result is message.error is UNSET:
        raise BadMessage(INVALID_REQUEST, "not a JSON-RPC 2.0 message", _usable(message.id))
    if message.method is not UNSET and message.id is None:
        raise BadMessage(INVALID_REQUEST, "a request id must be a string or an integer, not null")
    return message


def _check_utf8(data: bytes | bytearray) -> None:
    """Raise UnicodeDecodeError for bytes that are not UTF-8. Of large data a part is decoded at a time: as a string it
    would take up to four times its memory."""
    if len(data) <= PART:
        data.decode("utf-8")
        return
    decoder = _utf8()
    with memoryview(data) as whole:
        for start in range(0, len(whole), PART):
            decoder.decode(whole[start : start + PART])
    decoder.decode(b"", True)


def _decode_slowly(data: bytes | bytearray, error: Exception) -> Message:
    """Read what only the fast decoder refuses (escaped lone surrogates), or say what is wrong."""
    if isinstance(error, RecursionError):
        head, tail = bytes(data[:END]).lstrip(), bytes(data[-END:]).rstrip()
        is_request = b'"method"' in head + tail
        written = (id_at_start(head) or id_at_end(tail)) if is_request else None
        raise BadMessage(PARSE_ERROR, "nested too deeply", _usable(decode_value(written or _NULL))) from None
    is_object = data[:1] == b"{" or data.lstrip()[:1] == b"{"
    try:
        _check_utf8(data)
        parts = fields(bytes(data)) if is_object else {}
        known = {key: decode_value(parts[key]) for key in ("jsonrpc", "id", "method") if key in parts}
        is_batch = data.lstrip()[:1] == b"["
        if not is_object:
            _whole.decode(data)
    except (ValueError, RecursionError) as reason:
        raise BadMessage(PARSE_ERROR, f"not JSON: {reason}") from None
    if not is_object:
        what = "a batch" if is_batch else "not an object"
        raise BadMessage(INVALID_REQUEST, f"{what}; send one JSON-RPC message at a time") from None
    ident = known.get("id")
    if isinstance(ident, bool) or not isinstance(ident, int | str | None) or not isinstance(known.get("jsonrpc"), str):
        raise BadMessage(INVALID_REQUEST, "not a JSON-RPC 2.0 message", _usable(ident)) from None
    if not isinstance(known.get("method", ""), str):
        raise BadMessage(INVALID_REQUEST, "method must be a string", _usable(ident)) from None
    message = Message(known["jsonrpc"], known.get("id", UNSET), known.get("method", UNSET))
    for key in ("params", "result", "error"):
        if key in parts:
            setattr(message, key, parts[key])
    return message


def _usable(ident: object) -> Id | None:
    return ident if isinstance(ident, int | str) and not isinstance(ident, bool) else None


def notification(method: str, params: Raw | UnsetType = UNSET) -> bytes:
    return encode(Message(method=method, params=params))


def result(id: Id, value: Raw) -> bytes:
    if len(value) <= PART:
        return encode(Message(id=id, result=value))
    # The encoder doubles its buffer until all is in.
    return b"".join((b'{"jsonrpc":"2.0","id":', encode(id), b',"result":', memoryview(value), b"}"))


def failure(id: Id | None, error: Raw) -> bytes:
    return encode(Message(id=id, error=error))


def error_object(code: int, message: str, data: Any = None) -> Raw:
    """Make a JSON-RPC error object."""
    return raw({"code": code, "message": message} | ({} if data is None else {"data": data}))


def without_line_breaks(data: bytes) -> bytes:
    """Replace line breaks by blanks: in JSON they stand only between values."""
    if data.find(b"\n") >= 0 or data.find(b"\r") >= 0:
        return data.replace(b"\n", b" ").replace(b"\r", b" ")
    return data


class _Error(msgspec.Struct):
    """What an error says, without its data, which may be of any size."""

    code: Raw
    message: Raw


_errors = msgspec.json.Decoder(_Error)
_MOST_CODE: Final = 32
"""Bytes of the code of an error."""


def error_of(error: Raw) -> tuple[int, str]:
    """Return the code and message of an error object; (INTERNAL_ERROR, ...) when it is malformed. Its data is passed
    over, and a message that is not a string is told as it was written."""
    try:
        try:
            parts = _errors.decode(error)
            code, message = parts.code, parts.message
        except (msgspec.DecodeError, RecursionError):
            members = fields(error)
            code, message = members["code"], members["message"]
        said = text(message) if json_type(message) == "string" else bytes(message).decode(errors="replace")
        return int(decode_value(code if len(code) <= _MOST_CODE else _NULL)), said or ""
    except (LookupError, TypeError, ValueError, OverflowError):
        return INTERNAL_ERROR, "malformed error"


def merge_members(value: Raw | UnsetType, extra: Mapping[str, Any]) -> Raw:
    """Set some members of an object; the others stay as they were written."""
    return Raw(encode({**fields(value), **extra}))
