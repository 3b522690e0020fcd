"""MCP Apps (extension `io.modelcontextprotocol/ui`): which tools have a page, and who may call a tool, model or page.

A server names the page of a tool in the tool's definition. A host shows the page, and lets it call every tool of the
same connection whose visibility holds `app`, which is the default. Behind us all servers are one connection, and a call
of a page looks like any other (ext-apps#746). So what pages may call is decided by what the definitions say that leave
us (`write_meta`). ChatGPT's older keys, `openai/...`, say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from foretool.server.protocol import jsonrpc, translate, versions

_SCHEME: Final = "ui://"
"""Begins the URI of a page."""
_RESOURCE, _VISIBILITY = "resourceUri", "visibility"
_FLAT: Final = ("ui/resourceUri", "openai/outputTemplate")
"""Keys of `_meta` that name a page beside `ui`: the form of early drafts, and ChatGPT's."""
_PRIVATE, _WIDGET = "openai/visibility", "openai/widgetAccessible"

FOR_MODELS: Final = {"ui": {_VISIBILITY: ["model"]}}
"""`_meta` of a tool that no page may call."""


def shows_pages(capabilities: Mapping[str, Any]) -> bool:
    """Return whether a client with these capabilities shows pages."""
    return versions.UI in translate.served_extensions(capabilities)


def pages_of(definition: bytes) -> tuple[str, ...]:
    """Return the URIs of the pages that a tool's definition names."""
    return tuple(pages_in(_meta(definition)))


def pages_in(meta: Mapping[str, Any]) -> Iterator[str]:
    """Yield the URIs of the pages that the `_meta` of a definition or a result names."""
    for uri in (_ui(meta).get(_RESOURCE), *map(meta.get, _FLAT)):
        if isinstance(uri, str) and uri:
            yield uri


def is_for_model(definition: bytes) -> bool:
    """Return whether a model may see and call a tool; its server may offer it to its own page alone."""
    if definition.find(b"isibility") < 0:  # most definitions say nothing
        return True
    meta = _meta(definition)
    said = _ui(meta).get(_VISIBILITY)
    return meta.get(_PRIVATE) != "private" and not (isinstance(said, list) and "model" not in said)


def is_for_pages(definition: bytes) -> bool:
    """Return whether the pages of its server may call a tool."""
    said = _ui(_meta(definition)).get(_VISIBILITY)
    return not isinstance(said, list) or "app" in said


def write_meta(definition: bytes, *visibility: str, keeps_page: bool = True) -> dict[str, Any]:
    """Return the members of `_meta` that let a model (`model`), pages (`app`) or both call a tool, as its server says
    where none is given; None for a member that goes. `keeps_page`: the tool keeps its page."""
    meta = _meta(definition)
    ui = {key: value for key, value in _ui(meta).items() if keeps_page or key != _RESOURCE}
    if visibility:
        ui[_VISIBILITY] = list(visibility)
    gone = {} if keeps_page else {key: None for key in _FLAT if key in meta}
    return {"ui": ui or None, **gone, **(close_widget(definition) if visibility and "app" not in visibility else {})}


def close_widget(definition: bytes) -> dict[str, Any]:
    """Return the member of `_meta` that keeps ChatGPT's pages from calling a tool, where its server lets them."""
    return {_WIDGET: False} if _meta(definition).get(_WIDGET) is True else {}


def is_page(uri: str) -> bool:
    """Return whether a URI is that of a page."""
    return uri[: len(_SCHEME)].lower() == _SCHEME


def named_in(page: str, servers: Sequence[str]) -> str | None:
    """Return the server that the URI of a page names, as in `ui://bank/form`; None if it names none of these."""
    authority = page[len(_SCHEME) :].partition("/")[0].lower()
    return next((server for server in servers if server.lower() == authority), None)


def owner_of(page: str, naming: Sequence[str]) -> str | None:
    """Return the server that a page belongs to, among those whose tools name it (`naming`)."""
    return named_in(page, naming) or next(iter(naming), None)


def _meta(definition: bytes) -> Mapping[str, Any]:
    if definition.find(b'"_meta"') < 0:
        return {}
    try:
        return jsonrpc.plain_object(jsonrpc.fields(definition).get("_meta")) or {}
    except ValueError:
        return {}


def _ui(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    said = meta.get("ui")
    return said if isinstance(said, dict) else {}
