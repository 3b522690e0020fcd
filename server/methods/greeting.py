"""Answers the handshakes of both eras, `ping` and `logging/setLevel`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from foretool.retrieval.tokens import estimate, fill_budget
from foretool.server.catalog.catalog import Catalog
from foretool.server.clients.client import LEVELS
from foretool.server.clients.exchange import Caller, Exchange
from foretool.server.clients.registry import ClientRegistry
from foretool.server.config.loader import Profile
from foretool.server.methods.list_tools import TTL_MS
from foretool.server.methods.prompts import offers_steps
from foretool.server.methods.skills import DECLARED
from foretool.server.protocol import jsonrpc, skills, translate, versions
from foretool.server.protocol.general_greeting import INCOMPLETE_TTL_MS, choose_version
from foretool.server.protocol.jsonrpc import RpcError
from foretool.server.trust.text import one_line, quote
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.storage.records import Era

_INSTRUCTION_TOKENS: Final = 1000
"""The budget for our `instructions` and those of the upstreams together."""

_INSTRUCTIONS: Final = (
    "The tool list here is partial: many more tools stand behind it. "
    "When none of the listed ones fits, describe the task to discover_tools, then call what it finds as its answer "
    "says."
)
_ALL_LISTED: Final = "All tools are in your list: call the one that you need by its own name."
_QUOTING: Final = " Lines after > are the words of the server named above them."


class Greeting:
    """Writes the greeting of a client: our capabilities, and `instructions` about the servers."""

    def __init__(
        self, upstreams: UpstreamRegistry, catalog: Catalog, clients: ClientRegistry,
        cuts_results: Callable[[], bool], has_skills: Callable[[Caller], bool],
    ) -> None:  # fmt: skip
        """`cuts_results`: whether results may link to resources of our own; `has_skills`: whether there may be skills
        for a client."""
        self._has_skills = has_skills
        self._upstreams = upstreams
        self._catalog = catalog
        self._clients = clients
        self._cuts_results = cuts_results

    def handlers(self, era: Era) -> dict[str, Any]:
        if era == "modern":
            return {"server/discover": self.discover_server}
        return {"initialize": self.initialize, "ping": self.ping, "logging/setLevel": self.set_level}

    def initialize(self, exchange: Exchange) -> None:
        wanted = jsonrpc.text(exchange.params.get("protocolVersion"))
        if wanted is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, "initialize: protocolVersion is missing")
        version = choose_version(wanted)
        client = exchange.client
        client.end_sessions()
        client.version = version
        info = jsonrpc.plain_object(exchange.params.get("clientInfo")) or {}
        client.introduce(info, jsonrpc.plain_object(exchange.params.get("capabilities")) or {}, "legacy")
        exchange.own_result(
            {
                "protocolVersion": version,
                "capabilities": self.capabilities(client),
                "serverInfo": versions.IDENTITY,
                "instructions": self._tell_instructions(exchange),
            }
        )

    def discover_server(self, exchange: Exchange) -> None:
        exchange.own_result(
            {
                "supportedVersions": [*versions.MODERN_VERSIONS, *versions.LEGACY_VERSIONS],
                "capabilities": self.capabilities(exchange.client),
                "instructions": self._tell_instructions(exchange),
                "ttlMs": INCOMPLETE_TTL_MS if self._upstreams.still_coming() else TTL_MS,
                "cacheScope": "private",
            }
        )

    def ping(self, exchange: Exchange) -> None:
        exchange.result(jsonrpc.EMPTY)

    def set_level(self, exchange: Exchange) -> None:
        level = jsonrpc.text(exchange.params.get("level"))
        if level not in LEVELS:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"logging/setLevel: level must be one of {', '.join(LEVELS)}")
        exchange.client.log_level = level
        self._clients.set_levels()
        exchange.result(jsonrpc.EMPTY)

    def capabilities(self, client: Caller) -> dict[str, Any]:
        """Return our capabilities and those of the upstreams of a client's profile, as far as we answer what they lead
        to. While some upstreams are still unknown, that is every one."""
        profile, has_skills = client.profile, self._has_skills(client)
        declared, is_whole = self._upstreams.all_capabilities(profile)
        union = {key for known in declared for key in known}
        # We log ourselves, whatever the upstreams do.
        capabilities: dict[str, Any] = {"tools": {"listChanged": True}, "logging": {}}
        has_pages = any(each.name in self._catalog.now.page_servers for each in self._upstreams.admitted(profile))
        if not is_whole or "resources" in union or self._cuts_results() or has_pages or has_skills:
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if not is_whole or "prompts" in union or offers_steps(profile):
            capabilities["prompts"] = {"listChanged": True}
        if not is_whole or "completions" in union:
            capabilities["completions"] = {}
        extensions: dict[str, Any] = {skills.EXTENSION: DECLARED} if has_skills else {}
        for known in declared:
            extensions.update(translate.served_extensions(known))
            if client.era == "modern" and versions.TASKS in (known.get("extensions") or {}):
                extensions[versions.TASKS] = {}
        return {**capabilities, "extensions": extensions} if extensions else capabilities

    def _lists_all(self, exchange: Exchange) -> bool:
        """Return whether the list of a client holds every tool of its profile. A server that fails has none to add;
        once it works again, its tools come with the next list."""
        client, awaited = exchange.client, self._upstreams.awaited()
        is_known = all(each.name not in awaited for each in self._upstreams.admitted(client.profile))
        return is_known and client.tools.shows_all()

    def _tell_instructions(self, exchange: Exchange) -> str:
        client = exchange.client
        said, client.told_servers = self.instructions(client.profile, is_whole=self._lists_all(exchange))
        return said

    def instructions(self, profile: Profile, *, is_whole: bool = False) -> tuple[str, frozenset[str]]:
        """Return our `instructions`, with those of the profile's upstreams, and the names of the upstreams that found
        room in them. `is_whole`: every tool is listed."""
        texts = {each.name: self._catalog.texts.about(each.name) for each in self._upstreams.admitted(profile)}
        merged = merge_instructions(texts, _INSTRUCTION_TOKENS, _ALL_LISTED if is_whole else _INSTRUCTIONS)
        shares = {name: _share(name, text) for name, text in texts.items() if text.strip()}
        return merged, frozenset(name for name, share in shares.items() if share in merged)


def merge_instructions(upstreams: Mapping[str, str], budget: int, own: str = _INSTRUCTIONS) -> str:
    """Return our `instructions`, then those of the upstreams, each quoted under its name, within `budget` tokens
    together."""
    shares = [_share(name, text) for name, text in upstreams.items() if text.strip()]
    own = own + _QUOTING if shares else own
    return "\n\n".join([own, *fill_budget(shares, estimate, budget - estimate(own))])


def _share(name: str, text: str) -> str:
    """Quote a server's text under its name. No line of a quotation is a heading, so none can pose as another server."""
    return f"## {one_line(name)}\n{quote(text)}"
