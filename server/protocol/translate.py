"""Between the eras: what of a request or a result belongs to one hop only, and what the other era needs beside it.

Pure functions on undecoded values; what no rule names passes through as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.jsonrpc import UNSET, Raw
from foretool.storage.records import Era

PROGRESS: Final = "progressToken"
CACHEABLE: Final = frozenset(
    {"tools/list", "resources/list", "resources/templates/list", "prompts/list", "resources/read", "server/discover"}
)
"""Results that carry `ttlMs` and `cacheScope` in the modern era (specification: utilities, caching)."""

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension we do not serve: a task outlives its request, and nothing here would find its upstream again."""


def forwardable(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """What one side declares, without what cannot be forwarded."""
    kept = {key: value for key, value in capabilities.items() if key not in ("tasks", "extensions")}
    declared = capabilities.get("extensions")
    extensions = {key: value for key, value in declared.items() if key != TASKS} if isinstance(declared, dict) else {}
    return kept | ({"extensions": extensions} if extensions else {})


def united(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What is declared by either."""
    both = {**one, **other}
    for key in one.keys() & other.keys():
        if isinstance(one[key], dict) and isinstance(other[key], dict):
            both[key] = united(one[key], other[key])
    return both


def _declared(capabilities: Raw) -> Raw:
    """A client's capabilities as the next hop may see them; untouched unless they speak of tasks."""
    if TASKS.encode() not in bytes(capabilities):
        return capabilities
    declared = jsonrpc.plain(capabilities)
    return jsonrpc.raw(forwardable(declared)) if isinstance(declared, dict) else capabilities


def request_meta(
    meta: Mapping[str, Raw], front: Era, upstream: Era, client_info: Raw, capabilities: Raw
) -> dict[str, Raw] | None:
    """The `_meta` of a request on its way up, without a progress token; None when nothing is left of it."""
    if upstream == "legacy":
        kept = {key: value for key, value in meta.items() if key != PROGRESS and key not in versions.CONNECTION_META}
        return kept or None
    kept = {key: value for key, value in meta.items() if key != PROGRESS}
    if front == "legacy":
        kept[versions.META_VERSION] = jsonrpc.raw(versions.LATEST_MODERN)
        kept[versions.META_CLIENT_INFO] = client_info
        kept[versions.META_CAPABILITIES] = capabilities
    elif versions.META_CAPABILITIES in kept:
        kept[versions.META_CAPABILITIES] = _declared(kept[versions.META_CAPABILITIES])
    return kept


def with_token(params: Any, token: str | None) -> tuple[Any, Raw | None]:
    """The params of a question under a progress token of ours, or without one; and the token they came with, if any.

    The upstream's own need not be another's, and an era without such progress has no place for it."""
    try:
        members = jsonrpc.fields(params)
        meta = jsonrpc.fields(members.get("_meta", UNSET))
    except ValueError:
        return params, None
    theirs = meta.pop(PROGRESS, None)
    if theirs is None:
        return params, None
    kept = meta | ({PROGRESS: jsonrpc.raw(token)} if token is not None else {})
    members.pop("_meta", None)
    return jsonrpc.raw({**members, **({"_meta": kept} if kept else {})}), theirs


def result(value: Raw, method: str, front: Era, upstream: Era) -> Raw:
    """A result on its way down. Raises ValueError when it is no object."""
    if front == "legacy" and upstream == "legacy":
        return value
    members: dict[str, Any] = jsonrpc.fields(value)
    meta = jsonrpc.fields(members.pop("_meta", UNSET))
    meta.pop(versions.META_SERVER_INFO, None)
    if front == "legacy":
        for key in ("resultType", "ttlMs", "cacheScope"):
            members.pop(key, None)
        return jsonrpc.raw({**members, "_meta": meta} if meta else members)
    members.setdefault("resultType", versions.COMPLETE)
    if method in CACHEABLE:
        members.setdefault("ttlMs", 0)
        members.setdefault("cacheScope", "private")
    return jsonrpc.raw({**members, "_meta": {**meta, versions.META_SERVER_INFO: versions.IDENTITY_RAW}})


def own_result(value: Mapping[str, Any], method: str, front: Era) -> Raw:
    """A result of ours in the client's era."""
    return result(jsonrpc.raw(value), method, front, "legacy")


def error(value: Raw, front: Era) -> Raw:
    """An error on its way down: the modern era has no code of its own for a missing resource."""
    code, _ = jsonrpc.error_of(value)
    if front == "modern" and code == jsonrpc.RESOURCE_NOT_FOUND:
        return jsonrpc.merge(value, {"code": jsonrpc.INVALID_PARAMS})
    return value


def is_tool_error(value: Raw) -> bool:
    """Whether a call's result says `isError`."""
    # Most results are short; the search spares decoding the long ones.
    if b'"isError"' not in bytes(value):
        return False
    try:
        return bytes(jsonrpc.fields(value).get("isError", b"")) == b"true"
    except ValueError:
        return False


def input_required(value: Raw) -> bool:
    """Whether a modern result asks for input instead of being complete."""
    return (
        b'"input_required"' in bytes(value)
        and jsonrpc.text(jsonrpc.fields(value).get("resultType")) == "input_required"
    )


def argument_shape(arguments: Raw | None) -> str:
    """Names and JSON types of the arguments, as JSON; no values."""
    try:
        members = jsonrpc.fields(arguments) if arguments is not None else {}
    except ValueError:
        return "{}"
    return jsonrpc.encode({name: _kind(bytes(value)[:1]) for name, value in members.items()}).decode()


_KINDS = {b'"': "string", b"{": "object", b"[": "array", b"t": "boolean", b"f": "boolean", b"n": "null"}


def _kind(first: bytes) -> str:
    return _KINDS.get(first, "number")
