"""Says which texts of a server may be served: compares what was approved with what it lists now.

Pure: values go in, values come out; `gatekeeper` reads and writes the store. A definition counts as approved if one of
its approved versions is the same to a reader and to a model. Otherwise it is held, and its last approved version keeps
serving where calls that fit the approved schema still fit the listed one.

How a server is reached is a definition too, which a person can compare (`launch_of`). `describe_held` and
`say_waiting` put what is held into words.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from foretool.server.config.servers import Server, fingerprint
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.storage.records import Definition, DefinitionKind, Effect, HeldHead, Tool
from foretool.storage.redaction import hide_shapes
from foretool.storage.steps import Steps

Held = Sequence[Definition] | Sequence[HeldHead]


def review_command(server: str) -> str:
    """Return what a user types to see what of a server waits."""
    return shlex.join(("foretool", "review", server))


def why_held(server: str) -> str:
    """Say why a tool or a prompt is not served, and the way out."""
    return f"server {server!r} changed or added it, and only the user can approve that: {review_command(server)}"


def count_held(held: Held) -> str:
    """Return how many definitions of a server wait, such as "30 tools changed, 2 tools new"."""
    nouns: dict[DefinitionKind, str] = {
        "tool": "tool", "prompt": "prompt", "prompt_text": "prompt text", "resource": "resource",
        "template": "resource template", "skill": "skill",
    }  # fmt: skip
    counts = Counter((each.kind, "new" if each.effect == "new" else "changed") for each in held)
    parts = [
        f"{count} {noun}{'s' if count > 1 else ''} {change}"
        for kind, noun in nouns.items()
        for change in ("changed", "new")
        if (count := counts[kind, change])
    ]
    for each in held:
        if each.kind == "instructions":
            parts.append(f"its instructions {'are new' if each.effect == 'new' else 'changed'}")
        elif each.kind == "launch":
            parts.append(f"its command {'is new' if each.effect == 'new' else 'changed'}")
    return ", ".join(parts)


def say_waiting(held: Iterable[HeldHead], servers: Collection[str]) -> dict[str, tuple[frozenset[str], str]]:
    """Return by server what waits for a decision: the hashes, and one line about it with the way out."""
    by_server: dict[str, list[HeldHead]] = {}
    for each in held:
        if each.server in servers:
            by_server.setdefault(each.server, []).append(each)
    return {
        server: (
            frozenset(each.hash for each in found),
            f"{server}: {describe_held(found)}; see {review_command(server)}",
        )
        for server, found in by_server.items()
    }


def describe_held(held: Held) -> str:
    """Say in one line what is held of a server, and what that means."""
    return f"{count_held(held)}; nobody has approved this, so it is not served"


_WORDS: Final = "(?:key|token|secret|passw|credential)"
_SECRET: Final = re.compile(rf"(?i)((?<!\S)--?(?=[\w-]*?{_WORDS})[\w-]++[=:\s]|\b(?=\w*?{_WORDS})\w++[=:])\S+")
"""The value of an option or a variable whose name says that it is secret."""


def launch_of(server: Server) -> Definition:
    """Return how a server is reached as a definition. Its text has no secrets that we know of."""
    entry = server.entry
    parts = {
        "command": _SECRET.sub(r"\1[...]", " ".join((entry.command or "", *entry.args))),
        "cwd": entry.cwd,
        "url": re.sub(r"//[^/?#]*@|[?#].*", lambda match: "//" if match[0][:2] == "//" else "", entry.url or ""),
        "env": sorted(entry.env),
        "headers": sorted(entry.headers),
    }
    text = hide_shapes(
        server.secrets.redact(msgspec.json.encode({key: part for key, part in parts.items() if part}).decode())
    )
    return Definition(server.name, "launch", "", fingerprint(server), text.encode(), fingerprint=fingerprint(server))


def starts_same(one: Definition, other: Definition) -> bool:
    """Return whether two command lines start the same program, or two entries reach the same address; other options and
    variables make no difference."""
    return _program_of(one) == _program_of(other)


def _program_of(launch: Definition) -> tuple[str, ...]:
    """Return the address, or the program and its first argument that is no option: the package, module or script."""
    try:
        parts = msgspec.json.decode(launch.value)
    except ValueError:  # what was hidden in it was part of its syntax
        return (launch.value.decode(),)
    words = str(parts.get("command", "")).split()
    first = next((word for word in words[1:] if not word.startswith("-")), "")
    return (str(parts.get("url", "")), *words[:1], first)


def of_launch(definition: Definition, launch: Definition) -> Definition:
    """Return a definition with the fingerprint and version of the server that listed it."""
    return replace(definition, fingerprint=launch.fingerprint, version=launch.version)


_MOST_LEVELS: Final = 64
"""A schema that is nested deeper than this never counts as the same, nor as one that still fits."""

_UNNOTICED: Final = frozenset({"execution"})
"""Members of a definition that only the protocol reads. Servers list them in one era and omit them in the other."""
_PROTOCOL_META: Final = "io.modelcontextprotocol/"
_UNORDERED: Final = frozenset({"required", "enum", "type"})
"""Lists of a schema whose order says nothing; some servers make them from sets."""
_TEXTS: Final = frozenset({"title", "description", "examples", "default", "deprecated", "$comment", "$schema", "$id"})
"""Keywords of a schema that refuse no value."""
_MAPS: Final = frozenset({"properties", "$defs", "definitions"})
"""Keywords of a schema whose keys are names that a server chose. A further one takes nothing away."""
_CLOSED_MAPS: Final = frozenset({"patternProperties", "dependentSchemas"})
"""The same, but a further one may refuse what was taken before."""

Versions = Callable[[str], Sequence[Definition]]
"""Returns the approved versions of the definition of a name, the newest approval first."""
StandIn = Callable[[Definition, Definition], Definition | None]
"""Takes a listed definition and the approved one of its name; returns what may be served in its place, if anything."""


class ServedDefinitions(Struct, frozen=True):
    """What may be served of the definitions that a server lists."""

    served: tuple[Definition, ...]
    held: tuple[Definition, ...]
    """What nobody has decided about yet."""


def judge_definitions(
    listed: Iterable[Definition],
    approved: Mapping[str, Collection[str]],
    blocked: Mapping[str, Collection[str]],
    versions: Versions,
    stand_in: StandIn,
) -> Steps[ServedDefinitions]:
    """Decide about one listed definition after the other. `approved` and `blocked` hold the hashes by name.

    `versions` is only called for a definition with a hash that was not approved.
    """
    served: list[Definition] = []
    held: list[Definition] = []
    # Whatever names they have: a store that hides secrets may keep a name in other words, and the hash covers the name.
    hashes = {each for versions_of in approved.values() for each in versions_of}
    for definition in listed:
        yield
        if definition.hash in hashes:
            served.append(definition)
            continue
        is_blocked = definition.hash in blocked.get(definition.name, ())
        known = versions(definition.name) if definition.name in approved else ()
        if not is_blocked and any(is_same(each.value, definition.value) for each in known):
            served.append(definition)
            continue
        instead = stand_in(definition, known[0]) if known else None
        if instead is not None:
            served.append(instead)
        if not is_blocked:
            effect: Effect = "kept" if instead is not None else "withheld" if known else "new"
            held.append(replace(definition, effect=effect))
    return ServedDefinitions(tuple(served), tuple(held))


def definition_of(tool: Tool) -> Definition:
    return Definition(tool.upstream, "tool", tool.name, tool.schema_hash, tool.definition, exposed=tool.id)


def text_of(server: str, kind: DefinitionKind, name: str, text: str) -> Definition:
    """Return a text of a server as a definition to be approved, with what looks like a secret taken out."""
    value = hide_shapes(text.strip()).encode(errors="replace")
    return Definition(server, kind, name, hashlib.sha256(value).hexdigest(), value)


def hash_value(value: bytes) -> str:
    """Hash a JSON value and not its spelling: one server orders keys differently in each era."""
    decoded = jsonrpc.decode_value(value)
    try:
        canonical = msgspec.json.encode(decoded, order="sorted")
    except UnicodeEncodeError:  # half a surrogate pair, which only the slow JSON encoder writes
        canonical = json.dumps(decoded, sort_keys=True).encode()
    return hashlib.sha256(canonical).hexdigest()


# What a reader or a model would notice


def is_same(approved: bytes, listed: bytes) -> bool:
    """Return whether neither a reader nor a model would notice the difference between two definitions."""
    try:
        before, now = jsonrpc.fields(approved), jsonrpc.fields(listed)
        return all(_is_same_member(key, before.get(key), now.get(key)) for key in {*before, *now} - _UNNOTICED)
    except (ValueError, RecursionError):
        return False


def _is_same_member(key: str, before: Raw | None, now: Raw | None) -> bool:
    if before is not None and now is not None and bytes(before) == bytes(now):
        return True  # spelled alike, as nearly all members of a changed definition are
    return bool(_noticed(key, before) == _noticed(key, now))


def _noticed(key: str, member: Raw | None) -> Any:
    """Return what somebody notices of a member; one without content is the same as none."""
    value = jsonrpc.decode_value(member) if member is not None else None
    if key == "_meta" and isinstance(value, dict):
        value = {key: each for key, each in value.items() if not key.startswith(_PROTOCOL_META)}
    return None if value in (None, "", [], {}) else _in_order(value, key, 0)


def _in_order(value: Any, key: str, level: int) -> Any:
    """Return a value whose unordered lists are sorted; true and 1 stay different."""
    if level > _MOST_LEVELS:
        raise RecursionError
    if isinstance(value, dict):
        return {name: _in_order(each, name, level + 1) for name, each in value.items()}
    if isinstance(value, list):
        parts = [_in_order(each, "", level + 1) for each in value]
        return sorted(parts, key=repr) if key in _UNORDERED else parts
    return (type(value).__name__, value) if isinstance(value, bool | int | float) else value


# What still fits


def stand_in_tool(listed: Definition, approved: Definition) -> Definition | None:
    """Return the approved version of a changed tool, to be served in its place; None if calls by the approved version
    would fail.

    If the output schema has changed, the approved version is served without one: clients check results against it.
    """
    try:
        before, now = jsonrpc.fields(approved.value), jsonrpc.fields(listed.value)
        if not _compare(now.get("inputSchema"), before.get("inputSchema"), _takes):
            return None
        if _compare(now.get("outputSchema"), before.get("outputSchema"), _gives):
            return replace(listed, value=approved.value, hash=approved.hash)
    except (ValueError, RecursionError):
        return None
    before.pop("outputSchema", None)
    definition = jsonrpc.without_line_breaks(jsonrpc.encode(before))
    return replace(listed, value=definition, hash=hash_value(definition))


def serve_definition(tool: Tool, definition: Definition) -> Tool:
    """Return a tool with this definition in place of its own."""
    if definition.hash == tool.schema_hash:
        return tool
    return replace(tool, definition=definition.value, schema_hash=definition.hash, tokens=None)


def _compare(now: Raw | None, before: Raw | None, is_fit: Callable[[Any, Any, int], bool]) -> bool:
    if now is not None and before is not None and bytes(now) == bytes(before):
        return True
    values = [jsonrpc.decode_value(each) if each is not None else None for each in (now, before)]
    return is_fit(values[0], values[1], 0)


def _gives(now: Any, before: Any, level: int) -> bool:
    """Return whether results of a schema are results of the one before it."""
    return bool(_without_texts(now, level) == _without_texts(before, level))


def _takes(now: Any, before: Any, level: int) -> bool:
    """Return whether a schema takes every value that it took before. In doubt it does not."""
    if level > _MOST_LEVELS:
        raise RecursionError
    if not isinstance(now, dict) or not isinstance(before, dict):
        return bool(_in_order(now, "", level) == _in_order(before, "", level))
    keys = {key for key in (*now, *before) if key not in _TEXTS}
    return all(_takes_part(key, now.get(key), before.get(key), level + 1) for key in keys)


def _takes_part(key: str, now: Any, before: Any, level: int) -> bool:
    if key == "required":
        return set(map(repr, now or ())) <= set(map(repr, before or ()))
    if key == "enum" and isinstance(now, list) and isinstance(before, list):
        return set(map(repr, before)) <= set(map(repr, now))
    if key in _MAPS:
        old, new = before or {}, now or {}
        if not isinstance(old, dict) or not isinstance(new, dict):
            return False
        # A new optional property takes nothing away, and a name that is not listed any more may be refused.
        return all(name in new and _takes(new[name], each, level) for name, each in old.items())
    if key == "additionalProperties" and (now in (None, True) or now == before):
        return True
    if key == "items":
        return _takes(now, before, level)
    return bool(_without_texts(now, level) == _without_texts(before, level))


def _without_texts(schema: Any, level: int, *, is_map: bool = False) -> Any:
    """Return a schema without the keywords that refuse nothing. `is_map`: its keys are names, not keywords."""
    if level > _MOST_LEVELS:
        raise RecursionError
    if isinstance(schema, dict):
        kept = schema if is_map else {key: each for key, each in schema.items() if key not in _TEXTS}
        return {
            key: _without_texts(each, level + 1, is_map=not is_map and key in _MAPS | _CLOSED_MAPS)
            for key, each in kept.items()
        }
    if isinstance(schema, list):
        return [_without_texts(each, level + 1) for each in schema]
    return (type(schema).__name__, schema) if isinstance(schema, bool | int | float) else schema
