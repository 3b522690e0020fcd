"""Output schemas in both eras: since 2026-07-28 one may describe any JSON value, before that only an object.

For a legacy client a schema of another value becomes that of an object with the one member `result`, and such a value
becomes that member. Servers on the official SDKs write the same for legacy clients (SEP-2106), so both forms of one
definition are recognised as one. Pure functions.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.storage.records import Era

_MEMBER: Final = "result"
_MOST_LEVELS: Final = 64
"""A schema that is nested deeper is left out for legacy clients."""

_CONTENT: Final = "structuredContent"
_SCHEMA: Final = "outputSchema"
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose values are data, in which `$ref` is a name like any other."""
_MAPS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose keys are names that a server chose."""


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    """An object with the one member `_MEMBER`."""

    result: Raw


_wrapped: Final = msgspec.json.Decoder(_Wrapped)


def is_wide(definition: bytes) -> bool:
    """Return whether a tool's output schema allows other values than objects, which the legacy era forbids."""
    if definition.find(b'"outputSchema"') < 0:
        return False
    schema = jsonrpc.fields(definition).get(_SCHEMA)
    return schema is not None and jsonrpc.member(schema, "type") != "object"


def narrow(definition: bytes) -> bytes:
    """Return a definition as the legacy era allows it: an output schema that is no object's is wrapped in one."""
    if not is_wide(definition):
        return definition
    members: dict[str, Any] = jsonrpc.fields(definition)
    try:
        members[_SCHEMA] = jsonrpc.raw(wrap_schema(jsonrpc.decode_value(members[_SCHEMA])))
    except RecursionError:
        del members[_SCHEMA]
    return jsonrpc.without_line_breaks(jsonrpc.encode(members))


def without_era(definition: bytes) -> bytes:
    """Return a definition in a form that is equal for the legacy and the modern variant of the same definition."""
    if b'"execution"' not in definition and b'"outputSchema"' not in definition:
        return definition
    members: dict[str, Any] = jsonrpc.fields(narrow(definition))
    members.pop("execution", None)
    return jsonrpc.encode(members)


def wrap_schema(schema: Any) -> dict[str, Any]:
    """Return the schema of an object whose one member `result` has this schema. Raises RecursionError."""
    is_object = isinstance(schema, dict)
    head = {"$schema": schema["$schema"]} if is_object and isinstance(schema.get("$schema"), str) else {}
    inner = schema if is_object and _is_base(schema) else _move(schema, 0)
    return {**head, "type": "object", "properties": {_MEMBER: inner}, "required": [_MEMBER]}


def _move(schema: Any, level: int, *, is_map: bool = False) -> Any:
    """Return a schema whose references into itself hold one level further down. `is_map`: its keys are names."""
    if level > _MOST_LEVELS:
        raise RecursionError
    if isinstance(schema, list):
        return [_move(each, level + 1) for each in schema]
    if not isinstance(schema, dict) or (not is_map and level and _is_base(schema)):
        return schema
    return {
        key: each if not is_map and key in _DATA
        else _move_reference(each) if not is_map and key in ("$ref", "$dynamicRef") and isinstance(each, str)
        else _move(each, level + 1, is_map=not is_map and key in _MAPS)
        for key, each in schema.items()
    }  # fmt: skip


def _move_reference(reference: str) -> str:
    if reference == "#" or reference.startswith("#/"):
        return f"#/properties/{_MEMBER}{reference[1:]}"
    return reference


def _is_base(schema: dict[str, Any]) -> bool:
    """Return whether references inside a schema count from it, wherever it stands."""
    return "$id" in schema and not str(schema["$id"]).startswith("#")


def described(result: Raw, definition: bytes) -> tuple[dict[str, Any], Raw] | None:
    """Return the output schema of a tool and the part of its result that it describes; None where there is none, or
    where the two may be of different eras."""
    if definition.find(b'"outputSchema"') < 0 or not jsonrpc.holds(result, b'"structuredContent"'):
        return None
    schema = jsonrpc.plain_object(jsonrpc.fields(definition).get(_SCHEMA))
    value = jsonrpc.fields(result).get(_CONTENT)
    if schema is None or value is None:
        return None
    properties = schema.get("properties")
    is_wrapping = isinstance(properties, dict) and properties.keys() == {_MEMBER}
    return (schema, value) if (_unwrap(value) is not None) == is_wrapping else None


def _unwrap(value: Raw) -> Raw | None:
    """Return the one member of an object that has no other than `result`, None for any other value. The decoder stops
    at the first other member: a value may have millions."""
    try:
        return jsonrpc.read_part(value, lambda data: _wrapped.decode(data).result)
    except ValueError:
        return None


def fit_result(result: Raw, definition: bytes, front: Era, upstream: Era, *, was_narrow: bool = False) -> Raw:
    """Return a result as the definition describes it that the client was given. `front`: the client's era; `upstream`:
    the era of the result; `was_narrow`: a modern client was given the definition in its legacy form."""
    if (front == upstream and not was_narrow) or not jsonrpc.holds(result, b'"structuredContent"'):
        return result
    members = jsonrpc.fields(result)
    value = members.get(_CONTENT)
    if value is None:
        return result
    is_object = bytes(memoryview(value)[:1]) == b"{"
    wide = is_wide(definition)
    if front == "modern" and upstream == "legacy":
        if not wide or (inner := _unwrap(value)) is None:
            return result
        return jsonrpc.merge_members(result, {_CONTENT: inner})
    if was_narrow and b'"outputSchema"' not in definition:
        return result  # without a schema there is nothing to fit
    if not is_object or wide:
        return jsonrpc.merge_members(result, {_CONTENT: jsonrpc.raw({_MEMBER: value})})
    return result
