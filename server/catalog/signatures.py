"""A tool as one short call: its name, and the arguments that it requires with their types.

Lists, answers and hooks name hidden tools this way, so that a model can call them through a bridge without a discovery.
A server wrote the names of the arguments, and the line stands in a text of ours. So only plain identifiers and the
types of JSON Schema are shown; whatever else stands there is left out and marked with `…`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from foretool.retrieval.tokens import estimate
from foretool.server.protocol import jsonrpc
from foretool.storage.records import Tool

MOST_ARGUMENTS: Final = 8
"""Required arguments that are shown; a tool with more has to be asked for by name."""
MOST_NAME: Final = 40
"""Characters of an argument's name."""
CUT: Final = "…"
_TYPES: Final = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})

_plain = re.compile(rf"[A-Za-z_$@][\w$.-]{{0,{MOST_NAME - 1}}}", re.ASCII)
_name = re.compile(r"[\w.-]+", re.ASCII)


def signature(tool: Tool) -> str:
    """Return a call of a tool: `files__read(path: string, lines: integer)`; "" for a name that is not plain."""
    return f"{tool.id}({_arguments(tool.definition)})" if _name.fullmatch(tool.id) else ""


def signature_tokens(tool: Tool) -> int:
    """Return the tokens of a signature, estimated; 0 for a tool that has none."""
    written = signature(tool)
    return estimate(written) if written else 0


def required_arguments(tool: Tool) -> set[str]:
    """Return the names of the arguments that a tool requires."""
    return {each for each in _required(_schema(tool.definition)) if isinstance(each, str)}


def plain_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments whose names are plain, at most `MOST_ARGUMENTS` of them."""
    names = [name for name in arguments if _plain.fullmatch(name)]
    return {name: arguments[name] for name in names[:MOST_ARGUMENTS]}


@lru_cache(maxsize=4096)
def _arguments(definition: bytes) -> str:
    schema = _schema(definition)
    required, properties = _required(schema), schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    names = [each for each in dict.fromkeys(map(str, required)) if _plain.fullmatch(each)]
    shown = [f"{name}: {_type(properties.get(name))}" for name in names[:MOST_ARGUMENTS]]
    return ", ".join([*shown, CUT] if len(shown) < len(required) else shown)


def _schema(definition: bytes) -> dict[str, Any]:
    """Return the input schema of a definition, {} where none can be read."""
    try:
        found = jsonrpc.plain(jsonrpc.fields(definition)["inputSchema"])
    except (KeyError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _required(schema: dict[str, Any]) -> list[Any]:
    found = schema.get("required")
    return found if isinstance(found, list) else []


def _type(schema: Any) -> str:
    """Return the type of an argument in a word or two: `string`, `string[]`, `string or null`, `any`."""
    if not isinstance(schema, Mapping):
        return "any"
    kinds = schema.get("type")
    found = [each for each in (kinds if isinstance(kinds, list) else [kinds]) if each in _TYPES]
    if not found and isinstance(values := schema.get("enum"), list) and all(isinstance(one, str) for one in values):
        found = ["string"]
    if found == ["array"]:
        inner = _type(schema.get("items"))
        return f"{inner}[]" if inner in _TYPES else "array"
    return " or ".join(found[:3]) or "any"
