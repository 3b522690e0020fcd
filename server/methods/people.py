"""People who come with tokens of their own: what a proxy asks of the pack that serves them.

People whom an authorization server vouches for, and servers that each person reaches with a token of their own, are in
`fleet/people/`. A proxy that nobody comes to like that never imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from foretool.server.catalog.catalog import Catalog
from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import Config, LiveConfig
from foretool.server.config.servers import Server
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.transports.client.access import Issuer
from foretool.server.transports.upstream.base import Authorizer
from foretool.server.upstreams.lines import OpenLink
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Host, Upstream
from foretool.storage.records import Tool
from foretool.storage.store import Store


class Events(Host, Protocol):
    """What the pack reports back: events of upstreams, and lists of tools for one person."""

    def take_in(self, upstream: Upstream, listed: Sequence[Raw]) -> None: ...


class Surroundings(NamedTuple):
    """The parts of the proxy that the pack gets."""

    config: LiveConfig
    store: Callable[[], Store]
    catalog: Catalog
    upstreams: UpstreamRegistry
    events: Events
    open_with: Callable[[Server, Authorizer], OpenLink]
    """Returns what opens the link to a server with somebody's token."""
    options: Mapping[str, Any]
    """What every `Upstream` is made with."""
    relist: Callable[[str], None]
    """Told that the list of a person changes."""


class People(Protocol):
    """Serves people who come with tokens of their own."""

    def issuer(self, config: Config) -> Issuer | None:
        """Return what checks the tokens of the authorization server of a config; None if it has none. Its keys are kept
        while other settings change."""
        ...

    def make_upstream(self, server: Server) -> Upstream:
        """Return the upstream of a server that each person reaches with a token of their own."""
        ...

    def sees(self, person: str, tool: Tool) -> bool:
        """Return whether such a server has listed a tool to a person as the catalog has it."""
        ...

    def connect(self, exchange: Exchange, raw: Raw) -> None:
        """Answer a call of `connect_server`."""

    async def come_back(self, query: str) -> tuple[int, bytes] | None:
        """Answer a browser that the authorization server of some server has sent back; return status and page, None
        where no server sends one."""
        ...

    def tick(self) -> None:
        """Do the regular work that is due; called about once a second."""

    async def stop(self) -> None:
        """End what runs."""
