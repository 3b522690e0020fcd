"""The definitions of our own tools, `discover_tools`, `call_tool` and `call_tool_write`, as clients list them.

A client asks its user before it calls a tool, or does not, by the tool's annotations, and "always allow" holds for the
tool. So `call_tool` claims to be read-only exactly where it runs nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from foretool.retrieval.tokens import estimate
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.names import CALL, CALL_TOOLS, CALL_WRITE, DISCOVER
from foretool.server.catalog.signatures import name_calls, signature, split_call
from foretool.server.config.errors import plural
from foretool.server.config.settings import Bridges
from foretool.server.lists.order import NameCost
from foretool.server.protocol import jsonrpc, versions
from foretool.server.protocol.apps import FOR_MODELS
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.trust.policy import Reach
from foretool.storage.records import Tool, ToolId

_SUMMARY_CHARS: Final = 200
"""Characters of server names in the description of `discover_tools`."""

_NAMED: Final = "Some of them"
"""Stands before the names of tools in the description of a bridge."""

_META: Final[dict[str, Any]] = {versions.ALWAYS_LOAD: True}

_READS: Final = {"readOnlyHint": True}
_WRITES: Final = {"readOnlyHint": False, "destructiveHint": True}


def _bridge(
    name: ToolId, description: str, annotations: Mapping[str, bool], meta: Mapping[str, Any]
) -> tuple[ToolId, Raw]:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}, "handle": {"type": "string"}},
        "required": ["name"],
    }
    members = {"name": name, "description": description, "inputSchema": schema, "annotations": annotations}
    return name, jsonrpc.raw({**members, "_meta": meta})


_EXAMPLE: Final = (
    '[{"name": "list", "arguments": {"kind": "open"}}, {"name": "read", "for_each": "$.1.items[:3]", "arguments":'
    ' {"id": "$.item.id"}}]'
)


def _call_tools(what: str, annotations: Mapping[str, bool], meta: Mapping[str, Any]) -> tuple[ToolId, Raw]:
    call = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}, "for_each": {"type": "string"}},
        "required": ["name"],
    }
    members = {
        "name": CALL_TOOLS,
        "description": (
            f"Runs up to 20 calls of {what} in one turn, one after the other: {_EXAMPLE}. Values of earlier results:"
            ' "$.1.items[0].name" as an argument, "{$.1.name}" within a text. for_each calls once for each value of a'
            ' list. Only the last result comes back, or what return names, as in ["$.1.items.length()",'
            " \"$.2[*]['id','title']\"]. Do not guess paths: use it where you know what results look like."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "calls": {"type": "array", "items": call},
                "return": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["calls"],
        },
        "annotations": annotations,
        "_meta": meta,
    }
    return CALL_TOOLS, jsonrpc.raw(members)


_DISCOVER: Final[dict[str, Any]] = {
    "name": DISCOVER,
    "inputSchema": {
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "what you want to do, one need a line"},
            "names": {
                "type": "array",
                "items": {"type": "string"},
                "description": "tools whose arguments you want to see",
            },
            "handle": {"type": "string", "description": "the one at the end of the last result, if any"},
        },
    },
    "annotations": {"readOnlyHint": True},
}


_SUFFICIENCY: Final = {
    "type": "number",
    "minimum": 0,
    "maximum": 1,
    "description": "how well the tools that you have suffice for the task, from 0 (not at all) to 1",
}
"""What is offered in a step of an agent alone, whose caller widens the step by it: beside a list, small models fill in
any number."""


def definitions(
    counts: Mapping[str, int],
    bridges: Bridges = "by_risk",
    *,
    trusts_some: bool = False,
    unlisted: int = 0,
    is_whole: bool = False,
    for_models: bool = False,
    offers_call_tools: bool = False,
    rates_tools: bool = False,
) -> list[tuple[ToolId, Raw]]:
    """Return the definitions of our own tools. `counts`: tools by upstream; the description names the upstreams.
    `trusts_some`: a rule may let `call_tool` run what is not read-only. `unlisted`: how many upstreams have not listed
    their tools yet; `is_whole`: all tools stand in the list; `for_models`: they say that no page may call them;
    `offers_call_tools`: `call_tools` is among them; `rates_tools`: whether `discover_tools` asks how well the tools
    suffice."""
    meta = _META | (FOR_MODELS if for_models else {})
    description = _description(counts, unlisted, is_whole=is_whole)
    schema = _DISCOVER["inputSchema"]
    if rates_tools:
        schema = {**schema, "properties": {**schema["properties"], "sufficiency": _SUFFICIENCY}}
    members = {**_DISCOVER, "inputSchema": schema, "description": description, "_meta": meta}
    discover = (DISCOVER, jsonrpc.raw(members))
    found = "give its name and arguments, as discover_tools shows them."
    if bridges == "one":
        several = [_call_tools("tools", _WRITES, meta)] if offers_call_tools else []
        return [_bridge(CALL, f"Runs a tool: {found}", _WRITES, meta), *several, discover]
    reads = "only reads or is trusted" if trusts_some else "only reads"
    call = _bridge(CALL, f"Runs a tool that {reads}: {found}", _WRITES if trusts_some else _READS, meta)
    several = (
        [_call_tools("tools that call_tool runs", _WRITES if trusts_some else _READS, meta)]
        if offers_call_tools
        else []
    )
    write = _bridge(CALL_WRITE, f"Runs a tool that may change something: {found}", _WRITES, meta)
    return [call, write, *several, discover]


def name_tools(definitions: dict[ToolId, Raw], named: Sequence[ToolId], catalog: Catalog, reach: Reach) -> None:
    """Name tools that a list cannot define in the definitions of the bridges that run them for one profile."""
    tools = [tool for tool in filter(None, map(catalog.get, named)) if reach.finds(tool)]
    for bridge in (CALL, CALL_WRITE):
        calls = [signature(tool) for tool in tools if reach.verdict(tool).bridge == bridge]
        if calls and bridge in definitions:
            members = jsonrpc.fields(definitions[bridge])
            text = jsonrpc.text(members["description"])
            definitions[bridge] = jsonrpc.raw({**members, "description": f"{text} {name_calls(_NAMED, calls)}."})


def name_cost(tool: Tool | None) -> NameCost:
    """Return the estimated tokens of a tool's signature among others; nothing for a tool that has none."""
    if tool is None or not (call := signature(tool)):
        return NameCost()
    prefix, rest = split_call(call)
    return NameCost(prefix, estimate(f"{prefix}{{}}") if prefix else 0, estimate(rest))


def _description(counts: Mapping[str, int], unlisted: int, *, is_whole: bool) -> str:
    """Say how many tools and servers can be searched, and name the servers with the most tools."""
    shown = {name: count for name, count in counts.items() if count}
    tools = sum(shown.values())
    text = f"Finds tools for a task among {plural(tools, 'tool')} on {plural(len(shown), 'server')}"
    if unlisted and not shown:
        text = f"Finds tools for a task; {plural(unlisted, 'server')} not listed yet"
    elif unlisted:
        text += f" so far ({plural(unlisted, 'server')} not listed yet)"
    # While servers are missing, nobody can say that a list has everything.
    text += (
        "; your list has them all: call them by their names. "
        if is_whole and not unlisted
        else "; your list is partial. "
    )
    text += "Answers say how to call them."
    named = ""
    for place, name in enumerate(sorted(shown, key=lambda name: (-shown[name], name))):
        longer = f"{named}, {name}" if named else name
        if len(longer) > _SUMMARY_CHARS:
            named += f" and {len(shown) - place} more"
            break
        named = longer
    return f"{text} Servers: {named}." if named else text
