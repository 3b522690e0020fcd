"""All tools for APIs whose models search deferred tools by themselves, with our ranking behind that search.

    deferred = DeferredTools(ft)
    reply = client.messages.create(tools=deferred.anthropic, ...)      # Anthropic: Messages, `defer_loading`
    block = await deferred.answer_anthropic(tool_use)                  # a `tool_result` with `tool_reference` blocks
    reply = client.responses.create(tools=deferred.openai, ...)        # OpenAI: Responses, `tool_search`
    item = await deferred.answer_openai(tool_search_call)              # a `tool_search_output`

A search is one of `discover_tools`: under the same rules, and on record. Tools are called through `Foretool.call`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from foretool.server.catalog.names import DISCOVER
from foretool.server.library import CallFailed, Foretool

_SEARCH: Final = "search_tools"
"""The tool that Anthropic's models search with."""
_FOUND: Final = 5
"""Tools that a search loads, as Anthropic's own does; each stays before the model from then on."""
_MOST_DEFERRED: Final = 10_000
"""Deferred tools that Anthropic's API takes."""
_ABOUT: Final = "Finds tools for a task and loads them. Say what you want to do, one need a line."
_PARAMETERS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "what you want to do, one need a line"}},
    "required": ["query"],
}


class DeferredTools:
    """The tools of one `Foretool` for APIs with a tool search of their own: the API loads a deferred tool once a search
    finds it."""

    def __init__(self, owner: Foretool, loaded: Sequence[str] = (), most: int = _FOUND) -> None:
        """`loaded`: names of tools that are not deferred, such as those of a first step; `most`: how many tools one
        search loads."""
        self._owner = owner
        self._loaded = frozenset(loaded)
        self._most = most
        self._sent: frozenset[str] | None = None
        """What the last request to Anthropic's API defined: it refuses a reference to any other tool."""

    @property
    def anthropic(self) -> list[dict[str, Any]]:
        """`tools` of a request to Anthropic's Messages: the search, and every tool, deferred unless it is loaded."""
        tools = self._owner.tools.anthropic[:_MOST_DEFERRED]
        self._sent = frozenset(tool["name"] for tool in tools)
        deferred = [tool if tool["name"] in self._loaded else {**tool, "defer_loading": True} for tool in tools]
        return [{"name": _SEARCH, "description": _ABOUT, "input_schema": _PARAMETERS}, *deferred]

    async def answer_anthropic(self, block: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `tool_result` for a `tool_use` of the search."""
        names, said = await self._search(block.get("input"))
        found = [name for name in names if self._sent is None or name in self._sent]
        content: Any = [{"type": "tool_reference", "tool_name": name} for name in found] or said
        return {"type": "tool_result", "tool_use_id": block["id"], "content": content}

    @property
    def openai(self) -> list[dict[str, Any]]:
        """`tools` of a request to OpenAI's Responses: the search, which the client runs, and the loaded tools."""
        search = {"type": "tool_search", "execution": "client", "description": _ABOUT, "parameters": _PARAMETERS}
        return [search, *map(_as_function, (tool for tool in self._owner.tools.mcp if tool["name"] in self._loaded))]

    async def answer_openai(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `tool_search_output` for a `tool_search_call`."""
        names, _ = await self._search(item.get("arguments"))
        known = {tool["name"]: tool for tool in self._owner.tools.mcp}
        tools = [{**_as_function(known[name]), "defer_loading": True} for name in names if name in known]
        return {
            "type": "tool_search_output", "execution": "client", "call_id": item.get("call_id"), "status": "completed",
            "tools": tools,
        }  # fmt: skip

    async def _search(self, arguments: Any) -> tuple[list[str], str]:
        """Return the names of what fits, the best first, and what is said where nothing does."""
        if isinstance(arguments, str):  # OpenAI writes the arguments of functions as a text
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                arguments = {"query": arguments}
        query = arguments.get("query") if isinstance(arguments, dict) else None
        try:
            given = {"task": str(query or ""), "limit": self._most, "structured": True}
            result = await self._owner.call(DISCOVER, given)
        except CallFailed as error:
            return [], str(error)
        matches = result.structured["matches"] if isinstance(result.structured, dict) else []
        return [match["name"] for match in matches][: self._most], result.text or "nothing fits"


def _as_function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool as OpenAI's Responses take functions. They take a schema as strict unless told otherwise, and
    servers write others."""
    about = {"name": tool["name"], "description": tool.get("description") or ""}
    return {"type": "function", **about, "parameters": tool["inputSchema"], "strict": False}
