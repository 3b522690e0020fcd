"""HTTP headers of revision 2026-07-28 that repeat parts of the body: writes, reads and checks them.

`Mcp-Method` and `Mcp-Name` repeat the method and the name or URI of its object; `Mcp-Param-*` repeat the arguments
whose schema has `x-mcp-header` (specification: streamable HTTP, "Request Metadata").
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import UNSET, Raw

from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.jsonrpc import HEADER_MISMATCH, INVALID_PARAMS, UNSUPPORTED_VERSION, Message, RpcError

VERSION: Final = "mcp-protocol-version"
METHOD: Final = "mcp-method"
NAME: Final = "mcp-name"
SESSION: Final = "mcp-session-id"
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_PARAM: Final = "Mcp-Param-"
ANNOTATION: Final = "x-mcp-header"
_ANNOTATION: Final = ANNOTATION.encode()

_NAMED: Final[Mapping[str, str]] = {
    "tools/call": "name", "prompts/get": "name", "resources/read": "uri",
    "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId",
}  # fmt: skip
"""Methods whose request carries `Mcp-Name`, and the member of `params` that it repeats."""

# Keywords of JSON Schema 2020-12 that contain schemas, by the shape of their value. `properties` is not among them: an
# annotation below it counts. `default`, `enum` and the like contain data; `$ref` is not followed.
_ONE_SCHEMA: Final = frozenset(
    {"items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties"}
    | {"not", "if", "then", "else", "contentSchema"}
)
_SCHEMA_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMA_MAPS: Final = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})

_PLAIN = re.compile(r"[\x20-\x7E]*")
_WRAPPED = re.compile(r"=\?base64\?(.*)\?=")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DECIMAL = re.compile(r"(-?[0-9]+)(\.0+)?")

Path = tuple[str, ...]


class Headers:
    """The header lines of one request: the first of each by its lower-case name, and which of them came twice."""

    __slots__ = ("_values", "repeated")

    def __init__(self, lines: Iterable[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, str] = {}
        self.repeated: set[str] = set()
        for name, value in lines:
            key = name.decode("latin-1").lower()
            if key in self._values:
                self.repeated.add(key)
            else:
                # Blanks around a value are not part of it (RFC 9110, 5.5), and not every parser removes them.
                self._values[key] = value.decode("latin-1").strip(" \t")

    def get(self, name: str) -> str | None:
        return self._values.get(name)


def media_type(value: str | None) -> str:
    """Return the media type in a Content-Type, or in one entry of an Accept, without its parameters."""
    return (value or "").partition(";")[0].strip().lower()


def encode(value: str) -> str:
    """Write a value so that it survives HTTP: as it is if it can, else as `=?base64?...?=`."""
    if _PLAIN.fullmatch(value) and value == value.strip() and not _WRAPPED.fullmatch(value):
        return value
    # No server can match a lone surrogate with its body, but it must not stop the request either.
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'surrogatepass')).decode()}?="


def decode(value: str) -> str | None:
    """Read what `encode` wrote. Returns None when the wrapping is broken, which equals no value of a body."""
    wrapped = _WRAPPED.fullmatch(value)
    if wrapped is None:
        return value
    try:
        data = base64.b64decode(wrapped[1], validate=True)
        text = data.decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    # With two spellings of one value, two readers could disagree, so only the canonical one counts.
    return text if base64.b64encode(data).decode() == wrapped[1] else None


def schema_problem(schema: Any) -> str | None:
    """Return why a schema's `x-mcp-header` annotations are invalid, so that clients leave out the tool, or None."""
    seen: dict[str, str] = {}
    for path, position in _walk_schemas(schema):
        if ANNOTATION not in position:
            continue
        if not path:
            return f"{ANNOTATION} stands where no chain of properties alone leads"
        where = ".".join(path)
        reason = _annotation_problem(position)
        if reason is not None:
            return f"property {where!r}: {reason}"
        key = position[ANNOTATION].lower()
        if key in seen:
            return f"property {where!r}: {ANNOTATION} {position[ANNOTATION]!r} is already that of {seen[key]!r}"
        seen[key] = where
    return None


def _annotation_problem(position: dict[str, Any]) -> str | None:
    name, kind = position[ANNOTATION], position.get("type")
    if not isinstance(name, str):
        return f"{ANNOTATION}: expected a string, found {type(name).__name__}"
    if not _TOKEN.fullmatch(name):
        return f"{ANNOTATION} {name!r} cannot be part of a header name"
    if not isinstance(kind, str) or kind not in ("string", "integer", "boolean"):
        return f"{ANNOTATION} needs the type string, integer or boolean"
    return None


def param_headers(schema: Any, arguments: Any) -> dict[str, str]:
    """Return the `Mcp-Param-*` headers of a call. `schema`: one without a `schema_problem`."""
    headers = {}
    for path, name, _ in _annotated_members(schema):
        text = _header_text(_value_at(arguments, path))
        if text is not None:
            headers[_PARAM + name] = encode(text)
    return headers


def call_headers(definition: bytes, arguments: Raw | None) -> dict[str, str] | None:
    """Return the `Mcp-Param-*` headers of a call of the tool with this definition; None if there are none."""
    schema = annotated_schema(definition)
    return None if schema is None else param_headers(schema, jsonrpc.decode_value(arguments or b"{}")) or None


def annotated_schema(definition: bytes) -> Any:
    """Return the input schema of a tool definition if it may have `x-mcp-header` annotations, else None."""
    return (
        jsonrpc.decode_value(jsonrpc.fields(definition)["inputSchema"]) if definition.find(_ANNOTATION) >= 0 else None
    )


def request_headers(method: str, params: Mapping[str, Raw]) -> dict[str, str]:
    """Return `MCP-Protocol-Version`, `Mcp-Method` and `Mcp-Name` of a modern request."""
    headers = {VERSION: versions.LATEST_MODERN, METHOD: encode(method)}
    key = _NAMED.get(method)
    if key is not None and (name := jsonrpc.text(params.get(key))) is not None:
        headers[NAME] = encode(name)
    return headers


def check_request(message: Message, headers: Headers) -> None:
    """Check a modern request's headers, in the order on which the specification's errors depend. Raises `RpcError`."""
    for name in (VERSION, METHOD, NAME):
        if name in headers.repeated:
            raise RpcError(HEADER_MISMATCH, f"{name} header appears more than once")
    params = _members(message.params)
    meta = _members(params.get("_meta", UNSET))
    missing = [key for key in (versions.META_VERSION, versions.META_CAPABILITIES) if key not in meta]
    if missing:
        raise RpcError(INVALID_PARAMS, f"params._meta lacks {', '.join(missing)}")
    version, method = headers.get(VERSION), str(message.method)
    if version is None or version != jsonrpc.text(meta[versions.META_VERSION]):
        raise _mismatch(VERSION, f"_meta[{versions.META_VERSION!r}]")
    if headers.get(METHOD) != method:
        raise _mismatch(METHOD, "method")
    key = _NAMED.get(method)
    value = params.get(key) if key is not None else None
    if value is not None and bytes(value) != b"null":
        found = headers.get(NAME)
        sent = None if found is None else decode(found)
        if sent is None or sent != jsonrpc.text(value):
            raise _mismatch(NAME, f"params.{key}")
    check_version(headers)


def check_version(headers: Headers) -> None:
    """Raise `RpcError` unless the version header names a modern revision that we speak."""
    version = headers.get(VERSION) or ""
    if version not in versions.MODERN_VERSIONS:
        supported = {"supported": list(versions.MODERN_VERSIONS), "requested": version}
        raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", supported)


def check_params(schema: Any, arguments: Any, headers: Headers) -> None:
    """Raise `RpcError` HEADER_MISMATCH unless every annotated argument and its header agree: both are absent (null
    counts as absent), or both say the same."""
    if schema_problem(schema) is not None:
        return  # a client had to leave the tool out, so it knows of no header
    for path, name, position in _annotated_members(schema):
        key = (_PARAM + name).lower()
        if key in headers.repeated:
            raise RpcError(HEADER_MISMATCH, f"{_PARAM}{name} header appears more than once")
        value = _value_at(arguments, path)
        text, found = _header_text(value), headers.get(key)
        if text is None and found is None:
            continue
        if text is None or found is None or not _same(position["type"], value, text, decode(found)):
            raise _mismatch(_PARAM + name, "arguments." + ".".join(path))


def _mismatch(header: str, place: str) -> RpcError:
    return RpcError(HEADER_MISMATCH, f"{header} header does not match the body's {place}")


def _members(value: Raw | Any) -> dict[str, Raw]:
    """Return the members of a raw object; {} for anything else."""
    try:
        return jsonrpc.fields(value)
    except ValueError:
        return {}


def _walk_schemas(root: Any) -> Iterator[tuple[Path | None, dict[str, Any]]]:
    """Yield every schema in a schema and the chain of `properties` to it, None if another keyword is on the way."""
    # A recursive walk of a deep schema would exhaust the interpreter's stack.
    stack: list[tuple[Path | None, Any]] = [((), root)]
    while stack:
        path, node = stack.pop()
        if not isinstance(node, dict):
            continue
        yield path, node
        for keyword, value in node.items():
            if keyword == "properties" and isinstance(value, dict):
                stack.extend((None if path is None else (*path, name), sub) for name, sub in value.items())
            elif keyword in _ONE_SCHEMA:
                stack.append((None, value))
            elif keyword in _SCHEMA_LISTS and isinstance(value, list):
                stack.extend((None, sub) for sub in value)
            elif keyword in _SCHEMA_MAPS and isinstance(value, dict):
                stack.extend((None, sub) for sub in value.values())


def _annotated_members(schema: Any) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    for path, position in _walk_schemas(schema):
        if path and isinstance(name := position.get(ANNOTATION), str):
            yield path, name, position


def _value_at(arguments: Any, path: Path) -> Any:
    node = arguments
    for key in path:
        if not isinstance(node, Mapping):
            return None
        node = node.get(key)
    return node


def _header_text(value: Any) -> str | None:
    """Return a value as it stands in a header; None for a value without such a form, which the client leaves out."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        return None
    try:
        return str(value)
    except ValueError:
        return None  # more digits than Python writes


def _same(kind: str, value: Any, text: str, found: str | None) -> bool:
    decimal = _DECIMAL.fullmatch(found or "")
    if kind == "integer" and type(value) in (int, float) and decimal is not None:
        try:
            return bool(int(decimal[1]) == value)
        except ValueError:
            return False
    return found == text
