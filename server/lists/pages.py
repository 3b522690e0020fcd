"""What a list says of the pages of servers (MCP Apps), and which tools it has because of them.

A host shows the page of a tool only if its list has the tool, and looks up in the list what a page may call. Behind us
all servers are one connection, so what pages may call is decided by what the list says (`protocol.apps`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from foretool.retrieval.tokens import fill_budget
from foretool.server.catalog.catalog import Catalog
from foretool.server.protocol import apps
from foretool.server.trust.policy import Reach
from foretool.storage.records import Tool, ToolId

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
