"""Reads what a model wrote for one of our own tools: an object of arguments, or a call of another tool, whose arguments
are then read as its schema means them.

Models write arguments as a JSON text, leave them out, call them `args`, or put them beside the name. Each of these has
one meaning, so it is understood and nobody has to write it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from msgspec import Struct

from foretool.server.catalog.signatures import input_schema, properties_of
from foretool.server.discovery.plain_schemas import trim, without_noise
from foretool.server.methods.schema_fit import find_misfits, fit_to_schema, read_json
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.storage.records import Tool

_NAMES: Final = ("name", "tool", "tool_name", "toolName")
"""Words for the tool that is to be called, ours first."""
_ARGUMENTS: Final = ("args", "parameters", "params", "input")
"""Words for its arguments besides ours, which is `arguments`."""
_HANDLE: Final = "handle"
_MOST_QUOTES: Final = 2
"""How often a value may be a JSON text of a JSON text."""
_MOST_SCHEMA: Final = 4_000
"""Characters of a schema that an answer about wrong arguments quotes whole; a longer one is trimmed."""


class BridgedCall(Struct, frozen=True):
    """A call of a tool as it was written for one of our bridges."""

    name: str
    """"" where none was given."""
    handle: str
    given: Raw | None
    """What stands under `arguments`; None where nothing does."""
    beside: dict[str, Raw]
    """What else stands beside the name."""

    def arguments(self, schema: Mapping[str, Any]) -> Raw:
        """Return the arguments for a tool with this input schema. What is no object stays as it was written, and so
        does one with very many members."""
        known = properties_of(schema)
        beside, given = dict(self.beside), self.given
        if given is None or bytes(given) == b"{}":
            word = next((word for word in _ARGUMENTS if _holds_arguments(beside.get(word), word, known)), None)
            given = open_object(beside.pop(word)) if word is not None else given
        if given is not None and (jsonrpc.json_type(given) != "object" or jsonrpc.may_have_many_members(given)):
            return given
        members = jsonrpc.fields(given) if given is not None else {}
        word, inner = next(iter(members.items())) if len(members) == 1 else ("", None)
        if known and word in ("arguments", *_ARGUMENTS) and _holds_arguments(inner, word, known):
            given = open_object(inner or jsonrpc.EMPTY)  # wrapped twice
            members = jsonrpc.fields(given)
        takes_any = "properties" not in schema or schema.get("additionalProperties") not in (None, False)
        more = {
            name: value for name, value in beside.items()
            if name not in members and (name in known or (takes_any and not members))
        }  # fmt: skip
        return jsonrpc.raw({**more, **members}) if more else given or jsonrpc.EMPTY

    @property
    def argument_names(self) -> set[str]:
        """The names of the arguments, on whichever level of the call a model wrote them."""
        given = self.given or jsonrpc.EMPTY
        return {*self.beside, *(jsonrpc.fields(given) if jsonrpc.json_type(given) == "object" else ())}

    @property
    def own_arguments(self) -> Raw:
        """The arguments for a tool of ours, which ignores what it does not know."""
        if self.given is not None and jsonrpc.json_type(self.given) != "object":
            return self.given
        handle = {_HANDLE: self.handle} if self.handle else {}
        return jsonrpc.raw({**self.beside, **handle, **jsonrpc.fields(self.given or jsonrpc.EMPTY)})


class FittedArguments(Struct, frozen=True):
    """The arguments of a bridged call as the schema of its tool has them."""

    arguments: Raw = jsonrpc.EMPTY
    refusal: str = ""
    """Why no server would accept them, for the model; "" if one may."""
    doubt: str = ""
    """What may be wrong with them although they are sent."""


def fit_arguments(call: BridgedCall, tool: Tool) -> FittedArguments:
    """Return the arguments of a call as the schema of the tool has them, or why no server would accept them."""
    schema = input_schema(tool.definition)
    explain = partial(_explain, tool, schema)
    arguments = call.arguments(schema)
    if jsonrpc.json_type(arguments) != "object":
        text = "a text" if jsonrpc.json_type(arguments) == "string" else bytes(memoryview(arguments)[:60]).decode()
        problem = f'"arguments": expected an object, found {text}; write them as an object'
        return FittedArguments(refusal=explain(problem))
    fitted = fit_to_schema(schema, arguments)
    if fitted.refusal:
        return FittedArguments(refusal=explain(f"{fitted.refusal}; correct that and call again"))
    return FittedArguments(fitted.arguments, doubt=explain("; ".join(fitted.doubts)) if fitted.doubts else "")


def explain_misfits(tool: Tool, arguments: Raw, *, is_invalid: bool) -> str:
    """Say what of the arguments of a failed call, sent as they were written, does not fit the schema of its tool.
    Return "" if nothing is found, unless their server calls them invalid (`is_invalid`): its schema may not say all."""
    schema = input_schema(tool.definition)
    if misfits := find_misfits(schema, arguments):
        return _explain(tool, schema, misfits)
    if not (is_invalid and schema.get("properties")):
        return ""
    return f"its server calls the arguments of {tool.id} invalid. {_quote_schema(tool, schema)}"


def read_call(raw: Raw) -> BridgedCall:
    """Read the arguments of a bridge. Raises ValueError when they are not an object."""
    members = jsonrpc.fields(open_object(raw))
    inner = members.get("arguments")
    if not members.keys() & set(_NAMES) and inner is not None:
        # The whole call stands under `arguments` once more.
        inner = open_object(inner)
        if jsonrpc.json_type(inner) == "object" and jsonrpc.fields(inner).keys() & set(_NAMES):
            members = {**members, "arguments": Raw(b"null"), **jsonrpc.fields(inner)}
    word = next((word for word in _NAMES if jsonrpc.text(members.get(word))), None)
    name = jsonrpc.text(members.pop(word)) if word is not None else None
    handle = jsonrpc.text(members.pop(_HANDLE, None))
    given = members.pop("arguments", None)
    return BridgedCall(name or "", handle or "", open_object(given) if given is not None else None, members)


def open_object(raw: Raw) -> Raw:
    """Return the object that a value is or that its JSON text holds; {} for null and for what is empty. Another value
    stays as it was written."""
    opened: Raw | None = raw
    for _ in range(_MOST_QUOTES):
        if opened is None or jsonrpc.json_type(opened) != "string":
            break
        text = jsonrpc.text(opened) or ""
        opened = read_json(text) if text.strip() else jsonrpc.EMPTY
    if opened is None:
        return raw
    if bytes(memoryview(opened)[:5]) in (b"null", b"[]"):
        return jsonrpc.EMPTY
    return opened if jsonrpc.json_type(opened) == "object" else raw


def _holds_arguments(value: Raw | None, word: str, known: Mapping[str, Any]) -> bool:
    """Return whether a value under another word for arguments is that, and not an argument of this name."""
    opened = open_object(value) if value is not None else None
    if opened is None or jsonrpc.json_type(opened) != "object":
        return False
    members = jsonrpc.fields(opened)
    return word not in known or (bool(members) and members.keys() <= known.keys())


def _explain(tool: Tool, schema: dict[str, Any], problem: str) -> str:
    return f"the arguments of {tool.id} do not fit its schema: {problem}. {_quote_schema(tool, schema)}"


def _quote_schema(tool: Tool, schema: dict[str, Any]) -> str:
    """Return a schema for the model that got the arguments wrong, cut to what fits `_MOST_SCHEMA`."""
    plain = without_noise(schema)
    for cut in (plain, trim(plain), trim(plain, depth=1)):
        written = jsonrpc.encode(cut).decode()
        if len(written) <= _MOST_SCHEMA:
            more = "" if cut is plain else f' discover_tools(names=["{tool.id}"]) shows the whole schema.'
            return f"inputSchema: {written}{more}"
    return f'discover_tools(names=["{tool.id}"]) shows its schema.'
