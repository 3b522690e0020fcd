"""A tool as one short call: its name, and the arguments that it requires with their types, or if it requires none, the
first optional ones: `browser__find(text?: string, regex?: string)`.

Lists, answers and hooks name hidden tools this way, so that a model can call them through a bridge without a discovery.
A server wrote the names of the arguments, and the line stands in a text of ours. So only plain identifiers and the
types of JSON Schema are shown; whatever else stands there is left out and marked with `…`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import msgspec

from foretool.retrieval.tokens import estimate
from foretool.server.protocol import jsonrpc
from foretool.storage.records import Tool

_MOST_ARGUMENTS: Final = 8
"""Required arguments that are shown; a tool with more has to be asked for by name."""
_MOST_OPTIONAL: Final = 2
"""Optional arguments that are shown of a tool that requires none, else its call would look complete. Lists and hints
have room for the first one."""
_MOST_MEMBERS: Final = 4
"""Required members of an object that are shown: without them a model can only guess what it holds."""
_MOST_REFERENCES: Final = 4
"""References that are followed from one argument, because they may go round."""
_MOST_OPTIONS: Final = 4
"""Members of a union that are shown."""
_MOST_UNION: Final = 120
"""Characters of a union that are shown: a hint has no room for a call with more."""
_MOST_NAME: Final = 40
"""Characters of an argument's name."""
CUT: Final = "…"
"""Ends a call that takes more than it shows."""
MARK: Final = "__"
"""Ends the prefix of a name, as `names.SEPARATOR`, whose module takes longer to import than a prompt hook may."""
_MEANING: Final = "a__{b, c} means a__b and a__c"
"""Stands before names that share a prefix."""
_TYPES: Final = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})


class _Defined(msgspec.Struct):
    """The member of a definition that says how its tool is called."""

    inputSchema: Any = None


_schemas = msgspec.json.Decoder(_Defined)
_plain = re.compile(rf"[A-Za-z_$@][\w$.-]{{0,{_MOST_NAME - 1}}}", re.ASCII)
_name = re.compile(r"[\w.-]+", re.ASCII)
_reference = re.compile(r"#/(\$defs|definitions)/([\w.-]+)", re.ASCII)
_argument = re.compile(r"([\w$@.-]+)\??: ", re.ASCII)


def signature(tool: Tool, *, marks_optional: bool = False) -> str:
    """Return a call of a tool: `files__read(path: string, lines: integer)`; "" for a name that is not plain.
    `marks_optional`: end it in `…` wherever the tool takes more, for which lists and hints have no room."""
    return f"{tool.id}({_arguments(tool.definition, marks_optional)})" if _name.fullmatch(tool.id) else ""


def bridged(call: str, bridge: str) -> str:
    """Return a call as a bridge takes it: `call_tool(name: "files__read", arguments: {path: string})`."""
    name, _, arguments = call.partition("(")
    return f'{bridge}(name: "{name}", arguments: {{{arguments[:-1]}}})'


def example_call(call: str, bridge: str) -> str:
    """Return a call as a bridge takes it, as JSON without values: `call_tool {"name": "files__read", "arguments":
    {"path": ...}}`."""
    name, _, arguments = call.partition("(")
    given = ", ".join(f'"{argument}": ...' for argument in _argument.findall(arguments))
    return f'{bridge} {{"name": "{name}", "arguments": {{{given}}}}}'


def name_calls(head: str, calls: Sequence[str]) -> str:
    """Return a line that names calls, or tools by name alone, behind a head. Those with the same prefix share it where
    that makes the line shorter: `Some of them (a__{b, c} means a__b and a__c): files__{read(path: string), stat()}`."""
    by_prefix: dict[str, list[str]] = {}
    for prefix, rest in map(split_call, calls):
        by_prefix.setdefault(prefix, []).append(rest)
    parts = [
        f"{prefix}{{{', '.join(rests)}}}" if prefix and len(rests) > 1 else ", ".join(prefix + rest for rest in rests)
        for prefix, rests in by_prefix.items()
    ]
    plain, grouped = f"{head}: {', '.join(calls)}", f"{head} ({_MEANING}): {', '.join(parts)}"
    return min(plain, grouped, key=estimate)


def split_call(call: str) -> tuple[str, str]:
    """Split a call into its server's prefix with the separator ("" without one) and the rest."""
    name = call.partition("(")[0]
    head, mark, rest = name.partition(MARK)
    return (head + mark, call[len(head + mark) :]) if head and rest else ("", call)


def required_arguments(tool: Tool) -> set[str]:
    schema = input_schema(tool.definition)
    properties = properties_of(schema)
    return {each for each in _required(schema) if isinstance(each, str) and not _has_default(properties.get(each))}


def all_arguments(tool: Tool) -> set[str]:
    """Return the names of the arguments that the schema of a tool knows."""
    return {*properties_of(input_schema(tool.definition))}


def plain_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments whose names are plain, at most `_MOST_ARGUMENTS` of them."""
    names = [name for name in arguments if _plain.fullmatch(name)]
    return {name: arguments[name] for name in names[:_MOST_ARGUMENTS]}


def input_schema(definition: bytes) -> dict[str, Any]:
    """Return the input schema of a definition, {} where none can be read."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found = _schemas.decode(definition).inputSchema
        return found if isinstance(found, dict) else {}
    try:  # the fast decoder refuses escaped lone surrogates, which are JSON
        found = jsonrpc.decode_value(jsonrpc.fields(definition)["inputSchema"])
    except (KeyError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def properties_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of an object's schema by name, {} where it names none."""
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


@lru_cache(maxsize=4096)
def _arguments(definition: bytes, marks_optional: bool) -> str:
    schema = input_schema(definition)
    required, properties = _required(schema), properties_of(schema)
    names = _shown(required)
    needed = [name for name in names if not _has_default(properties.get(name))]
    shown = [f"{name}: {_type(properties.get(name), schema)}" for name in needed]
    has_more = len(names) < len(required) or (marks_optional and not properties.keys() <= {*needed})
    if not needed and len(names) == len(required):
        first = _shown([*properties])[: _MOST_OPTIONAL if marks_optional else 1]
        shown = [f"{name}?: {_type(properties.get(name), schema)}" for name in first]
        has_more = len(first) < len(properties)
    return ", ".join([*shown, CUT] if has_more else shown)


def _shown(required: Sequence[Any]) -> list[str]:
    return [each for each in dict.fromkeys(map(str, required)) if _plain.fullmatch(each)][:_MOST_ARGUMENTS]


def _required(schema: Mapping[str, Any]) -> list[Any]:
    found = schema.get("required")
    return found if isinstance(found, list) else []


def _members(schema: Mapping[str, Any]) -> list[str]:
    """Return what an object requires; nothing where that is much, or where a name is not plain."""
    names = _required(schema)
    return names if len(names) <= _MOST_MEMBERS and _shown(names) == names else []


def _has_default(schema: Any) -> bool:
    """Return whether an argument may be left out although it is listed as required, as some generators list it."""
    return isinstance(schema, Mapping) and "default" in schema


def _resolve(schema: Any, parts: Mapping[str, Any]) -> Any:
    """Return the schema that a reference of a generator means. `parts`: the input schema, which holds it."""
    for _ in range(_MOST_REFERENCES):
        if not isinstance(schema, Mapping):
            break
        if isinstance(alone := schema.get("allOf"), list) and len(alone) == 1:
            schema = alone[0]
            continue
        found = _reference.fullmatch(at) if isinstance(at := schema.get("$ref"), str) else None
        if found is None:
            break
        named = parts.get(found[1])
        schema = named.get(found[2]) if isinstance(named, Mapping) else None
    return schema


def _type(schema: Any, parts: Mapping[str, Any]) -> str:
    """Return the type of an argument in a word or two: `string`, `string[]`, `string or null`, `{id, name}`, `any`.
    `parts`: the input schema, which references point into."""
    schema = _resolve(schema, parts)
    if not isinstance(schema, Mapping):
        return "any"
    kinds = schema.get("type")
    found = [each for each in (kinds if isinstance(kinds, list) else [kinds]) if each in _TYPES]
    if not found and isinstance(values := schema.get("enum"), list) and all(isinstance(one, str) for one in values):
        found = ["string"]
    options = schema.get("anyOf", schema.get("oneOf"))
    if not found and isinstance(options, list):
        each_of = [_type(_resolve(one, parts), {}) for one in options[:_MOST_OPTIONS]]
        union = " or ".join(dict.fromkeys(each_of))
        is_shown = len(options) == len(each_of) and "any" not in each_of and 0 < len(union) <= _MOST_UNION
        return union if is_shown else "any"
    if found == ["array"]:
        inner = _type(_resolve(schema.get("items"), parts), {})  # a reference in there may lead back here
        return f"[{inner}]" if inner.startswith("{") else f"{inner}[]" if inner in _TYPES else "array"
    if found == ["object"] and (names := _members(schema)):
        return f"{{{', '.join(names)}}}"
    return " or ".join(found[:3]) or "any"
