"""The definitions of our own tools, `discover_tools`, `call_tool` and `call_tool_write`, as clients list them.

A client asks its user before it calls a tool, or does not, by the tool's annotations, and "always allow" holds for the
tool. So `call_tool` claims to be read-only exactly where it runs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from foretool.retrieval.tokens import estimate, fill_budget
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.names import CALL, CALL_TOOLS, CALL_WRITE, DISCOVER
from foretool.server.catalog.signatures import name_calls, signature, split_call
from foretool.server.config.settings import Bridges
from foretool.server.lists.order import NameCost
from foretool.server.protocol import apps, jsonrpc, versions
from foretool.server.protocol.apps import FOR_MODELS
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.trust.policy import Reach
from foretool.storage.records import Tool, ToolId

MOST: Final = 50
"""Matches that one call of `discover_tools` may ask for."""
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


_DISCOVER: Final = {
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
            "sufficiency": {
                "type": "number",
                "minimum": 0,
                "maximum": 1,
                "description": "do the tools you see suffice? 0 no, 1 yes",
            },
            "limit": {"type": "integer", "maximum": MOST},
            "handle": {"type": "string", "description": "from your last answer"},
        },
    },
    "annotations": {"readOnlyHint": True},
}


def definitions(
    counts: Mapping[str, int],
    bridges: Bridges = "by_risk",
    *,
    trusts_some: bool = False,
    unlisted: int = 0,
    is_whole: bool = False,
    for_models: bool = False,
    offers_call_tools: bool = False,
) -> list[tuple[ToolId, Raw]]:
    """Return the definitions of our own tools. `counts`: tools by upstream; the description names the upstreams.
    `trusts_some`: a rule may let `call_tool` run what is not read-only. `unlisted`: how many upstreams have not listed
    their tools yet; `is_whole`: all tools stand in the list; `for_models`: they say that no page may call them;
    `offers_call_tools`: `call_tools` is among them."""
    meta = _META | (FOR_MODELS if for_models else {})
    description = _description(counts, unlisted, is_whole=is_whole)
    discover = (DISCOVER, jsonrpc.raw({**_DISCOVER, "description": description, "_meta": meta}))
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
    text = f"Finds tools for a task among {_count(tools, 'tool')} on {_count(len(shown), 'server')}"
    if unlisted and not shown:
        text = f"Finds tools for a task; {_count(unlisted, 'server')} not listed yet"
    elif unlisted:
        text += f" so far ({_count(unlisted, 'server')} not listed yet)"
    # While servers are missing, nobody can say that a list has everything.
    text += "; your list has them all. " if is_whole and not unlisted else "; your list is partial. "
    text += "Answers say how to call them."
    named = ""
    for place, name in enumerate(sorted(shown, key=lambda name: (-shown[name], name))):
        longer = f"{named}, {name}" if named else name
        if len(longer) > _SUMMARY_CHARS:
            named += f" and {len(shown) - place} more"
            break
        named = longer
    return f"{text} Servers: {named}." if named else text


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


# What a list says of the pages of servers (MCP Apps), and which tools it has because of them.
#
# A host shows the page of a tool only if its list has the tool, and looks up in the list what a page may call. Behind
# us all servers are one connection, so what pages may call is decided by what the list says (`protocol.apps`).


PAGES_SHARE: Final = 0.5
"""The part of a list in which tools with pages come first: a server with hundreds of them must not fill it alone."""
MOST_TOOLS: Final = 100
"""Tools that a list of all may have where it is over `list_tokens`, and that a list may have for pages; some clients
refuse lists of more than 128."""


def has_page(catalog: Catalog, tool: ToolId) -> bool:
    """Return whether a tool has a page; a host shows those of listed tools alone."""
    known = catalog.get(tool)
    return known is not None and bool(apps.pages_of(known.definition))


def put_pages_first(
    ranked: tuple[ToolId, ...], catalog: Catalog, reach: Reach, competes: Callable[[Tool], bool]
) -> tuple[ToolId, ...]:
    """Put tools with pages first where the client shows pages, for it shows those of listed tools alone. They come
    first for a part of the list; a server may have any number of them."""
    if not reach.profile.shows_pages:
        return ranked
    places = {tool: place for place, tool in enumerate(ranked)}
    servers = [name for name in catalog.upstreams() if name in reach.page_servers]
    paged = [
        tool.id
        for name in servers
        for tool in catalog.now.server(name).in_order
        if apps.pages_of(tool.definition) and competes(tool)
    ]
    paged.sort(key=lambda tool: places.get(tool, len(places)))
    first = fill_budget(paged, catalog.tokens, int(PAGES_SHARE * reach.profile.list_tokens))
    return tuple(dict.fromkeys((*first, *ranked, *paged)))


def tools_for_pages(catalog: Catalog, reach: Reach) -> list[Tool]:
    """Return the tools that the list has for the page of their server, whether or not models see them: hosts look up in
    the list what a page may call. What is for pages alone comes first; for what a search finds as well there are as
    many tokens as for the list."""
    if not reach.profile.shows_pages or len(reach.page_servers) != 1:
        return []
    (server,) = reach.page_servers
    callable_tools = list(filter(reach.lets_pages_call, catalog.now.server(server).in_order))
    alone = [tool for tool in callable_tools if not apps.is_for_model(tool.definition)]
    others = {tool.id: tool for tool in callable_tools if apps.is_for_model(tool.definition)}
    fitting = fill_budget(others, catalog.tokens, reach.profile.list_tokens)
    return [*alone, *map(others.__getitem__, fitting)][:MOST_TOOLS]


def page_meta(catalog: Catalog, reach: Reach, tool: Tool) -> dict[str, Any]:
    """Return what the list says of pages in the `_meta` of a tool, where that is not what its server says.

    A page may call each tool of the same connection whose visibility holds `app`, as it does where nothing is said.
    Behind us all servers are one connection, so the tools of servers without pages are for models alone. Where several
    have pages, all are: nobody can tell whose page calls. A client that does not show pages gets what servers with
    pages say of their own tools.
    """
    shows_pages, servers = reach.profile.shows_pages, reach.page_servers
    is_only = servers == {tool.upstream}
    if tool.upstream not in servers:
        return apps.write_meta(tool.definition, "model") if servers or shows_pages else {}
    if not shows_pages:
        return {} if is_only else apps.close_widget(tool.definition)
    is_own = all(
        apps.owner_of(page, list(filter(reach.admits, catalog.now.servers_naming(page)))) == tool.upstream
        for page in apps.pages_of(tool.definition)
    )
    if is_own and is_only:
        return {}
    return apps.write_meta(tool.definition, *(() if is_only else ("model",)), keeps_page=is_own)
