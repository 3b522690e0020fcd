"""`discover_tools` and `call_tool`: their definitions, and the answers of the first (DESIGN section 4).

Everything here is a function of its arguments: the ranking, the catalog and the budget in, text and values out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from foretool.retrieval.ranking import Query, Ranked, Ranking
from foretool.retrieval.tokens import estimate
from foretool.server import jsonrpc, protocol
from foretool.server.catalog import Catalog
from foretool.server.jsonrpc import Raw, RpcError
from foretool.server.names import CALL, DISCOVER
from foretool.storage.records import Level, Match, Tool, ToolId

MATCHES: Final = 12
WIDE: Final = 25
"""Matches shown when the caller says that what it sees does not suffice."""
MOST: Final = 50
CARD_TOKENS: Final = 12
"""What a match costs beside its words and its schema."""
WORST_SUFFICIENCY: Final = 0.5
"""Below this self-rating the search widens (ITR section 4, threshold tau)."""

INSTRUCTIONS: Final = (
    "The tool list here is partial: many more tools stand behind it. "
    "When none of the listed ones fits, describe the task to discover_tools, then call what it finds by name or "
    "through call_tool."
)


def instructions(upstreams: Mapping[str, str], budget: int) -> str:
    """Our `instructions`, then those of the upstreams, each under its name, within `budget` tokens together."""
    parts = [INSTRUCTIONS]
    left = budget - estimate(INSTRUCTIONS)
    for name, text in upstreams.items():
        share = f"## {name}\n{text.strip()}"
        if text.strip() and (cost := estimate(share)) <= left:
            parts.append(share)
            left -= cost
    return "\n\n".join(parts)


def definitions(counts: Mapping[str, int]) -> list[tuple[ToolId, Raw]]:
    """The definitions of our two tools. `counts`: tools per upstream, whose names go into the summary."""
    return [(CALL, jsonrpc.raw(_CALL)), (DISCOVER, jsonrpc.raw({**_DISCOVER, "description": _description(counts)}))]


_META = {protocol.ALWAYS_LOAD: True}

_CALL: Final = {
    "name": CALL,
    "description": "Calls any tool by name with its arguments, listed or found by discover_tools.",
    "inputSchema": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}, "handle": {"type": "string"}},
        "required": ["name"],
    },
    "annotations": {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True},
    "_meta": _META,
}

_DISCOVER: Final = {
    "name": DISCOVER,
    "inputSchema": {
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "what to do; one need per line"},
            "names": {
                "type": "array",
                "items": {"type": "string"},
                "description": "names whose schemas you want",
            },
            "sufficiency": {
                "type": "number",
                "minimum": 0,
                "maximum": 1,
                "description": "how far listed tools suffice",
            },
            "limit": {"type": "integer", "maximum": MOST},
            "handle": {"type": "string", "description": "of your last answer"},
        },
    },
    "outputSchema": {
        "type": "object",
        "properties": {"confidence": {"type": "string"}, "matches": {"type": "array"}},
        "required": ["confidence", "matches"],
    },
    "annotations": {"readOnlyHint": True},
    "_meta": _META,
}

_SUMMARY_CHARS = 200


def _description(counts: Mapping[str, int]) -> str:
    shown = {name: count for name, count in counts.items() if count}
    text = (
        f"Finds tools for a task among {sum(shown.values())} of {len(shown)} servers; your list is partial. "
        "Answers carry schemas."
    )
    named = ""
    for place, name in enumerate(sorted(shown, key=lambda name: (-shown[name], name))):
        longer = f"{named}, {name}" if named else name
        if len(longer) > _SUMMARY_CHARS:
            named += f" and {len(shown) - place} more"
            break
        named = longer
    return f"{text} Servers: {named}." if named else text


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """The arguments of `discover_tools`."""

    task: str = ""
    names: tuple[str, ...] = ()
    sufficiency: float | None = None
    limit: int | None = None
    handle: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(line.strip() for line in self.task.splitlines() if line.strip())

    @property
    def wanted(self) -> int:
        if self.limit is not None:
            return max(1, min(self.limit, MOST))
        wide = self.sufficiency is not None and self.sufficiency < WORST_SUFFICIENCY
        return WIDE if wide else MATCHES


_arguments = msgspec.json.Decoder(Arguments, strict=False)


def read_arguments(value: Raw | bytes) -> Arguments:
    """Raises `RpcError` saying what is wrong."""
    # Models send null for what they leave out.
    try:
        given = {name: each for name, each in jsonrpc.fields(value).items() if bytes(each) != b"null"}
        return _arguments.decode(jsonrpc.encode(given))
    except msgspec.ValidationError as error:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"discover_tools: {error}; see its inputSchema") from None
    except msgspec.DecodeError:
        # Only the fast decoder refuses lone surrogates; nothing in them can be searched for.
        plain = jsonrpc.plain(value)
        return Arguments(task=str(plain.get("task", "")).encode(errors="replace").decode())
    except ValueError as error:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"discover_tools: {error}; see its inputSchema") from None


class Answer(Struct, frozen=True):
    """What `discover_tools` says."""

    level: Level
    text: str
    structured: dict[str, Any]
    matches: tuple[Match, ...]
    tokens: int


def with_handle(answer: Answer, handle: str) -> Answer:
    """The answer with the handle of the conversation it belongs to."""
    text = f"{answer.text}\nhandle: {handle} (pass it on to discover_tools and call_tool)"
    structured = {**answer.structured, "handle": handle}
    return Answer(answer.level, text, structured, answer.matches, answer.tokens)


Visible = Callable[[ToolId], bool]
Admits = Callable[[str], bool]


def answer(
    arguments: Arguments,
    ranking: Ranking,
    level: Level,
    catalog: Catalog,
    visible: Visible,
    admits: Admits,
    budget: int,
    cap: int,
) -> Answer:
    """Matches best first, with ready-to-call schemas while `budget` tokens last, `cap` a schema; then advice.

    `visible`: whether the client has a tool in its list already; `admits`: whether its profile has an upstream.
    Tools asked for by `names` carry their whole schema.
    """
    asked, unknown = _asked(arguments.names, catalog, admits)
    chosen = [*asked, *(each for each in ranking.ranked if each.tool not in {one.tool for one in asked})]
    chosen = chosen[: max(arguments.wanted, len(asked))]
    if not chosen:
        return _nothing(catalog, unknown, admits, budget)
    known = [(tool, each) for each in chosen if (tool := catalog.get(each.tool)) is not None]
    cards = [_card(tool, each, visible(tool.id)) for tool, each in known]
    whole = {each.tool for each in asked}
    said = "\n".join(f"{card['name']} {card['description']} {card['why']}" for card in cards)
    left = budget - estimate(said) - CARD_TOKENS * len(cards)
    for (tool, _), card in zip(known, cards, strict=True):
        left = _add_schema(card, tool, left, cap, whole=tool.id in whole)
    level = "high" if asked and not unknown else level
    structured = {"confidence": level, "matches": cards, "advice": _advice(level, unknown)}
    text = _text(structured)
    matches = tuple(Match(each.tool, rank, each.score, each.parts) for rank, each in enumerate(chosen, 1))
    return Answer(level, text, structured, matches, estimate(text))


def _asked(names: Sequence[str], catalog: Catalog, admits: Admits) -> tuple[list[Ranked], list[str]]:
    found: list[Ranked] = []
    unknown: list[str] = []
    for name in names:
        tool = catalog.find(name)
        if tool is not None and admits(tool.upstream):
            found.append(Ranked(tool.id, 1.0, {"name": 1.0}, ("name",)))
            continue
        unknown.append(name)
        near = close_names(name, catalog, admits)
        found += [Ranked(one, 0.5, {"name": 0.5}, (f"close to {name!r}",)) for one in near[:3]]
    return list({each.tool: each for each in found}.values()), unknown


def close_names(name: str, catalog: Catalog, admits: Admits) -> list[ToolId]:
    """Tools of the profile whose names are close to one that no tool has, likeliest first."""
    near, _ = catalog.near(name)
    return [one for one in near if (tool := catalog.get(one)) is not None and admits(tool.upstream)]


SHEETS: Final = 1024
"""Definitions of which what the answers say is kept."""


@lru_cache(maxsize=SHEETS)
def _summary(definition: bytes) -> str:
    # Not at the top: no list waits for what only searches need.
    from foretool.retrieval.document import document, summary_line

    return summary_line(document(Tool(ToolId(""), "", "", definition, "")))


@lru_cache(maxsize=SHEETS)
def _schema(definition: bytes) -> tuple[Raw, int]:
    """The input schema, and its tokens."""
    schema = jsonrpc.fields(definition)["inputSchema"]
    return schema, estimate(bytes(schema).decode())


@lru_cache(maxsize=SHEETS)
def _trimmed(definition: bytes) -> tuple[Raw, int]:
    trimmed = jsonrpc.raw(trim(jsonrpc.plain(_schema(definition)[0])))
    return trimmed, estimate(bytes(trimmed).decode())


def _card(tool: Tool, ranked: Ranked, listed: bool) -> dict[str, Any]:
    card = {"name": tool.id, "description": _summary(tool.definition), "why": "; ".join(ranked.reasons)}
    return {**card, "listed": True} if listed else card


def _add_schema(card: dict[str, Any], tool: Tool, left: int, cap: int, *, whole: bool) -> int:
    """Put the schema into the card if it fits, trimmed if only that fits; returns the tokens left."""
    if left < CARD_TOKENS and not whole:
        return left
    schema, tokens = _schema(tool.definition)
    if whole or tokens <= min(left, cap):
        card["inputSchema"] = schema
        return left - tokens
    if tokens > cap:
        trimmed, tokens = _trimmed(tool.definition)
        if tokens <= left:
            card["inputSchema"] = trimmed
            card["trimmed"] = f'ask discover_tools(names=["{tool.id}"]) for the whole schema'
            return left - tokens
    return left


def trim(schema: dict[str, Any], depth: int = 2) -> dict[str, Any]:
    """A schema cut to what a first call needs: names, types, the first values of an enum, what is required."""
    kept: dict[str, Any] = {key: schema[key] for key in ("type", "required", "const") if key in schema}
    if isinstance(schema.get("enum"), list):
        kept["enum"] = schema["enum"][:12]
    if isinstance(schema.get("description"), str) and depth < 2:
        kept["description"] = schema["description"][:60]
    properties = schema.get("properties")
    if isinstance(properties, dict) and depth > 0:
        required = schema.get("required")
        first = [name for name in required if name in properties] if isinstance(required, list) else []
        names = dict.fromkeys([*first, *properties])
        kept["properties"] = {
            name: trim(properties[name], depth - 1) for name in list(names)[:20] if isinstance(properties[name], dict)
        }
    if isinstance(schema.get("items"), dict) and depth > 0:
        kept["items"] = trim(schema["items"], depth - 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and depth > 0:
            kept[key] = [trim(one, depth - 1) for one in schema[key][:4] if isinstance(one, dict)]
    return kept


def _advice(level: Level, unknown: Sequence[str]) -> str:
    missing = f"No tool is called {', '.join(map(repr, unknown))}. " if unknown else ""
    if level in ("low", "none"):
        return missing + "None fits clearly: describe the task in other words, or go on without a tool."
    return missing + "Call a match by its name, or call_tool(name, arguments) where it is not listed."


def _nothing(catalog: Catalog, unknown: Sequence[str], admits: Admits, budget: int) -> Answer:
    """No match: which servers there are, so that the next question can be a better one."""
    servers: dict[str, str] = {}
    left = budget
    shown = {name: count for name, count in catalog.upstreams().items() if count and admits(name)}
    for name, count in shown.items():
        text = " ".join(catalog.server_text(name).split())[:100]
        entry = f"{count} tools" + (f": {text}" if text else "")
        left -= estimate(f"{name} {entry}") + 4
        if left < 0:
            servers["..."] = f"{len(shown) - len(servers)} more servers"
            break
        servers[name] = entry
    advice = _advice("none", unknown).replace("None fits clearly", "Nothing fits")
    structured = {"confidence": "none", "matches": [], "servers": servers, "advice": advice}
    text = _text(structured)
    return Answer("none", text, structured, (), estimate(text))


def _text(structured: Mapping[str, Any]) -> str:
    lines = [f"confidence: {structured['confidence']}"]
    for place, card in enumerate(structured["matches"], 1):
        listed = " (listed)" if card.get("listed") else ""
        why = f" [{card['why']}]" if card["why"] else ""
        lines.append(f"{place}. {card['name']}{listed}: {card['description']}{why}")
        if "inputSchema" in card:
            lines.append("   " + bytes(card["inputSchema"]).decode())
        if "trimmed" in card:
            lines.append(f"   trimmed: {card['trimmed']}")
    lines += [f"{name}: {entry}" for name, entry in structured.get("servers", {}).items()]
    lines.append(structured["advice"])
    return "\n".join(lines)


def query(arguments: Arguments, history: Sequence[ToolId], servers: Sequence[str]) -> Query:
    return Query(arguments.lines, arguments.names, tuple(history), tuple(servers))


def argument_errors(schema: Mapping[str, Any], arguments: Any) -> list[str]:
    """What is wrong with the arguments of a call, one line each, at most five; [] when nothing is, or when the schema
    itself cannot be used."""
    import jsonschema_rs  # 5 MB that only callers of `call_tool` need

    try:
        validator = jsonschema_rs.validator_for(dict(schema), offline=True)
        errors = list(validator.iter_errors(arguments))[:5]
    except (ValueError, jsonschema_rs.ValidationError):
        return []  # an upstream's schema that is none must not stand between the client and the tool
    return [f"{'.'.join(map(str, error.instance_path)) or 'arguments'}: {error.message}" for error in errors]
