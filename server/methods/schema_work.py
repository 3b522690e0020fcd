"""Tells how much work one validation by a JSON schema can be, without doing it.

A schema of 2 KB can take a validator minutes: unions of references to unions of references double the work at each
step, a regular expression may backtrack, and a schema that refers to itself follows the value that it is given. Most
schemas of tools have none of this. Their work has a bound, and they can be checked on the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field

MOST_PARTS: Final = 2000
"""Parts of a schema, with every reference followed. A larger schema counts as one without a bound."""
MOST_NESTED: Final = 40
UNION_FACTOR: Final = 2
"""A validator reads the members of a union twice: to see whether one fits, and to say why none does."""

_DRAFTS: Final = ("2020-12/schema", "2019-09/schema", "draft-07/schema", "draft-06/schema", "draft-04/schema")
_NOTES: Final = frozenset(
    {"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "nullable"}
    | {"$comment", "$defs", "definitions", "contentEncoding", "contentMediaType"}
)
_SIMPLE: Final = frozenset(
    {"type", "required", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"}
    | {"minItems", "maxItems", "minProperties", "maxProperties", "const"}
)
_FORMATS: Final = frozenset({"date", "date-time", "time", "email", "uri", "uuid", "int32", "int64", "float", "double"})
_UNIONS: Final = ("anyOf", "oneOf", "allOf")
_SCHEMAS: Final = ("items", "additionalProperties")


class _Unbounded(Exception):
    """No bound is known for the work."""


class _Walk(Struct):
    root: Mapping[str, Any]
    parts: int = 0
    followed: dict[str, int] = field(default_factory=dict)
    """The work of each reference; -1 while it is being followed."""


def estimate_work(schema: Mapping[str, Any]) -> int | None:
    """Return an upper bound for the steps of a validator per value in the arguments; None if no bound is known."""
    try:
        return _work(schema, _Walk(schema), 0)
    except _Unbounded:
        return None


def _work(schema: Any, walk: _Walk, depth: int) -> int:
    walk.parts += 1
    if isinstance(schema, bool):
        return 1
    if not isinstance(schema, dict) or depth > MOST_NESTED or walk.parts > MOST_PARTS:
        raise _Unbounded
    return 1 + sum(_keyword_work(keyword, value, walk, depth + 1) for keyword, value in schema.items())


def _keyword_work(keyword: str, value: Any, walk: _Walk, depth: int) -> int:
    if keyword in _NOTES or keyword.startswith("x-"):
        return 0
    if keyword in _SIMPLE:
        return _size(value, walk)
    if keyword == "enum" and isinstance(value, list):
        return sum(_size(each, walk) for each in value)
    if keyword == "properties" and isinstance(value, dict):
        return sum(_work(each, walk, depth) for each in value.values())
    if keyword in _SCHEMAS:
        return _work(value, walk, depth)
    if keyword in _UNIONS and isinstance(value, list):
        return UNION_FACTOR * sum(_work(each, walk, depth) for each in value)
    if keyword == "$ref" and isinstance(value, str):
        return _follow(value, walk, depth)
    if keyword == "format" and value in _FORMATS:
        return 1
    if keyword == "$schema" and isinstance(value, str) and value.rstrip("#").endswith(_DRAFTS):
        return 0
    raise _Unbounded  # regular expressions, conditions, and whatever else a validator may know


def _size(value: Any, walk: _Walk) -> int:
    """Count the scalars of a constant. Objects and lists in lists are rare, and have no bound here."""
    if isinstance(value, dict):
        raise _Unbounded
    if not isinstance(value, list):
        return 1
    if any(isinstance(each, dict | list) for each in value):
        raise _Unbounded
    walk.parts += len(value)
    return 1 + len(value)


def _follow(reference: str, walk: _Walk, depth: int) -> int:
    if (known := walk.followed.get(reference)) is not None:
        if known < 0:
            raise _Unbounded  # it refers to itself
        return known
    if not reference.startswith("#/"):
        raise _Unbounded
    found: Any = walk.root
    for step in reference[2:].split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    walk.followed[reference] = -1
    work = walk.followed[reference] = _work(found, walk, depth)
    return work
