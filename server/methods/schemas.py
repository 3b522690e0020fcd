"""The input schemas in an answer: whole or trimmed while the answer's tokens last, with shared definitions once.

Pydantic and similar libraries put the models of a server into the `$defs` of each of its tools. If two schemas of one
answer have the same definition, it moves to `$defs` of the answer, where references `#/$defs/Name` still find it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from foretool.retrieval.tokens import estimate
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.storage.records import Tool

KEPT: Final = 4096
"""How many definitions the caches of schemas and summaries keep."""
LEAST: Final = 12
"""With fewer tokens left, no schema is considered."""
MAX_PROPERTIES, MAX_VALUES, MAX_MEMBERS, MAX_TEXT = 20, 12, 4, 60
"""The most that a trimmed schema keeps: properties, enum values, members of a union, characters of a description."""

_REFERRED = re.compile(rb'"#/\$defs/([^"/]+)')


class _Parts(Struct, frozen=True):
    """An input schema, with its `$defs` separated from the rest."""

    whole: Raw
    tokens: int
    body: Raw
    """The schema without `$defs`."""
    body_tokens: int
    defs: dict[str, Raw]
    costs: dict[str, int]


class Schemas:
    """The schemas of one answer, in the order in which they are asked for."""

    def __init__(self, left: int, cap: int) -> None:
        self.left = left
        """Tokens left; only schemas of tools that were asked for by name can bring it below 0."""
        self._cap = cap
        self._said: dict[str, Raw] = {}
        self._cards: list[tuple[dict[str, Any], _Parts]] = []

    def add(self, card: dict[str, Any], tool: Tool, *, whole: bool = False) -> None:
        """Put the schema into the card if it fits, trimmed if only that fits. `whole`: put it in whatever it costs."""
        if self.left < LEAST and not whole:
            return
        parts = _parts(tool.definition, tool.tokens)
        apart = not any(name in self._said and self._said[name] != text for name, text in parts.defs.items())
        new = sum(cost for name, cost in parts.costs.items() if name not in self._said)
        cost = parts.body_tokens + new if apart else parts.tokens
        if whole or cost <= min(self.left, self._cap):
            card["inputSchema"] = parts.whole
            self.left -= cost
            if apart and parts.defs:
                self._said |= parts.defs
                self._cards.append((card, parts))
        elif cost > self._cap:
            trimmed, tokens = _trimmed(tool.definition)
            if tokens <= self.left:
                card["inputSchema"] = trimmed
                card["trimmed"] = f'ask discover_tools(names=["{tool.id}"]) for the whole schema'
                self.left -= tokens

    def shared(self) -> dict[str, Raw]:
        """Take the definitions that several schemas share out of them and return these; call it once, at the end."""
        users = Counter(name for _, parts in self._cards for name in parts.defs)
        found = _closed({name: self._said[name] for name, count in users.items() if count > 1})
        for card, parts in self._cards:
            own = {name: text for name, text in parts.defs.items() if name not in found}
            if len(own) < len(parts.defs):
                card["inputSchema"] = jsonrpc.raw({**jsonrpc.fields(parts.body), **({"$defs": own} if own else {})})
        return found


def _closed(found: dict[str, Raw]) -> dict[str, Raw]:
    """Drop the definitions that refer to one outside of them: a client would look for it in the wrong place."""
    while open_ends := [
        name for name, text in found.items() if not found.keys() >= {one.decode() for one in _REFERRED.findall(text)}
    ]:
        for name in open_ends:
            del found[name]
    return found


@lru_cache(maxsize=KEPT)
def _parts(definition: bytes, counted: int | None = None) -> _Parts:
    schema = jsonrpc.fields(definition)["inputSchema"]
    # The schema's share of the counted tokens: estimating them again would take most of a search.
    share = len(bytes(schema)) / len(definition)
    tokens = round(share * counted) if counted else estimate(bytes(schema).decode())
    members = jsonrpc.fields(schema) if b'"$defs"' in definition else {}
    try:
        defs = jsonrpc.fields(members.pop("$defs", jsonrpc.UNSET))
    except ValueError:
        defs = {}
    if not defs:
        return _Parts(schema, tokens, schema, tokens, {}, {})
    body = jsonrpc.raw(members)
    costs = {name: estimate(f"{name}{bytes(text).decode()}") for name, text in defs.items()}
    return _Parts(schema, tokens, body, estimate(bytes(body).decode()), defs, costs)


@lru_cache(maxsize=KEPT)
def _trimmed(definition: bytes) -> tuple[Raw, int]:
    trimmed = jsonrpc.raw(trim(jsonrpc.plain(_parts(definition).whole)))
    return trimmed, estimate(bytes(trimmed).decode())


def trim(schema: dict[str, Any], depth: int = 2, root: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Cut a schema to what a first call needs: names, types, the first values of an enum, what is required. References
    into the schema itself are followed down to `depth`."""
    root = schema if root is None else root
    schema = _followed(schema, root)
    kept: dict[str, Any] = {key: schema[key] for key in ("type", "required", "const") if key in schema}
    if isinstance(schema.get("enum"), list):
        kept["enum"] = schema["enum"][:MAX_VALUES]
    if isinstance(schema.get("description"), str) and depth < 2:
        kept["description"] = schema["description"][:MAX_TEXT]
    properties = schema.get("properties")
    if isinstance(properties, dict) and depth > 0:
        required = schema.get("required")
        first = [name for name in required if name in properties] if isinstance(required, list) else []
        names = dict.fromkeys([*first, *properties])
        kept["properties"] = {
            name: trim(properties[name], depth - 1, root)
            for name in list(names)[:MAX_PROPERTIES]
            if isinstance(properties[name], dict)
        }
    if isinstance(schema.get("items"), dict) and depth > 0:
        kept["items"] = trim(schema["items"], depth - 1, root)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and depth > 0:
            kept[key] = [trim(one, depth - 1, root) for one in schema[key][:MAX_MEMBERS] if isinstance(one, dict)]
    return kept


def _followed(schema: dict[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Merge into a schema what its local `$ref` points at; its own members win. One step only, so cycles end."""
    path = schema.get("$ref")
    if not isinstance(path, str) or not path.startswith("#/"):
        return schema
    found: Any = root
    for step in path[2:].split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return {**found, **schema} if isinstance(found, dict) else schema
