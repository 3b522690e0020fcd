"""Reads from a definition what a tool takes and what it gives: the two ends of a dependency.

A field is known by its words (`userId` and `user_id` are "user id"). What a tool gives stands in its `outputSchema`.
Without one its name tells: `list_issues` and `create_issue` give issues, and so their ids. Nothing here raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from foretool.retrieval.document import as_object, decode_definition, resolve_reference
from foretool.retrieval.words import in_words, stem
from foretool.storage.records import Tool, ToolId

_GENERIC = "status result results message response output success error errors data content value text ok code items"
GENERIC = frozenset(_GENERIC.split())
"""Names of fields that say nothing about their content."""

_IDENTIFIERS = "id ids key token uuid guid slug number sha ref handle arn uri session cursor"
IDENTIFIERS = frozenset(_IDENTIFIERS.split())
"""The last word of a field whose value only another call can give."""

_GIVING = "list search find query get fetch read lookup create add make new register login open start"
GIVING = frozenset(_GIVING.split())
"""The first word of the name of a tool that answers with the things it names."""

MAX_FIELDS = 200
DEPTH = 3
"""How deep an `outputSchema` is read: a list of issues has its ids on the second level."""


class Fields(Struct, frozen=True):
    """What one tool takes and gives."""

    id: ToolId
    upstream: str
    verb: str
    nouns: frozenset[str]
    """The stems of the words of its name, without the verb."""
    takes: dict[str, bool]
    """By the words of a parameter, whether the tool requires it."""
    gives: frozenset[str]
    """The words of each result field that says something; empty without an `outputSchema`."""


def fields(tool: Tool) -> Fields:
    """Read a definition; a missing or malformed part is left out."""
    definition = as_object(decode_definition(tool.definition))
    taken = as_object(definition.get("inputSchema"))
    required = taken.get("required")
    wanted = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    takes = {in_words(name): name in wanted for name in list(as_object(taken.get("properties")))[:MAX_FIELDS]}
    given = as_object(definition.get("outputSchema"))
    verb, *rest = in_words(tool.name).split() or [""]
    return Fields(
        id=tool.id,
        upstream=tool.upstream,
        verb=verb,
        nouns=frozenset(stem(word) for word in rest),
        takes=takes,
        gives=frozenset(_given(given, given, DEPTH)) - GENERIC,
    )


def identifies(field: str) -> str | None:
    """The thing that a field identifies: "issue" for "issue number", "" for "id" alone; None for other fields."""
    *rest, last = field.split() or [""]
    if last not in IDENTIFIERS:
        return None
    return " ".join(stem(word) for word in rest)


def _given(schema: dict[str, Any], root: dict[str, Any], depth: int) -> Iterator[str]:
    if depth == 0:
        return
    for name, member in list(as_object(schema.get("properties")).items())[:MAX_FIELDS]:
        yield in_words(name)
        yield from _given(_resolved(member, root), root, depth - 1)
    yield from _items(schema, root, depth)


def _items(schema: dict[str, Any], root: dict[str, Any], depth: int) -> Iterator[str]:
    if items := as_object(schema.get("items")):
        yield from _given(_resolved(items, root), root, depth)
    for keyword in ("anyOf", "oneOf", "allOf"):
        members = schema.get(keyword)
        for member in members if isinstance(members, list) else ():
            yield from _given(_resolved(member, root), root, depth - 1)


def _resolved(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """The schema itself, or what its local `$ref` points at."""
    member = as_object(schema)
    return resolve_reference(member, root) or member
