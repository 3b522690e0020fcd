"""A tool as fields of text: the parts of its definition that ranking reads, and its one line in an answer.

A definition comes from a stranger: any key may be missing, of another type, or a megabyte long. Nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from foretool.retrieval.words import in_words
from foretool.storage.records import Tool, ToolId

MAX_DESCRIPTION = 8_000
MAX_PARAMETERS = 200
MAX_PARAMETER_TEXT = 1_000
MAX_ENUM_VALUES = 12
MAX_SERVER_TEXT = 200
"""How many characters of a server's description count; more make the tools of one server look alike."""
MAX_SUMMARY = 120
MAX_EMBEDDED = 2_000
"""How many characters of a description are embedded; encoders cut at 128 to 256 tokens."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n\s*\n|\n\s*[-*#]")  # noqa: RUF001 (full-width marks end Chinese sentences)


@dataclass(frozen=True, slots=True)
class Document:
    """What a tool says about itself, field by field, as written."""

    id: ToolId
    server: str
    name: str
    title: str = ""
    description: str = ""
    parameters: tuple[str, ...] = ()
    """Names of the top-level parameters."""
    parameter_texts: tuple[str, ...] = ()
    """Descriptions and the first enum values of the parameters."""
    server_text: str = ""


def document(tool: Tool, server_text: str = "") -> Document:
    """Read a tool's definition; a missing or malformed part stays empty."""
    definition = as_object(decode_definition(tool.definition))
    parameters = dict(islice(_parameters(definition), MAX_PARAMETERS))
    return Document(
        id=tool.id,
        server=tool.upstream,
        name=tool.name,
        title=_text(definition.get("title"))[:MAX_PARAMETER_TEXT],
        description=_text(definition.get("description"))[:MAX_DESCRIPTION],
        parameters=tuple(parameters),
        parameter_texts=tuple(text for text in parameters.values() if text),
        server_text=server_text[:MAX_SERVER_TEXT],
    )


def summary_line(document: Document) -> str:
    """The first sentence of the description in one line of at most 120 characters."""
    return first_sentence(document.description.strip() or document.title.strip() or in_words(document.name))


def first_sentence(text: str) -> str:
    """The first sentence of a text in one line of at most 120 characters."""
    line = " ".join(_SENTENCE_END.split(text, maxsplit=1)[0].split())
    if len(line) <= MAX_SUMMARY:
        return line
    head, space, _ = line[:MAX_SUMMARY].rpartition(" ")
    # A text without spaces (Chinese, a URL) is cut anywhere rather than down to nothing.
    return (head if space and len(head) > MAX_SUMMARY // 2 else line[: MAX_SUMMARY - 1]) + "…"


def embedded_text(document: Document) -> str:
    """The text that an encoder reads for a tool: server, name, description, parameter names, the server's own words.

    A model's limit cuts off the end. Descriptions of parameters and enum values were tried and added nothing.
    """
    parts = [in_words(document.name) + "."]
    if document.server:
        parts.insert(0, in_words(document.server) + ":")
    if text := " ".join((document.description or document.title)[:MAX_EMBEDDED].split()):
        parts.append(text if text.endswith((".", "!", "?")) else text + ".")
    if document.parameters:
        parts.append(f"Parameters: {', '.join(map(in_words, document.parameters))}.")
    if document.server_text:
        parts.append(" ".join(document.server_text.split()))
    return " ".join(parts)


def decode_definition(definition: bytes) -> Any:
    """Decode a definition; None for bytes that are not JSON."""
    try:
        return msgspec.json.decode(definition)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _parameters(definition: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The top-level parameters as (name, text), with those of `allOf`, `anyOf` and `oneOf` members."""
    root = as_object(definition.get("inputSchema") or definition.get("input_schema"))
    for part in _alternatives(root, root):
        for name, schema in as_object(part.get("properties")).items():
            yield name, " ".join(_schema_texts(as_object(schema), root))[:MAX_PARAMETER_TEXT]


def _schema_texts(schema: dict[str, Any], root: dict[str, Any]) -> Iterator[str]:
    for part in _alternatives(schema, root):
        if text := _text(part.get("description")):
            yield text
        values = part.get("enum")
        if isinstance(values, list):
            yield from (value for value in values[:MAX_ENUM_VALUES] if isinstance(value, str))


def _alternatives(schema: dict[str, Any], root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema, what it refers to, its array items and the members it combines; one level, so cycles do no harm."""
    yield schema
    yield resolve_reference(schema, root)
    yield resolve_reference(as_object(schema.get("items")), root) or as_object(schema.get("items"))
    for keyword in ("allOf", "anyOf", "oneOf"):
        members = schema.get(keyword)
        for member in members[:MAX_ENUM_VALUES] if isinstance(members, list) else ():
            yield resolve_reference(as_object(member), root) or as_object(member)


def resolve_reference(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """The schema that a local `$ref` such as `#/$defs/Name` points at, or an empty one."""
    path = _text(schema.get("$ref"))
    if not path.startswith("#/"):
        return {}
    found: Any = root
    for step in path[2:].split("/"):
        found = as_object(found).get(step.replace("~1", "/").replace("~0", "~"))
    return as_object(found)


def as_object(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
