"""Reads the result of a tool as one value, which paths lead into."""

from __future__ import annotations

from typing import Any

from foretool.server.methods.schema_fit import read_json
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw


def value_of(result: Raw) -> Raw:
    """Return what paths lead into: the structured content, else the JSON of the text, else the text."""
    structure = structure_of(result)
    if structure is not jsonrpc.EMPTY:
        members = jsonrpc.fields(structure) if jsonrpc.json_type(structure) == "object" else {}
        if list(members) == ["result"]:  # the SDK for Python wraps what is no object so
            return members["result"]
        if len(members) != 1 or jsonrpc.text(next(iter(members.values()))) != texts_of(result):
            return structure  # else it repeats the text, which may hold JSON
    values = [_block_value(each) for each in _blocks(result)]
    return values[0] if len(values) == 1 else Raw(b"[%b]" % b",".join(map(bytes, values)))


def structure_of(result: Raw) -> Raw:
    found = jsonrpc.fields(result).get("structuredContent")
    return found if found is not None and bytes(memoryview(found)[:4]) != b"null" else jsonrpc.EMPTY


def _blocks(result: Raw) -> list[Raw]:
    content = jsonrpc.fields(result).get("content")
    return jsonrpc.items(content) if content is not None and jsonrpc.json_type(content) == "array" else []


def _block_value(raw: Raw) -> Raw:
    """Return the value of one block of a result; of a picture or a sound only what it is."""
    members: dict[str, Any] = jsonrpc.plain_object(raw) or {}
    if members.get("type") == "text" and isinstance(members.get("text"), str):
        written = read_json(members["text"])
        is_container = written is not None and jsonrpc.json_type(written) in ("object", "array")
        return written if written is not None and is_container else jsonrpc.raw(members["text"])
    return jsonrpc.raw({key: value for key, value in members.items() if key != "data"})


def texts_of(result: Raw) -> str:
    blocks = [jsonrpc.plain_object(each) or {} for each in _blocks(result)]
    return "\n".join(str(each["text"]) for each in blocks if isinstance(each.get("text"), str))


def as_text(value: Raw) -> str:
    """Return a value as a model reads it: a text without quotes."""
    return (jsonrpc.text(value) or "") if jsonrpc.json_type(value) == "string" else bytes(value).decode()
