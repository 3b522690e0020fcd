"""What an answer says of a tool: one line, and its input schema, whole or trimmed while the answer's tokens last, with
shared definitions once.

What says nothing to a caller is left out of both (`plain_schemas`).

Pydantic and similar libraries put the models of a server into the `$defs` of each of its tools. If two schemas of one
answer have the same definition, it moves to `$defs` of the answer, where references `#/$defs/Name` still find it.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from foretool.retrieval.tokens import estimate
from foretool.server.catalog.signatures import signature
from foretool.server.discovery.plain_schemas import trim, without_noise
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.storage.records import Tool, ToolId

_KEPT: Final = 4096
"""How many definitions the caches of lines and schemas keep."""
CLAUSE: Final = 70
"""Characters of what a tool does where it is only named."""


class _Described(Struct, frozen=True):
    """The members of a definition that describe a tool in words."""

    name: str = ""
    title: str | None = None
    description: str | None = None


_described = msgspec.json.Decoder(_Described)


def summarize(definition: bytes, most: int = 0) -> str:
    """Return the first sentence of a tool's description, or else its title, in at most `most` characters; 0 stands for
    the usual 120, which is the most."""
    # Imported here because only searches need it, and no list should wait for it.
    from foretool.retrieval.document import MAX_SUMMARY, cut_at_word

    return cut_at_word(_first_sentence(definition), most or MAX_SUMMARY)


def describe(definition: bytes, most: int = 0) -> str:
    """Return the summary of a tool and what its description warns of: who reads nothing else must not miss that."""
    from foretool.retrieval.document import cut_at_word

    said, warning = summarize(definition, most), _warning(definition)
    if not warning or warning in said:
        return said
    return f"{said if said.endswith(('.', '!', '?', '…')) else f'{said}.'} {cut_at_word(warning, CLAUSE)}"


@lru_cache(maxsize=_KEPT)
def _warning(definition: bytes) -> str:
    from foretool.retrieval.cautions import find_warning

    return find_warning(jsonrpc.member(Raw(definition), "description") or "")


@lru_cache(maxsize=_KEPT)
def _first_sentence(definition: bytes) -> str:
    """Return the first sentence, one character longer than what is shown where more follows."""
    from foretool.retrieval.document import MAX_SUMMARY, document, summary_line, whole_sentence

    try:
        said = _described.decode(definition)
    except msgspec.DecodeError:
        text = summary_line(document(Tool(ToolId(""), "", "", definition, "")))
    else:
        text = (said.description or "").strip() or (said.title or "").strip()
    return whole_sentence(text)[: MAX_SUMMARY + 1]


_LEAST: Final = 12
"""With fewer tokens left, no schema is considered."""
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
        """Put the schema into the card if it fits, trimmed if only that fits, else what a call needs at least. `whole`:
        put it in whatever it costs."""
        if self.left >= _LEAST or whole:
            self._fit(card, tool, whole=whole)
        if "inputSchema" not in card:
            card["call"] = signature(tool, marks_optional=True) or tool.id
            card["trimmed"] = f'its schema is left out; discover_tools(names=["{tool.id}"]) shows it'

    def _fit(self, card: dict[str, Any], tool: Tool, *, whole: bool) -> None:
        parts = _parts(tool.definition)
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
            for trimmed, tokens in (_trimmed(tool.definition, depth) for depth in (2, 1)):
                if tokens <= self.left:
                    card["inputSchema"] = trimmed
                    card["trimmed"] = f'discover_tools(names=["{tool.id}"]) shows the whole schema'
                    self.left -= tokens
                    return

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


@lru_cache(maxsize=_KEPT)
def _parts(definition: bytes) -> _Parts:
    schema = jsonrpc.raw(without_noise(jsonrpc.decode_value(jsonrpc.fields(definition)["inputSchema"])))
    tokens = estimate(bytes(schema).decode())
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


@lru_cache(maxsize=_KEPT)
def _trimmed(definition: bytes, depth: int) -> tuple[Raw, int]:
    trimmed = jsonrpc.raw(trim(jsonrpc.decode_value(_parts(definition).whole), depth))
    return trimmed, estimate(bytes(trimmed).decode())
