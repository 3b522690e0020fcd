"""Translates requests and results between the eras: removes what concerns one hop only, adds what the other era needs.

These are pure functions on undecoded values; members that no rule names pass through as they were written.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.jsonrpc import UNSET, Raw
from foretool.storage.records import Era

PROGRESS: Final = "progressToken"
_MOST_ARGUMENTS: Final = 200
_MOST_NAME: Final = 200
"""Arguments of a call, and characters of the name of one, that are kept: a map with any number of keys may be passed
as arguments."""
_CACHEABLE: Final = frozenset(
    {
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
        "resources/read",
        "server/discover",
        "skills/list",
        "skills/get",
    }
)
"""Results that carry `ttlMs` and `cacheScope` in the modern era (specification: utilities, caching)."""

_SERVED: Final = frozenset({versions.UI})
"""Extensions that need no methods of their own. Of others we serve no method, so neither side is told of them: a server
that declares one would be answered with "method not found". Skills are declared where there are some (`greeting`)."""


ANY_CLIENT: Final[dict[str, Any]] = {
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
}
"""What we declare on behalf of clients that have not connected yet, also where a command starts a server: some list
more tools to a client that can do more."""


def forwardable(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the capabilities that one side declares, without those that we cannot forward. Tasks are declared
    where a call may become one (`declare_tasks`), and to clients in `greeting`."""
    kept = {key: value for key, value in capabilities.items() if key not in ("tasks", "extensions")}
    extensions = served_extensions(capabilities)
    return kept | ({"extensions": extensions} if extensions else {})


def served_extensions(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the extensions of one side that we carry."""
    declared = capabilities.get("extensions")
    return {key: declared[key] for key in _SERVED & declared.keys()} if isinstance(declared, dict) else {}


def unite(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return all capabilities that at least one side declares."""
    both = {**one, **other}
    for key in one.keys() & other.keys():
        if isinstance(one[key], dict) and isinstance(other[key], dict):
            both[key] = unite(one[key], other[key])
    return both


def _declared(capabilities: Raw) -> Raw:
    """Return a client's capabilities as the next hop may see them; unchanged where it may see all."""
    if not any(jsonrpc.holds(capabilities, key) for key in (b'"extensions"', b'"tasks"')):
        return capabilities
    declared = jsonrpc.plain_object(capabilities)
    return jsonrpc.raw(forwardable(declared)) if declared is not None else capabilities


def request_meta(
    meta: Mapping[str, Raw], front: Era, upstream: Era, client_info: Raw, capabilities: Raw
) -> dict[str, Raw] | None:
    """Return the `_meta` of a request to an upstream, without a progress token, or None. `front`: the client's era."""
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


def declare_tasks(meta: dict[str, Raw]) -> None:
    """Add to the `_meta` of a call that its sender accepts a task as the answer."""
    declared = jsonrpc.plain_object(meta.get(versions.META_CAPABILITIES)) or {}
    with_tasks = unite(declared, {"extensions": {versions.TASKS: {}}})
    meta[versions.META_CAPABILITIES] = jsonrpc.raw(with_tasks)


def replace_token(params: Any, token: str | None) -> tuple[Any, Raw | None]:
    """Put our progress token in place of the upstream's in a question, or remove it if `token` is None. Returns the new
    params and the token of the upstream, if any. Two upstreams may use the same token, and not every era has progress
    for questions."""
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


def translate_result(value: Raw, method: str, front: Era, upstream: Era) -> Raw:
    """Translate a result on its way to the client. Raises ValueError when it is not an object."""
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
    if method in _CACHEABLE:
        members.setdefault("ttlMs", 0)
        members.setdefault("cacheScope", "private")
    return jsonrpc.raw({**members, "_meta": {**meta, versions.META_SERVER_INFO: versions.IDENTITY_RAW}})


def text_result(*texts: str, is_error: bool = False) -> dict[str, Any]:
    """Return the result of a tool that is these texts."""
    content = [{"type": "text", "text": each} for each in texts]
    return {"content": content, "isError": True} if is_error else {"content": content}


def own_result(value: Mapping[str, Any], method: str, front: Era) -> Raw:
    """Write a result of our own in the client's era."""
    return translate_result(jsonrpc.raw(value), method, front, "legacy")


def error(value: Raw, method: str, front: Era) -> Raw:
    """Translate an error on its way to the client: the modern era has no code for a missing resource, and none for a
    sign-in at an address, which the message names instead. A method that one server lacks is one that we have."""
    code, reason = jsonrpc.error_of(value)
    if code == jsonrpc.METHOD_NOT_FOUND and method != "tools/call":
        said = f"{method}: the server that this belongs to does not serve it ({reason})"
        return jsonrpc.merge_members(value, {"code": jsonrpc.INVALID_PARAMS, "message": said})
    if front == "modern" and code == jsonrpc.RESOURCE_NOT_FOUND:
        return jsonrpc.merge_members(value, {"code": jsonrpc.INVALID_PARAMS})
    if front == "modern" and code == jsonrpc.URL_ELICITATION_REQUIRED:
        where = ", ".join(_addresses(value))
        said = f"{reason}: open {where}, then call again"
        return jsonrpc.merge_members(value, {"code": jsonrpc.INTERNAL_ERROR, "message": said})
    return value


def _addresses(value: Raw) -> list[str]:
    """Return the addresses that a user has to open, from the data of an error."""
    data = jsonrpc.plain_object(jsonrpc.fields(value).get("data")) or {}
    asked = data.get("elicitations")
    urls = [each.get("url") for each in asked if isinstance(each, dict)] if isinstance(asked, list) else []
    return [url for url in urls if isinstance(url, str)]


def is_tool_error(value: Raw) -> bool:
    """Return whether the result of a call says `isError`."""
    # The search is much faster than decoding a long result.
    if not jsonrpc.holds(value, b'"isError"'):
        return False
    try:
        return bytes(jsonrpc.fields(value).get("isError", b"")) == b"true"
    except ValueError:
        return False


def input_required(value: Raw) -> bool:
    """Return whether a modern result asks for input instead of being complete."""
    return (
        jsonrpc.holds(value, b'"input_required"')
        and jsonrpc.text(jsonrpc.fields(value).get("resultType")) == "input_required"
    )


def argument_shape(arguments: Raw | None) -> str:
    """Return the names and JSON types of the first `_MOST_ARGUMENTS` arguments, without their values, as JSON; "{}" if
    there may be too many to read."""
    if arguments is None or jsonrpc.may_have_many_members(arguments):
        return "{}"
    try:
        members = jsonrpc.fields(arguments)
    except ValueError:
        return "{}"
    first = islice(members.items(), _MOST_ARGUMENTS)
    return jsonrpc.encode({name[:_MOST_NAME]: jsonrpc.json_type(value) for name, value in first}).decode()
